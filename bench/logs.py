"""What a broker's log says about the batches in it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mirrormaker.embedded import Cluster
from mirrormaker.wire.compression import CODECS

_HEADER = struct.Struct(">8x i 9x h 34x i")  # length, attributes and number of records, 61 bytes in all
_BEFORE_LENGTH = 12


@dataclass(frozen=True)
class Batches:
    """Means over some batches, and the codecs that they use."""

    records: float
    kilobytes: float
    codecs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.records:.1f} records and {self.kilobytes:.1f} KB a batch, {' and '.join(self.codecs)}"


def batches_in(cluster: Cluster, topic: str) -> Batches:
    """The batches in the first 8 MB of partition 0, which must not be empty."""
    with open(cluster.directory / "broker-1" / f"{topic}-0" / f"{0:020d}.log", "rb") as log:
        data = log.read(8 << 20)
    at = batches = records = 0
    codecs = set()
    while at + _HEADER.size <= len(data):
        length, attributes, count = _HEADER.unpack_from(data, at)
        at, batches, records = at + _BEFORE_LENGTH + length, batches + 1, records + count
        codecs.add(CODECS[attributes & 7])
    return Batches(records / batches, at / batches / 1000, tuple(sorted(codecs)))
