"""Hypothesis strategies: records, batches, logs, and the contents of Fetch and Produce requests and responses."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from hypothesis import strategies as st

from mirrormaker.wire.protocol.fetch import FetchedPartition, PartitionToFetch
from mirrormaker.wire.protocol.produce import Appended
from tests.support.answers import FetchAnswer, ProduceAnswer
from tests.support.batches import CODECS, HEADER, Record, Written, write_batch

int16 = st.integers(-(1 << 15), (1 << 15) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
offsets = st.integers(0, (1 << 62) - 1)
epochs = st.integers(-1, (1 << 31) - 1)
sequences = st.integers(0, (1 << 31) - 1)
names = st.text("abXY09._-äß漢😀", min_size=1, max_size=20)


# -- records and batches

# -1 is "no timestamp"; other negative timestamps are odd, but brokers take them.
timestamps = st.one_of(st.just(-1), st.integers(-(1 << 40), 1 << 45), st.integers(1_500_000_000_000, 1_800_000_000_000))
payloads = st.one_of(
    st.none(), st.binary(max_size=40), st.builds(bytes.__mul__, st.binary(min_size=1, max_size=4), st.integers(1, 200))
)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=10)), max_size=3).map(tuple)
records = st.builds(Record, timestamps, payloads, payloads, headers)


@st.composite
def batches(draw: st.DrawFn, base_offset: int | None = None) -> Written:
    """Draw a batch of any codec, with or without a producer id, a transaction, and holes left by compaction."""
    transactional = draw(st.booleans())
    has_id = transactional or draw(st.booleans())
    rows = draw(st.lists(records, min_size=1, max_size=5))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 200]), min_size=len(rows) - 1, max_size=len(rows) - 1))
    return write_batch(
        rows,
        base_offset=draw(st.integers(0, 1 << 60)) if base_offset is None else base_offset,
        leader_epoch=draw(epochs),
        codec=draw(st.sampled_from(CODECS)),
        transactional=transactional,
        producer_id=draw(st.integers(0, (1 << 63) - 1)) if has_id else -1,
        producer_epoch=draw(st.integers(0, (1 << 15) - 1)) if has_id else -1,
        base_sequence=draw(sequences) if has_id else -1,
        attributes=draw(st.sampled_from([0, 0, 0x40])),  # 0x40: compaction has set a delete horizon
        deltas=list(accumulate([0, *steps])),
    )


@st.composite
def logs(draw: st.DrawFn, max_size: int = 4) -> list[Written]:
    """Draw a few consecutive batches, with the gaps that compaction leaves between them."""
    log: list[Written] = []
    end = draw(st.integers(0, 1 << 60))
    for _ in range(draw(st.integers(0, max_size))):
        log.append(draw(batches(base_offset=end + draw(st.integers(0, 3)))))
        end = log[-1].last_offset + 1
    return log


# Payloads that could be mistaken for the structure around them: zeros, varint bytes, records, and whole batches.
look_alikes = st.lists(st.sampled_from([0, 0, 0, 2, 8, 0x7F, 0x80, 0xC0, 0xFF]), max_size=60).map(bytes)
disguises = st.one_of(
    st.none(),
    look_alikes,
    batches().map(lambda written: written.data),
    st.builds(lambda written, end: written.data[HEADER:] + end, batches(), look_alikes),
)
disguised = st.builds(
    Record, timestamps, disguises, disguises, st.lists(st.tuples(names, disguises), max_size=2).map(tuple)
)


# -- Fetch

ids = st.uuids().map(lambda u: u.bytes)
partitions_to_fetch = st.builds(
    PartitionToFetch, st.integers(0, 1 << 20), offsets, epochs, epochs, st.integers(0, (1 << 31) - 1)
)
fetch_topics = st.lists(st.tuples(names, ids, st.lists(partitions_to_fetch, max_size=3)), max_size=3)
forgotten_topics = st.lists(st.tuples(names, ids, st.lists(st.integers(0, 1 << 20), max_size=3)), max_size=2)
limits = st.fixed_dictionaries(
    {
        "max_wait_ms": st.integers(0, (1 << 31) - 1),
        "min_bytes": st.integers(0, (1 << 31) - 1),
        "max_bytes": st.integers(0, (1 << 31) - 1),
        "read_committed": st.booleans(),
    }
)
endpoints = st.lists(st.tuples(int32, names, int32, st.none() | names), max_size=2, unique_by=lambda e: e[0])
fetched_partitions = st.builds(
    FetchedPartition,
    st.just(""),
    st.integers(0, 1 << 20),
    int16,
    int64,
    int64,
    int64,
    st.lists(st.tuples(int64, int64), max_size=3).map(lambda pairs: np.array(pairs, np.int64).reshape(-1, 2)),
    st.none() | st.tuples(st.integers(0, (1 << 31) - 1), offsets),
    st.binary(max_size=60).map(memoryview),
)
fetch_answers = st.builds(
    FetchAnswer,
    int16,
    st.lists(st.tuples(names, ids, st.lists(fetched_partitions, max_size=3)), max_size=3),
    st.none() | st.tuples(st.integers(0, 100), st.integers(0, 100)),
    endpoints,
    int32,
)

# -- Produce

produce_topics = st.lists(
    st.tuples(names, ids, st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(max_size=300)), max_size=3)), max_size=3
)
appended = st.builds(Appended, st.just(""), st.integers(0, 1 << 20), int16, int64, st.none() | names)
produce_answers = st.builds(
    ProduceAnswer,
    st.lists(st.tuples(names, ids, st.lists(appended, max_size=3)), max_size=3),
    st.lists(st.tuples(int32, st.none() | names), max_size=2),
    st.none() | st.tuples(st.integers(0, 100), st.integers(0, 100)),
    endpoints,
)
