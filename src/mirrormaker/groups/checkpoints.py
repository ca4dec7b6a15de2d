"""The offsets that this mirror has committed on the target, in MirrorMaker 2's own format.

Java's `RemoteClusterUtils` reads the topic `<alias>.checkpoints.internal`. For us it is the memory of what we wrote: an
offset on the target that is not in it belongs to somebody else. Rows are never deleted and never hold a negative offset,
because the Java client fails at either, for all groups.

A row has three fields more than MirrorMaker 2's, at its end, where the Java client does not look: the offset that was on the
target before, a mark of the group's offsets on the source, and the type of the group, which a failover cannot ask for once
the source is gone.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from mirrormaker.errors import BadFrame
from mirrormaker.model.group_sync import Memory
from mirrormaker.wire.client import keyed_topic
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.keyed_topic import KeyedWriter

HEARTBEATS = "heartbeats"
_SHORT, _INT, _VERSION = struct.Struct(">h"), struct.Struct(">i"), 0
_VALUE = struct.Struct(">hqq")  # version, upstream offset, downstream offset
_BEFORE, _MARK = struct.Struct(">q"), struct.Struct(">I")
_TYPES = (None, False, True)  # by the last byte: not known, consumers, share group
_HEARTBEAT = struct.Struct(">hq")  # version, timestamp
_LONGEST = (1 << 15) - 1  # bytes of a string

Key = tuple[str, str, int]  # group, target topic, partition


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One row: the group's offset on the source, and the offset that we commit on the target."""

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str = ""
    before: int = -1
    mark: int = 0
    is_share: bool | None = None  # None: not known

    @property
    def fits(self) -> bool:
        """Return True if MirrorMaker 2's format can hold the metadata."""
        return len(self.metadata.encode()) <= _LONGEST

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value as MirrorMaker 2 writes them."""
        key = _string(self.group) + _string(self.topic) + _INT.pack(self.partition)
        if min(self.upstream, self.downstream) < 0:
            raise ValueError(f"a checkpoint of group {self.group} has a negative offset")
        value = _VALUE.pack(_VERSION, self.upstream, self.downstream) + _string(self.metadata)
        return key, value + _BEFORE.pack(self.before) + _MARK.pack(self.mark) + bytes([_TYPES.index(self.is_share)])

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Checkpoint:
        """Return the row; raise BadFrame if the bytes are no checkpoint."""
        try:
            group, at = _read_string(key, 0)
            topic, at = _read_string(key, at)
            (partition,) = _INT.unpack_from(key, at)
            version, upstream, downstream = _VALUE.unpack_from(value)
            metadata, at = _read_string(value, _VALUE.size)
            # Rows of MirrorMaker 2 itself end here.
            before = _BEFORE.unpack_from(value, at)[0] if len(value) >= at + _BEFORE.size else -1
            at += _BEFORE.size
            mark = _MARK.unpack_from(value, at)[0] if len(value) >= at + _MARK.size else 0
            at += _MARK.size
            is_share = _TYPES[value[at]] if len(value) > at and value[at] < len(_TYPES) else None
        except (struct.error, UnicodeDecodeError) as error:
            raise BadFrame(f"a checkpoint cannot be read: {error}") from error
        if version != _VERSION or partition < 0 or downstream < 0:
            raise BadFrame("a checkpoint has an unknown version, or a negative number")
        return cls(group, topic, partition, upstream, downstream, metadata, before, mark, is_share)


def encode_heartbeat(source: str, target: str, timestamp: int) -> tuple[bytes, bytes]:
    """Return key and value of a heartbeat as MirrorMaker 2 writes it; the timestamp is in milliseconds."""
    return _string(source) + _string(target), _HEARTBEAT.pack(_VERSION, timestamp)


def topic_name(alias: str) -> str:
    """Return the name of the topic for a source cluster."""
    return f"{alias}.checkpoints.internal"


class Checkpoints:
    """The topic on the target, and its last row for each group and partition.

    Several processes write to it, each for the partitions that it mirrors. `refresh` reads the rows of the others.
    """

    def __init__(
        self, target: Cluster, alias: str, see: Callable[[Checkpoint, int], None] = lambda row, timestamp: None
    ) -> None:
        """`see` is called with each row that is read, and with its time in milliseconds since 1970."""
        self.topic = topic_name(alias)
        self._see = see
        self._target, self._writer = target, KeyedWriter(target, self.topic)
        self._end = 0
        self.memory: dict[tuple[str, str], dict[int, Memory]] = {}
        self.is_share: dict[str, bool] = {}  # groups whose type is known
        self.policy = ""

    async def start(self) -> None:
        """Create the topic if it is missing, and read it. `policy` is its cleanup.policy afterwards."""
        self.policy = await keyed_topic.ensure(self._target, self.topic)
        self._end = 0
        await self.refresh()

    async def open(self) -> bool:
        """Read the topic without creating it; return False if it does not exist."""
        await self._target.refresh([self.topic])
        if self.topic not in self._target.topics:
            return False
        await self.refresh()
        return True

    async def refresh(self) -> None:
        """Read the rows that have come since the last time. A row of another format is left out, as Java's client does."""
        async for records, end in keyed_topic.scan(self._target, self.topic, self._end):
            for record in records:
                if record.value is None:
                    continue
                try:
                    row = Checkpoint.decode(record.key, record.value)
                except BadFrame:
                    continue
                self._see(row, record.timestamp)
                self._take(row, record.timestamp / 1000)
            self._end = end

    async def write(self, rows: Iterable[Checkpoint]) -> None:
        """Write rows, and remember them, before their offsets are committed."""
        kept = list(rows)
        await self._writer.write([row.encode() for row in kept])
        for row in kept:
            self._take(row, time.time())

    def _take(self, row: Checkpoint, written_at: float) -> None:
        if row.is_share is not None:
            self.is_share[row.group] = row.is_share
        rows = self.memory.setdefault((row.group, row.topic), {})
        known = rows.get(row.partition)
        # Our own rows come back when the topic is read further.
        if known is None or known.last != row.downstream:
            older = known.last if known is not None else -1
            rows[row.partition] = Memory(row.downstream, row.before, older, row.mark, written_at)
        else:
            rows[row.partition] = replace(known, mark=row.mark, written_at=max(known.written_at, written_at))

    def note_failed(self, group: str, topic: str) -> None:
        """Note that a commit failed after its rows were written: as old offsets they are due again at once."""
        rows = self.memory.get((group, topic), {})
        for partition, known in rows.items():
            rows[partition] = replace(known, written_at=0.0)

    def confirm(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Note that the target shows the last offset that we wrote: only that one is ours from now on."""
        known = self.memory.get((group, topic), {}).get(partition)
        if known is not None and known.last == offset and (known.before, known.older) != (-1, -1):
            self.memory[group, topic][partition] = replace(known, before=-1, older=-1)


class Heartbeats:
    """The topic `heartbeats` on the target: MirrorMaker 2's tools find out from it which clusters are mirrored."""

    def __init__(self, target: Cluster, source_alias: str, target_alias: str) -> None:
        self._target, self._names = target, (source_alias, target_alias)
        self._writer = KeyedWriter(target, HEARTBEATS)

    async def start(self) -> None:
        """Create the topic if it is missing."""
        await keyed_topic.ensure(self._target, HEARTBEATS)

    async def beat(self) -> None:
        """Write one heartbeat."""
        await self._writer.write([encode_heartbeat(*self._names, int(time.time() * 1000))])


def _string(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _LONGEST:
        raise ValueError(f"a name of {len(encoded)} bytes does not fit into a checkpoint")
    return _SHORT.pack(len(encoded)) + encoded


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _SHORT.unpack_from(data, at)
    end = at + _SHORT.size + size
    if size < 0 or end > len(data):
        raise struct.error("a string is longer than the row")
    return data[at + _SHORT.size : end].decode(), end
