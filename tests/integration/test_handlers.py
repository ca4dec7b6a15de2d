"""Message handlers and rebalance listeners of users, as the documentation shows them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from kafka import KafkaProducer

from mirrormaker.embedded import Cluster
from tests.support.mirror_process import run_once
from tests.support.reading import read

EXAMPLES = Path(__file__).parents[2] / "examples"
START = int(time.time() * 1000) - 10_000  # brokers delete records that are older than a week


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{EXAMPLES}:{tmp_path}")


def write_events(cluster: Cluster, topic: str, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, linger_ms=20)
    for number in range(count):
        event = {"n": number, "amount": 2000 if number % 10 == 0 else 5} | ({"test": True} if number % 4 == 1 else {})
        producer.send(
            topic,
            json.dumps(event).encode(),
            b"%d" % number,
            partition=number % 2,
            timestamp_ms=START + number,
        )
    producer.flush()
    producer.close()


def numbers(cluster: Cluster, topic: str) -> dict[int, list[int]]:
    return {p: [json.loads(row.value or b"")["n"] for row in rows] for p, rows in read(cluster, topic).items()}


def test_a_handler_drops_changes_and_sends_elsewhere(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=2)
    target.create_topic(f"{topic_name}.large", partitions=3)
    write_events(source, topic_name, 400)
    options = ["--whitelist", topic_name, "--message.handler", "handlers:without_tests"]
    options += ["--consumer.rebalance.listener", "handlers:Listener"]
    mirror = run_once(tmp_path, source, target, *options, group=topic_name)
    assert mirror.wait() == 0, mirror.text
    assert f"now mirrored here: ['{topic_name}-0', '{topic_name}-1']" in mirror.text
    kept = [n for n in range(400) if n % 4 != 1]
    assert numbers(target, topic_name) == {p: [n for n in kept if n % 2 == p] for p in (0, 1)}
    assert all(json.loads(row.value or b"")["mirrored"] for rows in read(target, topic_name).values() for row in rows)
    large = numbers(target, f"{topic_name}.large")
    assert sorted(n for rows in large.values() for n in rows) == [n for n in kept if n % 10 == 0]
    write_events(source, topic_name, 400)  # the same records again: both topics continue
    again = run_once(tmp_path, source, target, *options, group=topic_name)
    assert again.wait() == 0, again.text
    assert sum(map(len, numbers(target, topic_name).values())) == 2 * len(kept)
    assert sum(map(len, numbers(target, f"{topic_name}.large").values())) == 2 * sum(map(len, large.values()))


def test_a_handler_of_tables_filters_them(source: Cluster, target: Cluster, topic_name: str, tmp_path: Path) -> None:
    source.create_topic(topic_name, partitions=2)
    write_events(source, topic_name, 400)
    options = (
        "--whitelist",
        topic_name,
        "--message.handler",
        "handlers:Since",
        "--message.handler.args",
        str(START + 300),
    )
    mirror = run_once(tmp_path, source, target, *options, group=topic_name)
    assert mirror.wait() == 0, mirror.text
    assert numbers(target, topic_name) == {p: [n for n in range(300, 400) if n % 2 == p] for p in (0, 1)}


FAILING = """
from mirrormaker.handlers import tables

@tables
def fails_by_table(table):
    if b"123" in table["key"].to_pylist():
        raise ValueError("I cannot read this")
    return table
"""


def test_a_handler_that_raises_names_the_record(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    source.create_topic(topic_name, partitions=2)
    write_events(source, topic_name, 200)
    options = ["--whitelist", topic_name, "--message.handler", "failing:fails_by_table"]
    mirror = run_once(tmp_path, source, target, *options, group=topic_name)
    assert mirror.wait() == 1
    last = mirror.text.strip().splitlines()[-1]
    assert last == (
        f"mirrormaker: {topic_name}-1: the record at source offset 61 cannot be delivered:"
        " its message handler raised ValueError: I cannot read this"
    )
    assert numbers(target, topic_name)[1] == list(range(1, 123, 2))
    file = tmp_path / "undelivered.jsonl"
    options += ["--abort.on.send.failure", "false", "--undelivered.file", str(file)]
    going_on = run_once(tmp_path, source, target, *options, group=topic_name)
    assert going_on.wait() == 0, going_on.text
    assert [json.loads(line)["offset"] for line in file.read_text().splitlines()] == [61]
    assert numbers(target, topic_name) == {p: [n for n in range(200) if n % 2 == p and n != 123] for p in (0, 1)}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere:x", "No module named 'nowhere'; is its directory in PYTHONPATH?"),
        ("handlers:nothing", "there is no nothing in handlers"),
        ("handlers", "this must be package.module:name"),
        ("handlers:Since", "TypeError"),
    ],
)
def test_a_handler_that_cannot_be_loaded_is_refused_before_anything_starts(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path, name: str, words: str
) -> None:
    mirror = run_once(tmp_path, source, target, "--whitelist", topic_name, "--message.handler", name, group=topic_name)
    assert mirror.wait() == 1
    (line,) = mirror.text.strip().splitlines()
    assert line.startswith(f"mirrormaker: --message.handler {name}: ")
    assert words in line
