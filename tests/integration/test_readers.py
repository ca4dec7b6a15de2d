"""Java's console consumers read half of a topic on the source, stop, and go on at the target: every record once."""

from __future__ import annotations

from pathlib import Path

from mirrormaker.embedded import Cluster
from tests.support.group_clients import committed, send
from tests.support.mirror_process import MirrorProcess

RECORDS, HALF = 1200, 500
PROTOCOLS = ("classic", "consumer")


def _read(cluster: Cluster, topic: str, group: str, protocol: str, most: int) -> list[int]:
    """Read as Java's console consumer does; it commits when it ends, after so many records or 10 s without one."""
    done = cluster.tools.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group", group, "--from-beginning"),
        *("--max-messages", str(most), "--timeout-ms", "10000"),
        *("--command-property", f"group.protocol={protocol}"),
        timeout=90,
    )
    return [int(line) for line in done.stdout.splitlines() if line.strip().isdigit()]


def test_java_consumers_go_on_at_the_target(source: Cluster, target: Cluster, topic_name: str, tmp_path: Path) -> None:
    """One mirror for the groups of both protocols: a start of Spark takes as long as a consumer."""
    for cluster in (source, target):
        cluster.create_topic(topic_name, partitions=2)
    send(target, topic_name, 1_000_000, 5)  # so that offsets differ
    send(source, topic_name, 0, RECORDS)
    before, expected = {}, {}
    for protocol in PROTOCOLS:
        before[protocol] = _read(source, topic_name, _group(topic_name, protocol), protocol, HALF)
        assert len(before[protocol]) == HALF
        here = committed(source, _group(topic_name, protocol), topic_name)
        expected[protocol] = {0: here[0] + 3, 1: here[1] + 2}
    with MirrorProcess(
        tmp_path,
        source.bootstrap,
        target.bootstrap,
        *("--whitelist", topic_name, "--groups", f"{topic_name}-.*"),
        group=f"mirror-{topic_name}",
        consumer="sync.group.offsets.interval.seconds=1\n",
    ) as mirror:
        mirror.wait_until(
            lambda: {p: committed(target, _group(topic_name, p), topic_name) for p in PROTOCOLS} == expected
        )
    for protocol in PROTOCOLS:
        found = _read(target, topic_name, _group(topic_name, protocol), protocol, RECORDS)
        after = [number for number in found if number < RECORDS]
        assert sorted(before[protocol] + after) == list(range(RECORDS))


def _group(topic: str, protocol: str) -> str:
    return f"{topic}-{protocol}"
