"""Faults on YARN: executors, ApplicationMasters, and a driver that runs in the cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.support.comparing import assert_same
from tests.support.kerberos_clusters import GROUP, TOPIC, kerberos_clusters
from tests.support.load import PARTITIONS
from tests.support.numbered_records import write
from tests.support.topics import EndOffsets
from tests.support.waiting import wait_until
from tests.support.yarn_streams import executors_with_streams

from faults.case import Result, SeparateCase
from faults.several_topics import SeveralTopics
from mirrormaker.embedded import Cluster
from mirrormaker.embedded.certificates import Authority
from mirrormaker.embedded.ports import free_port
from mirrormaker.embedded.yarn_cluster import YarnCluster

_QUIET = {"auto.create.topics.enable": "false"}
_BACK = 180.0  # seconds until all topics flow again; two applications start meanwhile, and each takes half a minute
_REGISTERED = 15.0  # seconds until a new executor can take streams; there is nothing outside that shows it
_BACK_WITHIN = 5.0  # seconds after an executor was killed, with spare slots
_KILLS = 6  # by default the third lost executor ends an application
_TOPIC, _PARTITIONS = "orders", 4
_PASSWORD = "test1234"


@contextlib.contextmanager
def _yarn() -> Iterator[YarnCluster]:
    """Run YARN, and point Spark's variables at it."""
    # The containers' Python must have none of our libraries.
    path = f"{Path(sys.base_prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
    before = dict(os.environ)
    os.environ["PATH"] = path
    try:
        with YarnCluster() as yarn:
            os.environ.update(yarn.environment)
            yield yarn
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _mirror_on_yarn(directory: Path, result: Result) -> Iterator[tuple[YarnCluster, SeveralTopics]]:
    topics = ("calm-0", "calm-1", "calm-2")
    with (
        Cluster(name="yarn-source", settings=_QUIET) as source,
        Cluster(name="yarn-target", settings=_QUIET) as target,
        _yarn() as yarn,
        SeveralTopics(result, directory, source, target, topics, *yarn.options) as several,
    ):
        several.mirror.start()
        several.wait_until_flowing(several.calm, _BACK)
        yield yarn, several
        several.finish()


def lost_executors(directory: Path, result: Result) -> None:
    """Kill executors one after the other, more often than an application survives by default."""
    with _mirror_on_yarn(directory, result) as (yarn, several):
        for _ in range(_KILLS):
            result.rounds += 1
            wait_until("both executors run", lambda: len(yarn.executors()) >= 2, _BACK)
            time.sleep(_REGISTERED)
            began, printed = time.monotonic(), len(several.mirror.text)
            os.kill(executors_with_streams(yarn)[0], signal.SIGKILL)
            several.wait_for_line("is gone", printed)
            several.wait_until_flowing(several.calm, _BACK)
            pause = max(several.watch.longest_pause(topic, began) for topic in several.calm)
            result.longest_pause = max(result.longest_pause, pause)
            result.notes.append(f"longest pause after the kill: {pause:.1f} s")
            if pause > _BACK_WITHIN:
                result.problems.append(f"a topic stood still for {pause:.1f} s; {_BACK_WITHIN:g} s are allowed")
        found = yarn.applications()
        if len(found) != 1 or found[0].attempt != 1:
            result.problems.append(f"the application did not survive: {found}")


def lost_application_masters(directory: Path, result: Result) -> None:
    """Kill the ApplicationMaster twice within a minute: the second time YARN ends the application."""
    with _mirror_on_yarn(directory, result) as (yarn, several):
        for _ in range(2):
            result.rounds += 1
            (master,) = yarn.application_masters()
            printed = len(several.mirror.text)
            os.kill(master, signal.SIGKILL)
            _wait_until_gone(yarn, master)
            # Records flow on for a moment, until the executors end too.
            several.wait_for_line("is gone", printed, _BACK)
            took = several.wait_until_flowing(several.calm, _BACK)
            states = ", ".join(f"{app.state} (attempt {app.attempt})" for app in yarn.applications())
            result.notes.append(f"all topics flow {took:.1f} s later; applications: {states}")


def _wait_until_gone(yarn: YarnCluster, master: int) -> None:
    wait_until("the ApplicationMaster is gone", lambda: master not in yarn.application_masters(), 20)


# -- cluster mode


def cluster_mode(directory: Path, result: Result) -> None:
    """Run the driver in the cluster: over TLS, with a status page; kill it, kill its application, and compare."""
    authority = Authority(directory)
    settings = {**_QUIET, **authority.listener("TLS", authority.issue("broker"))}
    listeners = {"TLS": "SSL"}
    security = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(authority.truststore(_PASSWORD)),
        "ssl.truststore.password": _PASSWORD,
        "ssl.keystore.location": str(authority.issue("mirror").jks(_PASSWORD, _PASSWORD)),
        "ssl.keystore.password": _PASSWORD,
        "ssl.key.password": _PASSWORD,
    }
    lines = "".join(f"{key}={value}\n" for key, value in security.items())
    with (
        Cluster(name="submit-source", settings=settings, listeners=listeners) as source,
        Cluster(name="submit-target", settings=settings, listeners=listeners) as target,
        _yarn() as yarn,
        _kept_output(directory, yarn, result),
    ):
        source.create_topic(_TOPIC, partitions=_PARTITIONS)
        consumer = f"bootstrap.servers={source.address('TLS')}\ngroup.id=submitted\n{lines}"
        producer = f"bootstrap.servers={target.address('TLS')}\n{lines}"
        submitter = _Submitter(directory, consumer, producer, "--whitelist", _TOPIC, *yarn.options)
        _cluster_mode(submitter, source, target, yarn, result)


@contextlib.contextmanager
def _kept_output(directory: Path, yarn: YarnCluster, result: Result) -> Iterator[None]:
    """Note a problem, and keep the output of all containers: YARN's directory is removed at the end."""
    try:
        yield
    except AssertionError as error:
        result.problems.append(str(error)[:2000])
        shutil.copytree(yarn.directory / "containers", directory / "containers")


def _cluster_mode(submitter: _Submitter, source: Cluster, target: Cluster, yarn: YarnCluster, result: Result) -> None:
    ends = EndOffsets(target, _TOPIC, _PARTITIONS)

    def flow(start: int, what: str) -> None:
        write(source, _TOPIC, 400, _PARTITIONS, start=start)
        took = wait_until(what, lambda: ends.records() == start + 400 or _has_ended(yarn), _BACK)
        assert ends.records() == start + 400, f"{what}: {yarn.applications()[-1]}"
        result.rounds += 1
        result.notes.append(f"{what}: {took:.1f} s")

    port = free_port()
    code, text = submitter.submit("--status.address", f"127.0.0.1:{port}", "--status.token", "0123456789abcdef0123")
    assert code == 0, text
    flow(0, "records flow after the submission")
    assert _get(port, "healthz") == 200, "/healthz answers"
    words = " ".join(yarn.processes().values())
    for secret in (_PASSWORD, "0123456789abcdef0123"):
        assert secret not in words and secret not in text, "a secret is in the list of processes or in the output"
    (driver,) = yarn.application_masters()
    os.kill(driver, signal.SIGKILL)
    _wait_until_gone(yarn, driver)
    flow(400, "records flow again after the driver was killed")
    (first,) = yarn.applications()
    assert first.attempt == 2, first
    yarn.kill_application(first)
    wait_until("nothing is left on the node", lambda: not yarn.processes(), 20)
    write(source, _TOPIC, 400, _PARTITIONS, start=800)
    code, text = submitter.submit("--exit.when.caught.up", "--wait")
    assert code == 0 and "has succeeded" in text, text
    assert [app.final_status for app in yarn.applications()] == ["KILLED", "SUCCEEDED"], yarn.applications()
    assert_same(source, target, _TOPIC, 1200)
    result.records += 1200
    submitter.spoil()
    code, text = submitter.submit("--wait", "--spark.conf", "spark.yarn.maxAppAttempts=1")
    assert code == 1 and "has failed" in text.splitlines()[-1], text
    assert yarn.applications()[-1].final_status == "FAILED", yarn.applications()
    wait_until("nothing is left on the node", lambda: not yarn.processes(), 20)
    left = [path.name for path in Path(submitter.temporary).iterdir() if path.name.startswith("mirrormaker-")]
    assert not left, f"left behind: {left}"


def cluster_mode_with_kerberos(directory: Path, result: Result) -> None:
    """Run the driver in the cluster with two keytabs: one that a property file names, and one of a JAAS file."""
    with kerberos_clusters() as clusters, _yarn() as yarn, _kept_output(directory, yarn, result):
        protocol, _, login = clusters.login("writer").strip().partition("\n")
        jaas = directory / "jaas.conf"
        jaas.write_text(f"KafkaClient {{\n  {login.partition('=')[2]}\n}};\n")
        consumer = f"bootstrap.servers={clusters.source.address('KRB')}\ngroup.id={GROUP}\n{clusters.login('reader')}"
        producer = f"bootstrap.servers={clusters.target.address('KRB')}\n{protocol}\n"
        logins = ("--jaas.config", str(jaas), "--krb5.config", str(clusters.kdc.config))
        submitter = _Submitter(directory, consumer, producer, "--whitelist", TOPIC, *logins, *yarn.options)
        write(clusters.source, TOPIC, 400, PARTITIONS)
        code, text = submitter.submit("--exit.when.caught.up", "--wait")
        assert code == 0, text
        assert_same(clusters.source, clusters.target, TOPIC, 400)
        result.rounds, result.records = 1, 400


def _has_ended(yarn: YarnCluster) -> bool:
    return yarn.applications()[-1].final_status != "UNDEFINED"


class _Submitter:
    """Runs `mirrormaker submit` with two property files, of which the text is given."""

    def __init__(self, directory: Path, consumer: str, producer: str, *options: str) -> None:
        self._consumer, self._producer = directory / "source.properties", directory / "target.properties"
        self._consumer.write_text(consumer)
        self._producer.write_text(producer)
        self._options = options
        self.temporary = directory / "tmp"
        self.temporary.mkdir()

    def submit(self, *options: str) -> tuple[int, str]:
        """Submit a mirror; return the exit code and everything that was printed."""
        command = [sys.executable, "-m", "mirrormaker.cli", "submit", *self._options]
        command += ["--consumer.config", str(self._consumer), "--producer.config", str(self._producer)]
        command += ["--num.streams", "2", *options]
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        return done.returncode, done.stdout + done.stderr

    def spoil(self) -> None:
        """Make the target unreachable."""
        text = self._producer.read_text().splitlines()[1:]
        self._producer.write_text("\n".join([f"bootstrap.servers=127.0.0.1:{free_port()}", *text]) + "\n")


def _get(port: int, page: str) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5) as answer:
        return int(answer.status)


CASES = (
    SeparateCase("yarn-executors", "six executors of a mirror on YARN are killed", lost_executors, _BACK_WITHIN),
    SeparateCase("yarn-masters", "the ApplicationMaster of a mirror on YARN is killed twice", lost_application_masters),
    SeparateCase("yarn-cluster-mode", "a driver that runs on YARN is killed, and so is its application", cluster_mode),
    SeparateCase("yarn-kerberos", "a driver that runs on YARN logs in with keytabs", cluster_mode_with_kerberos),
)
