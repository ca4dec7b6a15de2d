"""Our codec and Java's: its consumer reads our batches, and we read the batches of its broker."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from mirrormaker.embedded import Cluster
from mirrormaker.wire.protocol import produce
from mirrormaker.wire.records.arrow import SCHEMA, from_table, to_table
from mirrormaker.wire.records.batch import LOG_APPEND_TIME, Batch
from mirrormaker.wire.records.columns import pack, unpack
from mirrormaker.wire.records.compression import CODECS, NONE, ZSTD
from tests.support.raw_requests import RawConnection
from tests.support.reading import in_the_log

PRODUCE_VERSION = 8  # the last version that is not flexible; brokers accept zstd from 7 on
NOT_LEADER = 6  # NOT_LEADER_OR_FOLLOWER: metadata name the leader of a new partition a moment too early
NOW = int(time.time() * 1000)


def row(timestamp: int, key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None]) -> dict[str, Any]:
    pairs = [{"key": name, "value": content} for name, content in headers]
    return {"offset": 0, "timestamp": timestamp, "key": key, "value": value, "headers": pairs}


ODD = [
    row(NOW, b"key", b"value", ("header", b"x"), ("empty", b""), ("null", None)),
    row(-1, None, None),
    row(0, b"", b""),
    row(NOW - 10**9, b"\0\1\xff", bytes(range(256)), ("gr\u00f6\u00dfe", b"\x80\xff")),
    row(NOW, None, b"\xff\x80" * 300),
    row(NOW - 1, bytes(300), None),
]
MANY = [row(NOW + n % 7 - 3, b"k%d" % (n % 100), b"value %d " % n * (n % 30)) for n in range(3000)]
LARGE = [row(NOW, b"large", b"0123456789" * 90_000), row(NOW, None, b"after")]
ROWS = [*ODD, *MANY, *LARGE]
BOUNDS = [0, 1, len(ODD), len(ODD) + len(MANY), len(ROWS)]


def packed(codec: int) -> list[memoryview]:
    """Return all rows in a few batches, with their CRC."""
    batches = pack(from_table(pa.Table.from_pylist(ROWS, SCHEMA)), BOUNDS, codec)
    for data in batches:
        Batch(data).stamp(-1, -1, -1)
    return batches


def append(cluster: Cluster, topic: str, partition: int, batches: Sequence[memoryview]) -> None:
    connection = RawConnection(cluster.brokers[0].port)
    try:
        for data in batches:
            parts = produce.encode_request(
                PRODUCE_VERSION, [(topic, b"", [(partition, data)])], acks=-1, timeout_ms=10_000
            )
            body = struct.pack(">hhih", produce.API_KEY, PRODUCE_VERSION, 0, -1) + b"".join(parts)
            deadline = time.monotonic() + 10
            while True:
                answer = connection.ask(struct.pack(">i", len(body)) + body)
                (appended,) = produce.decode_response(PRODUCE_VERSION, memoryview(answer))
                if appended.error != NOT_LEADER or time.monotonic() > deadline:
                    break
                time.sleep(0.05)
            assert appended.error == 0, f"the broker refused a batch: {appended}"
    finally:
        connection.close()


# -- from us to Java

_BYTES = "org.apache.kafka.common.serialization.BytesDeserializer"  # prints bytes that are not ASCII as \\xFF
_PRINTING = [
    *(f"print.{part}=true" for part in ("timestamp", "partition", "offset", "headers", "key", "value")),
    *(f"{part}.deserializer={_BYTES}" for part in ("key", "value", "headers")),
    *(f"{part}.separator=|" for part in ("key", "headers")),
    "null.literal=(null)",
]


def as_printed(partition: int, offset: int, row: dict[str, Any]) -> str:
    headers = [f"{header['key']}:{escaped(header['value'])}" for header in row["headers"]] or ["NO_HEADERS"]
    where = [f"CreateTime:{row['timestamp']}", f"Partition:{partition}", f"Offset:{offset}"]
    return "|".join([*where, *headers, escaped(row["key"]), escaped(row["value"])])


def escaped(data: bytes | None) -> str:
    if data is None:
        return "(null)"
    return "".join(chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x5C else f"\\x{byte:02X}" for byte in data)


def test_javas_consumer_reads_what_we_packed_with_every_codec(source: Cluster, topic_name: str) -> None:
    """Use one partition for each codec, so that the slow consumer is started only once."""
    source.create_topic(topic_name, partitions=len(CODECS))
    for codec, name in enumerate(CODECS):
        append(source, topic_name, codec, packed(codec))
        kept = [batch.codec for batch in in_the_log(source, topic_name, codec)]
        assert kept == [name] * (len(BOUNDS) - 1), "the broker did not keep our batches as they were"

    printed = source.tools.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", source.bootstrap, "--topic", topic_name, "--from-beginning"),
        *("--max-messages", str(len(CODECS) * len(ROWS)), "--timeout-ms", "30000"),
        *(part for setting in _PRINTING for part in ("--formatter-property", setting)),
    )
    lines = printed.stdout.split("\n")
    for codec, name in enumerate(CODECS):
        found = [line for line in lines if f"|Partition:{codec}|" in line[:60]]
        wanted = [as_printed(codec, offset, row) for offset, row in enumerate(ROWS)]
        assert len(found) == len(wanted), f"{name}: {printed.stderr}"
        different = next((pair for pair in zip(found, wanted, strict=True) if pair[0] != pair[1]), None)
        assert different is None, f"{name}: Java reads {different[0][:500]} instead of {different[1][:500]}"


# -- from Java to us


@pytest.mark.parametrize("codec", CODECS[1:])
def test_we_read_what_javas_broker_packed(source: Cluster, topic_name: str, codec: str) -> None:
    """Use a topic with its own compression: the broker unpacks our batches and writes its own."""
    source.create_topic(topic_name, config={"compression.type": codec})
    append(source, topic_name, 0, packed(NONE))
    found = in_the_log(source, topic_name, 0)
    assert {batch.codec for batch in found} == {codec}
    assert to_table(unpack(found)).to_pylist() == [{**row, "offset": offset} for offset, row in enumerate(ROWS)]


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_topic_with_log_append_time_has_the_brokers_time(source: Cluster, topic_name: str, codec: int) -> None:
    source.create_topic(topic_name, config={"message.timestamp.type": "LogAppendTime"})
    append(source, topic_name, 0, packed(codec))
    found = in_the_log(source, topic_name, 0)
    assert all(batch.attributes & LOG_APPEND_TIME for batch in found)
    table = to_table(unpack(found))
    assert set(table.column("timestamp").to_pylist()) == {batch.max_timestamp for batch in found}
    assert min(batch.max_timestamp for batch in found) >= NOW
    assert table.column("value").to_pylist() == [row["value"] for row in ROWS]
