"""The recorded answers; `python -m fuzz.recording` records them again from real brokers (two minutes).

`answers.jsonl` has one line for each request of each conversation, in their order.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from kafka import KafkaProducer
from tests.support.group_clients import commit, set_share_offsets
from tests.support.secure_cluster import PLAIN, SCRAM, add_scram_user
from tests.support.topics import create_topic
from tests.support.wire_clients import wire_client

from fuzz.conversations import CONVERSATIONS, GROWN, OLD, PASSWORD, USER
from fuzz.group_conversations import CONSUMERS, MIRROR, ORDERS, PARTITIONS, READERS, SHARERS
from mirrormaker.embedded import Cluster as EmbeddedCluster
from mirrormaker.embedded import child_processes
from mirrormaker.embedded.kafka_cluster import NEWEST
from mirrormaker.errors import ClusterError
from mirrormaker.offsets.checker import Checker
from mirrormaker.wire.transport.connection import Answered, Connection, Part
from mirrormaker.zookeeper.ensemble import ZooKeeper

FILE = Path(__file__).with_name("answers.jsonl")
ZOOKEEPER, ZNODE = "zookeeper", -1  # in place of a conversation and of an API key; the request is the znode's path
# A recorded answer to SCRAM fits one nonce only.
_NONCE = "a-nonce-that-is-always-the-same"
_LONGEST = 60.0  # seconds of a conversation
_CODECS = (None, "gzip", "snappy", "lz4")
_WORDS = "listener.name.words"
_SETTINGS = {"auto.create.topics.enable": "false"}
_LOGINS = {
    # A login has a lifetime, and is renewed.
    "connections.max.reauth.ms": "3600000",
    f"{_WORDS}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    f"{_WORDS}.plain.sasl.jaas.config": f'{PLAIN} required user_{USER}="{PASSWORD}";',
    f"{_WORDS}.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
}


class Recorded(NamedTuple):
    """A request and its answer, both without headers, and the port of the broker."""

    conversation: str
    port: int
    api_key: int
    version: int
    request: bytes
    answer: bytes


def load() -> list[Recorded]:
    """Return all recorded answers."""
    rows = (json.loads(line) for line in FILE.read_text(encoding="ascii").splitlines())
    return [
        Recorded(name, port, key, version, base64.b64decode(request), base64.b64decode(answer))
        for name, port, key, version, request, answer in rows
    ]


def save(recorded: Iterable[Recorded]) -> None:
    """Replace all recorded answers."""
    lines = (
        json.dumps([*row[:4], base64.b64encode(row.request).decode(), base64.b64encode(row.answer).decode()])
        for row in recorded
    )
    FILE.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


@contextmanager
def known_nonce() -> Iterator[None]:
    """Make SCRAM choose the same nonce each time."""
    whole = secrets.token_urlsafe
    secrets.token_urlsafe = lambda nbytes=None: _NONCE
    try:
        yield
    finally:
        secrets.token_urlsafe = whole


# -- recording again


class _Recorder:
    """Notes the answer to each request that any connection sends."""

    def __init__(self) -> None:
        self.rows: list[Recorded] = []
        self.conversation = ""
        self._send = Connection.send
        Connection.send = self._recorded_send()  # type: ignore[method-assign]

    def _recorded_send(self) -> Callable[..., None]:
        recorder = self

        def send(
            connection: Connection, key: int, version: int, flexible: bool, parts: Sequence[Part], answered: Answered
        ) -> None:
            request, conversation = b"".join(parts), recorder.conversation

            def noted(data: memoryview | None, error: Exception | None) -> None:
                if data is not None:
                    row = Recorded(conversation, connection.port, key, version, request, bytes(data))
                    recorder.rows.append(row)
                answered(data, error)

            recorder._send(connection, key, version, flexible, parts, noted)

        return send


def main() -> None:
    """Have each conversation with real brokers, and keep their answers."""
    recorder = _Recorder()
    for version in (NEWEST, OLD):
        recorder.conversation = ""  # a cluster is prepared by requests too
        with _source(version) as source, EmbeddedCluster(settings=_SETTINGS, name="target") as target, known_nonce():
            for conversation in CONVERSATIONS.values():
                if conversation.version == version:
                    recorder.conversation = conversation.name
                    place = source.address("WORDS") if conversation.security.sasl else source.bootstrap
                    ports = [int(address.split(":")[1]) for address in (place, target.bootstrap)]
                    conversation.run(ports, _LONGEST)
                    print(f"{conversation.name}: {len(recorder.rows)} answers so far", flush=True)
            if source.zookeeper is not None:
                recorder.rows += _znodes(source.zookeeper)
    save(row for row in recorder.rows if row.conversation)
    print(f"{len(recorder.rows)} answers, {FILE.stat().st_size} bytes in {FILE}")


@contextmanager
def _source(version: str) -> Iterator[EmbeddedCluster]:
    """Run a cluster with everything that the conversations ask for."""
    is_new = version == NEWEST
    settings, listeners = (_SETTINGS | _LOGINS, {"WORDS": "SASL_PLAINTEXT"}) if is_new else (_SETTINGS, {})
    with EmbeddedCluster(version, settings=settings, listeners=listeners, name="source") as cluster:
        create_topic(cluster, ORDERS, PARTITIONS, config={"max.message.bytes": "1000000"})
        create_topic(cluster, GROWN, 2)
        for codec in (*_CODECS, "zstd") if is_new else _CODECS:
            _write(cluster, compression_type=codec, enable_idempotence=False)
        commit(cluster, READERS, ORDERS, {0: 3, 1: 4}, "mine")
        if not is_new:
            yield cluster
            return
        set_share_offsets(cluster, SHARERS, ORDERS, {0: 2, 1: 5})
        add_scram_user(cluster, USER, password=PASSWORD)
        _write(cluster, is_aborted=True, transactional_id="aborted")
        _write(cluster, enable_idempotence=False)
        consumer = cluster.tools.start(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", cluster.bootstrap,
            "--topic", ORDERS, "--group", CONSUMERS, "--command-property", "group.protocol=consumer",
        )  # fmt: skip
        try:
            asyncio.run(_wait_for_group(cluster))
            yield cluster
        finally:
            child_processes.end(consumer, signal.SIGKILL)


def _znodes(connect: str) -> Iterator[Recorded]:
    """Yield all znodes of Kafka, with the offsets and owners of an old consumer."""
    with ZooKeeper(connect) as zookeeper:
        zookeeper.commit_offsets(MIRROR, {(ORDERS, 0): 7, (ORDERS, 1): 9})
        client = zookeeper._client
        client.create(f"/consumers/{MIRROR}/owners/{ORDERS}/0", b"consumer-1", makepath=True)
        paths = ["/brokers", "/config", "/consumers"]
        for path in paths:
            content, _ = client.get(path)
            paths += [f"{path}/{name}" for name in client.get_children(path)]
            yield Recorded(ZOOKEEPER, 0, ZNODE, 0, path.encode(), content or b"")


async def _wait_for_group(cluster: EmbeddedCluster) -> None:
    """Wait until the Java consumer has its partitions."""
    client = wire_client(cluster.bootstrap)
    while True:
        with suppress(ClusterError):
            group = await Checker(client, None, CONSUMERS, (), 1.0).check()
            if all(partition.owner for partition in group.partitions):
                break
        await asyncio.sleep(0.5)
    client.close()


def _write(cluster: EmbeddedCluster, is_aborted: bool = False, **settings: Any) -> None:
    """Write a few records to each partition, in one batch."""
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, linger_ms=200, **settings)
    if is_aborted:
        producer.init_transactions()
        producer.begin_transaction()
    for number in range(5):
        for partition in range(PARTITIONS):
            headers = [("h", b"v")] if cluster.version == NEWEST else []
            producer.send(ORDERS, b"value" * 8, b"key-%d" % number, headers=headers, partition=partition)
    producer.flush()
    if is_aborted:
        producer.abort_transaction()
    producer.close()


if __name__ == "__main__":
    main()
