"""Cases with clusters of their own: a bad network, distance, expiring logins, and a source that loses records."""

from __future__ import annotations

from pathlib import Path

from tests.support import kerberos_clusters
from tests.support.counting import Count, count
from tests.support.load import Load
from tests.support.offset_watch import OffsetWatch
from tests.support.waiting import wait_until

from faults import network, source_loss
from faults.case import Result, SeparateCase
from mirrormaker.embedded import Cluster

_WANTED = 50.0  # MB/s over a round trip of 100 ms
_BACKLOG = 1500  # MB
_LOGINS = 120.0  # seconds under load: a dozen logins on each connection, and half a dozen tickets
_LAST_RECORD = 60.0  # seconds for the last record after the load has stopped


def bad_network(directory: Path, result: Result) -> None:
    """Disturb the network under a steady load, and during a backlog: then megabytes are in flight when it is cut."""
    steady = network.disturb_steady_load(_new(directory, "steady"))
    backlog = network.disturb_backlog(_new(directory, "backlog"))
    result.rounds = (steady.faults + backlog.faults).total()
    _set_count(result, steady.count + backlog.count)


def distance(directory: Path, result: Result) -> None:
    """Copy a backlog over a long distance, in large and in small batches."""
    result.rounds = 2
    for size in (256, 16):
        with network.proxied_clusters(heap="1g", quick=False) as clusters:
            network.fill(clusters, _BACKLOG, size << 10)
            result.records += _BACKLOG * 1_000_000 // 1024
            throughput = network.copy_over_distance(_new(directory, f"{size}"), clusters)
        result.notes.append(f"batches of {size} KB: {throughput:.0f} MB/s (goal: at least {_WANTED:g})")
        if throughput < _WANTED:
            result.problems.append(f"only {throughput:.0f} MB/s with batches of {size} KB")


def retention_loss(directory: Path, result: Result) -> None:
    """Delete records that a stopped mirror has not mirrored, from a plain, a compacted and a transactional topic."""
    with Cluster(name="loss-source", settings=source_loss.SOURCE) as source, Cluster(name="loss-target") as target:
        for kind in ("plain", "compacted", "transactional"):
            _add_loss(result, source_loss.lose_by_retention(source, target, _new(directory, kind), kind))


def truncation(directory: Path, result: Result) -> None:
    """Truncate the source's log; fewer or more records follow; the mirror runs all the time, or starts afterwards."""
    with (
        Cluster(brokers=3, name="loss-source", settings=source_loss.SOURCE, heap="256m") as source,
        Cluster(name="loss-target") as target,
    ):
        for after in (200, 800):
            for stopped in (False, True):
                where = _new(directory, f"{after}-{stopped}")
                _add_loss(result, source_loss.lose_by_truncation(source, target, where, after, stopped))


def reauthentication(directory: Path, result: Result) -> None:
    """Mirror for two minutes while logins and tickets expire: they must be renewed on the open connections."""
    topic = kerberos_clusters.TOPIC
    with kerberos_clusters.kerberos_clusters() as clusters, clusters.mirror(directory) as mirror:
        source, target = clusters.source, clusters.target
        load, watch = Load(source.bootstrap, topic), OffsetWatch(source.bootstrap, target.bootstrap, topic)
        load.start()
        watch.start()
        try:
            report = kerberos_clusters.watch_logins(clusters, mirror, watch, _LOGINS)
            load.stop()
            wait_until("last record", lambda: sum(watch.target) == sum(watch.source) == load.sent, _LAST_RECORD)
        finally:
            load.stop_without_waiting()
            watch.stop()
        result.rounds = int(_LOGINS / kerberos_clusters.SESSION)
        result.longest_pause = report.pause
        result.problems += report.problems
        if code := mirror.stop():
            result.problems.append(f"the mirror was asked to stop and ended with exit code {code}")
        _set_count(result, count(source, target, topic))


def _set_count(result: Result, found: Count) -> None:
    result.set_count(found)
    if not found.is_exact:
        result.problems.append("records are lost, duplicated or out of order")


def _add_loss(result: Result, loss: source_loss.SourceLoss) -> None:
    result.rounds += 1
    result.records += loss.records
    result.problems += loss.problems()


def _new(directory: Path, name: str) -> Path:
    (directory / name).mkdir(parents=True)
    return directory / name


CASES = (
    SeparateCase("bad-weather", "a proxy cuts, delays, throttles, freezes and refuses connections", bad_network),
    SeparateCase("distance", "the round trip to both clusters takes 100 ms", distance),
    SeparateCase(
        "overtaken",
        "retention deletes records before they are mirrored: the mirror reports and counts them",
        retention_loss,
    ),
    SeparateCase(
        "reauthentication",
        "Kerberos tickets expire after 20 s and logins after 10 s, for two minutes",
        reauthentication,
    ),
    SeparateCase(
        "cut-back",
        "an unclean leader election truncates the source's log: the mirror reports it and goes on",
        truncation,
    ),
)
