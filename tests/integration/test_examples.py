"""The examples, run unchanged."""

from __future__ import annotations

import pytest
from examples import consumer, producer

from mirrormaker.embedded import Cluster


def test_what_the_producer_writes_the_consumer_reads(source: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    source.create_topic(producer.TOPIC, partitions=3)
    producer.main(source.bootstrap)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 100
    assert all(line.startswith("sent message to topic:test-topic partition:") for line in said)
    consumer.main(source.bootstrap, idle_ms=5000)
    said = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("received topic=test-topic") for line in said) == 100
    assert sum(line.startswith("assigned: [TopicPartition(topic='test-topic', partition=0)") for line in said) == 1
