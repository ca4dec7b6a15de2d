"""Troubles of one topic of several: it cannot be created, written or read, its limits change, or it is created again."""

from __future__ import annotations

import contextlib
import threading
import time
from itertools import pairwise
from pathlib import Path

from kafka import KafkaProducer
from kafka.errors import KafkaError, TopicAlreadyExistsError
from tests.support.reading import read
from tests.support.secure_cluster import PASSWORD, PLAIN, password_login
from tests.support.waiting import wait_until

from faults.ascending import count_after_new_source, count_on_new_target
from faults.case import Result, SeparateCase
from faults.several_topics import GROUP, SeveralTopics, delete_topic, set_topic
from mirrormaker.embedded import Cluster
from mirrormaker.embedded.grants import AUTHORIZER, grant, revoke

_QUIET = {"auto.create.topics.enable": "false"}
_TROUBLE = 8.0  # seconds for which a trouble lasts: a stopped partition is tried once meanwhile
_RETRIED = 45.0  # seconds until a topic flows again: a stopped partition is tried again after 5, 15 and 30 s
_VICTIM = "victim"
_FORBIDDEN = "forbidden"  # may not be created on the target
_PLAIN_LOGIN = f'{PLAIN} required user_alice="{PASSWORD}";'
_LISTENER = {
    "listener.name.words.sasl.enabled.mechanisms": "PLAIN", "listener.name.words.plain.sasl.jaas.config": _PLAIN_LOGIN,
}  # fmt: skip
_ALICE = "User:alice"


def name_collision(directory: Path, result: Result) -> None:
    """Have a topic on the target whose name differs only in a dot: the other one cannot be created.

    First it is there before the mirror starts, then it appears while the mirror runs.
    """
    with (
        Cluster(name="collision-source", settings=_QUIET) as source,
        Cluster(name="collision-target", settings=_QUIET) as target,
        SeveralTopics(result, directory, source, target) as several,
    ):
        target.create_topic("a_b")
        several.add(["a.b"])
        several.start()
        with several.trouble("a topic that cannot be created at the start"):
            time.sleep(_TROUBLE)
        _repair(several, "a_b", "a.b")
        target.create_topic("c_d")
        with several.trouble("a topic that cannot be created later"):
            printed = len(several.mirror.text)
            several.add(["c.d"])
            several.wait_for_line("c.d", printed)
            several.add(["calm-late"])
            several.wait_until_flowing(["calm-late"], 15)
        _repair(several, "c_d", "c.d")
        several.finish("a.b", "c.d", "calm-late")


def _repair(several: SeveralTopics, obstacle: str, topic: str) -> None:
    with several.trouble(f"{topic} can be created again"):
        delete_topic(several.target, obstacle)
        took = several.wait_until_flowing([topic], _RETRIED)
        several.result.notes.append(f"{topic} flowed {took:.1f} s after the obstacle was gone")


def rights(directory: Path, result: Result) -> None:
    """Revoke and grant the rights of one topic on either side, and those of the group."""
    settings = {**_QUIET, **AUTHORIZER, **_LISTENER}
    words = {"WORDS": "SASL_PLAINTEXT"}
    login = password_login("PLAIN")
    with (
        Cluster(name="rights-source", settings=settings, listeners=words) as source,
        Cluster(name="rights-target", settings=settings, listeners=words) as target,
        SeveralTopics(
            result, directory, source, target, addresses=(source.address("WORDS"), target.address("WORDS")),
            consumer=login, producer=login,
        ) as several,
    ):  # fmt: skip
        for topic in (*several.calm, _VICTIM):
            for operation in ("Read", "DescribeConfigs"):
                grant(source, _ALICE, operation, "topic", topic)
            for operation in ("Read", "Write", "Create"):
                grant(target, _ALICE, operation, "topic", topic)
        grant(source, _ALICE, "Read", "group", GROUP)
        several.add([_VICTIM])
        several.start([*several.calm, _VICTIM])
        for side, cluster, operation in (("source", source, "Read"), ("target", target, "Write")):
            with several.trouble(f"{operation} on a topic of the {side}"):
                printed = len(several.mirror.text)
                revoke(cluster, _ALICE, operation, "topic", _VICTIM)
                several.wait_for_line(_VICTIM, printed)
                time.sleep(_TROUBLE)
                grant(cluster, _ALICE, operation, "topic", _VICTIM)
                took = several.wait_until_flowing([_VICTIM], _RETRIED)
                result.notes.append(f"{operation} on the {side}: the topic flowed {took:.1f} s after it was granted")
        _forbid_creation(several)
        _revoke_reading_back(several)
        _revoke_group(several)
        several.finish(_VICTIM, _FORBIDDEN)


def _forbid_creation(several: SeveralTopics) -> None:
    """Begin a topic that the mirror may read, and write on the target, but not create there."""
    with several.trouble("Create on a topic of the target"):
        for operation in ("Read", "DescribeConfigs"):
            grant(several.source, _ALICE, operation, "topic", _FORBIDDEN)
        for operation in ("Read", "Write"):
            grant(several.target, _ALICE, operation, "topic", _FORBIDDEN)
        printed = len(several.mirror.text)
        several.add([_FORBIDDEN])
        several.wait_for_line(f"--allow-principal {_ALICE} --operation Create --topic {_FORBIDDEN}", printed)
        time.sleep(_TROUBLE)
        assert several.watch.ends(_FORBIDDEN)[1] < 0, "the target has the topic that the mirror may not create"
        grant(several.target, _ALICE, "Create", "topic", _FORBIDDEN)
        took = several.wait_until_flowing([_FORBIDDEN], _RETRIED)
        several.result.notes.append(f"Create on the target: the topic flowed {took:.1f} s after it was granted")


def _revoke_reading_back(several: SeveralTopics) -> None:
    """Kill the mirror, whose successor has to read the target's logs, and may not read one of them."""
    several.mirror.kill()
    revoke(several.target, _ALICE, "Read", "topic", _VICTIM)
    # Records that were in flight at the kill would count as those of the successor, and its start as a pause.
    time.sleep(1)
    printed = len(several.mirror.text)
    several.start()
    with several.trouble("Read on a topic of the target"):
        several.wait_for_line(f"topic {_VICTIM}", printed)
        time.sleep(_TROUBLE)
        grant(several.target, _ALICE, "Read", "topic", _VICTIM)
        took = several.wait_until_flowing([_VICTIM], _RETRIED)
        several.result.notes.append(f"Read on the target: the topic flowed {took:.1f} s after it was granted")


def _revoke_group(several: SeveralTopics) -> None:
    """Without its group the mirror stands still; it must name the missing right, survive, and go on by itself."""
    printed = len(several.mirror.text)
    revoke(several.source, _ALICE, "Read", "group", GROUP)
    time.sleep(_TROUBLE)
    try:
        try:
            several.wait_for_line(f"--add --allow-principal {_ALICE} --operation Read --group {GROUP}", printed)
        finally:
            grant(several.source, _ALICE, "Read", "group", GROUP)
        took = several.wait_until_flowing([*several.calm, _VICTIM], _RETRIED)
        several.result.notes.append(f"everything flowed {took:.1f} s after Read on the group was granted")
    except AssertionError as error:
        several.result.problems.append(f"Read on the group: {str(error).splitlines()[0]}")


def size_limits(directory: Path, result: Result) -> None:
    """Raise and lower max.message.bytes of one topic on both sides while records are as large as the source allows."""
    options = ("--abort.on.send.failure", "false", "--undelivered.file", str(directory / "undelivered"))
    with (
        Cluster(name="sizes-source", settings=_QUIET) as source,
        Cluster(name="sizes-target", settings=_QUIET) as target,
        SeveralTopics(result, directory, source, target, ("calm-0", "calm-1"), *options) as several,
    ):
        source.create_topic(_VICTIM)
        several.follow([_VICTIM])
        _write_large(source, 500_000)
        several.start([*several.calm])
        wait_until("the first record", lambda: several.watch.ends(_VICTIM) == (1, 1), 20)
        with several.trouble("both limits are raised"):
            for cluster in (source, target):
                set_topic(cluster, _VICTIM, max_message_bytes="5000000")
            _write_large(source, 2_000_000)
            wait_until("the larger record", lambda: several.watch.ends(_VICTIM) == (2, 2), _RETRIED)
        with several.trouble("the target's limit is lowered"):
            set_topic(target, _VICTIM, max_message_bytes="100000")
            _write_large(source, 400_000)
            _write_large(source, 1_000)
            # The record of 400 KB is given up, and the one behind it arrives.
            wait_until("the small record", lambda: several.watch.ends(_VICTIM) == (4, 3), _RETRIED)
        with several.trouble("the source's limit is lowered, and the target's raised"):
            set_topic(source, _VICTIM, max_message_bytes="1000000")
            set_topic(target, _VICTIM, max_message_bytes="5000000")
            _write_large(source, 900_000)
            wait_until("the next large record", lambda: several.watch.ends(_VICTIM) == (5, 4), _RETRIED)
        several.finish()
        sizes = [len(row.value or b"") for row in read(target, _VICTIM)[0]]
        if sizes != [500_000, 2_000_000, 1_000, 900_000]:
            result.problems.append(f"the target has records of {sizes} bytes")


def _write_large(cluster: Cluster, size: int) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, max_request_size=8 << 20)
    try:
        producer.send(_VICTIM, bytes(size), b"large", partition=0).get(20)
    finally:
        producer.close()


class _PlainWriter(threading.Thread):
    """Writes ascending numbers to the victim, each at most once, whatever happens to the topic."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self._producer = KafkaProducer(
            bootstrap_servers=cluster.bootstrap, enable_idempotence=False, acks="all", metadata_max_age_ms=500,
            delivery_timeout_ms=5000, request_timeout_ms=2000, max_block_ms=2000, retries=0,
            max_in_flight_requests_per_connection=1,
        )  # fmt: skip
        self.acknowledged: list[int] = []
        self._stopping, self.paused = threading.Event(), False
        self.start()

    def run(self) -> None:
        """Write a record every 20 ms."""
        number = 0
        while not self._stopping.wait(0.02):
            if not self.paused:
                number += 1
                try:
                    future = self._producer.send(_VICTIM, b"%d" % number, b"key", partition=0)
                    future.add_callback(self._acknowledge, number)
                except KafkaError:
                    continue  # the topic is not there
        self._producer.close(5)

    def _acknowledge(self, number: int, _: object) -> None:
        self.acknowledged.append(number)

    def stop(self) -> None:
        """Stop, and wait for the last acknowledgements."""
        self._stopping.set()
        self.join()


def created_again(directory: Path, result: Result) -> None:
    """Delete a topic and create it again: on either side, idle and under load, by name and by id."""
    for version in ("2.0.1", "3.9.2", "4.3.1"):
        where = directory / version
        where.mkdir()
        with (
            Cluster(version, name="again-source", settings=_QUIET) as source,
            Cluster(version, name="again-target", settings=_QUIET) as target,
            SeveralTopics(result, where, source, target) as several,
        ):
            source.create_topic(_VICTIM)
            several.follow([_VICTIM])
            writer = _PlainWriter(source)
            several.start([*several.calm, _VICTIM])
            try:
                for side in ("target", "source"):
                    for load in ("idle", "under load"):
                        with several.trouble(f"{version}: created again on the {side}, {load}"):
                            _create_again(several, writer, side, load == "under load")
            finally:
                writer.stop()
            several.finish()


def _create_again(several: SeveralTopics, writer: _PlainWriter, side: str, under_load: bool) -> None:
    """Create the topic again; the target must have every number that it can have, once and in order."""
    writer.paused = not under_load
    if not under_load:
        time.sleep(1.5)  # longer than the interval of commits: the position is committed
        _wait_until_same_end(several)
    cluster = several.source if side == "source" else several.target
    before = _numbers(several.target)
    delete_topic(cluster, _VICTIM)
    written = writer.acknowledged[-1]
    time.sleep(0.5 if under_load else 0.1)
    if cluster is several.source or under_load:
        # The mirror may be quicker on the target, and it alone creates the topic there if nothing is written.
        with contextlib.suppress(TopicAlreadyExistsError):
            cluster.create_topic(_VICTIM)
    writer.paused = False
    wait_until("the target's topic is back", lambda: several.watch.ends(_VICTIM)[1] > 0, _RETRIED)
    time.sleep(2)
    writer.paused = True
    _wait_until_same_end(several)
    source, target = _numbers(several.source), _numbers(several.target)
    assert all(earlier < later for earlier, later in pairwise(source)), (
        "the case itself writes numbers that do not ascend"
    )
    if side == "source":
        found = count_after_new_source(before, writer.acknowledged, source, target)
    else:
        found = count_on_new_target(source, target, written)
    several.result.add(found, f"{_VICTIM}, created again on the {side} {'under load' if under_load else 'while idle'}")
    writer.paused = False
    several.wait_until_flowing([_VICTIM], _RETRIED)


def _wait_until_same_end(several: SeveralTopics) -> None:
    """Wait until the last record of both sides is the same."""

    def same() -> bool:
        several.check_mirror()
        source, target = _numbers(several.source), _numbers(several.target)
        return bool(source) and source[-1:] == target[-1:]

    wait_until("the last record is on the target", same, _RETRIED)


def _numbers(cluster: Cluster) -> list[int]:
    """Return the numbers of the victim's records; none while the topic is not there."""
    return [int(row.value or 0) for row in read(cluster, _VICTIM).get(0, ())]


CASES = (
    SeparateCase(
        "name-collision", "a topic cannot be created on the target, because another one has almost its name", name_collision,
        limit=2,
    ),
    SeparateCase("rights", "the rights of topics and of the group are missing, revoked and granted", rights, limit=2),
    SeparateCase("size-limits", "max.message.bytes of one topic is raised and lowered on both sides", size_limits, limit=2),
    SeparateCase("created-again", "a topic is deleted and created again on either side", created_again, limit=2),
)  # fmt: skip
