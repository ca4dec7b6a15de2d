"""The documents under `/api`, made from a snapshot of the mirror at most once a second, however many clients ask."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from mirrormaker import __version__
from mirrormaker.status.counts import Counted
from mirrormaker.status.event_log import EventLog
from mirrormaker.status.figures import SnapshotSums, SourceTotals, StreamTotals
from mirrormaker.status.history import EVERY, History
from mirrormaker.status.latency import quantiles
from mirrormaker.status.metrics import Metrics
from mirrormaker.status.snapshot import FLOWING, STOPPED, WAITING, GroupFigures, Snapshot, Source, Stream
from mirrormaker.worker.counters import CLASSES

_FRESH = 0.9  # seconds that a document is kept: pages ask once a second
_MAX_TOPICS = 100  # topics that are left out and shown with their reasons
_REST = 4  # metrics are kept for this many times as long as they took to make, but not longer than a document


class Status:
    """Takes a snapshot once a second, and answers from it."""

    def __init__(self, take_snapshot: Callable[[], Snapshot], events: EventLog, max_partitions: int) -> None:
        self._take_snapshot, self._events, self._max_partitions = take_snapshot, events, max_partitions
        self.snapshot = take_snapshot()
        self.started = time.time()
        self._history = History()
        self._sums = SnapshotSums()
        self._metrics = Metrics(max_partitions)
        self._ticks = 0
        self._kept: dict[str, tuple[float, bytes]] = {}
        self._writer = ThreadPoolExecutor(1, "metrics")
        self._writing: asyncio.Task[bytes] | None = None
        self._written = (0.0, b"")  # (kept until, text)

    def tick(self) -> None:
        """Take a snapshot; call it once a second."""
        self.snapshot = snapshot = self._take_snapshot()
        if self._ticks % EVERY == 0:
            totals = self._sums.totals(snapshot, time.monotonic())
            late = _together([source.counts.all for source in snapshot.sources])
            self._history.add(time.time(), totals.records, totals.bytes, totals.lag, late)
        self._ticks += 1

    @property
    def not_ready(self) -> str:
        """Why the mirror does not mirror everything that it should; empty if it does."""
        if self.snapshot.is_stopping:
            return "stopping"
        return "; ".join(source.not_ready for source in self.snapshot.sources if source.not_ready)

    # -- documents

    def overview(self) -> bytes:
        """Return `/api/status`."""
        return self._fresh("overview", self._overview)

    def partitions(self) -> bytes:
        """Return `/api/partitions`."""
        return self._fresh("partitions", self._partitions)

    def history(self, after: float) -> bytes:
        """Return `/api/history` after that time."""
        return _json(self._history.columns(after))

    def events(self, after: int) -> bytes:
        """Return `/api/events` after the event of that number."""
        return _json({"events": [asdict(event) for event in self._events.after(after)]})

    def groups(self) -> bytes:
        """Return `/api/groups`."""
        return self._fresh("groups", self._groups)

    async def metrics(self) -> bytes:
        """Return the metrics as text, made once for all who ask at the same time: 2,000 partitions take up to a second."""
        good_until, text = self._written
        if time.monotonic() < good_until:
            return text
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_metrics())
        # Shielded, because others wait for it too.
        return await asyncio.shield(self._writing)

    async def _write_metrics(self) -> bytes:
        started = time.monotonic()
        making = self._metrics.of(self.snapshot)
        text = await asyncio.get_running_loop().run_in_executor(self._writer, making)
        now = time.monotonic()
        self._written = (now + min(_FRESH, _REST * (now - started)), text)
        return text

    def _fresh(self, name: str, make: Callable[[], Any]) -> bytes:
        made, document = self._kept.get(name, (0.0, b""))
        if not document or time.monotonic() - made > _FRESH:
            document = _json(make())
            self._kept[name] = (time.monotonic(), document)
        return document

    def _overview(self) -> dict[str, Any]:
        snapshot = self.snapshot
        totals = self._sums.totals(snapshot, time.monotonic())
        return {
            "version": __version__,
            "host": socket.gethostname(),
            "now": time.time(),
            "started": self.started,
            "ready": not self.not_ready,
            "not_ready": self.not_ready,
            "stopping": snapshot.is_stopping,
            "guarantee": snapshot.guarantee,
            "guarantee_because": snapshot.why,
            "notes": snapshot.notes,
            "records": totals.records,
            "bytes": totals.bytes,
            "records_per_second": round(totals.records_per_second, 1),
            "bytes_per_second": round(totals.bytes_per_second),
            "lag": totals.lag,
            "lag_unknown": totals.lag_unknown,
            "streams_at_work": totals.streams_at_work,
            "standing": totals.standing,
            "latency_ms": _rounded(_lately([source.counts.all for source in snapshot.sources])),
            "partitions": {FLOWING: totals.flowing, WAITING: totals.waiting, STOPPED: totals.stopped},
            "dropped": sum(source.dropped for source in snapshot.sources),
            "lost_ranges": sum(source.lost for source in snapshot.sources),
            "rebalances": sum(source.counts.rebalances for source in snapshot.sources),
            "buffer_limit": snapshot.buffer_limit,
            "target": {"address": snapshot.target, "cluster": snapshot.target_cluster},
            "sources": list(map(self._source, snapshot.sources, totals.sources)),
            "streams": list(map(self._stream, snapshot.streams, totals.streams)),
        }

    @staticmethod
    def _source(source: Source, totals: SourceTotals) -> dict[str, Any]:
        return {
            "name": source.name,
            "address": source.address,
            "cluster": source.cluster,
            "group": source.group,
            "member": source.member,
            "trouble": source.trouble,
            "ready": totals.is_ready,
            "topics": totals.topics,
            "topics_left_out": [
                {"topic": topic, "reason": reason} for topic, reason in source.topics_left_out[:_MAX_TOPICS]
            ],
            "topics_left_out_total": len(source.topics_left_out),
            "partitions": totals.partitions,
            "lag": totals.lag,
            "lag_unknown": totals.lag_unknown,
            "streams_at_work": totals.streams_at_work,
            "records_per_second": round(totals.records_per_second, 1),
            "bytes_per_second": round(totals.bytes_per_second),
            "groups": None if source.groups is None else _groups(source.groups),
        }

    @staticmethod
    def _stream(stream: Stream, totals: StreamTotals) -> dict[str, Any]:
        return {
            "source": stream.source,
            "stream": stream.number,
            "at_work": totals.is_at_work,
            "starts": stream.figures.starts,
            "partitions": totals.partitions,
            "records_per_second": round(totals.records_per_second, 1),
            "bytes_per_second": round(totals.bytes_per_second),
            "lag": totals.lag,
            "buffer": stream.figures.buffer,
            "memory": stream.figures.memory,
            "cpu_seconds": round(stream.figures.cpu, 2),
        }

    def _groups(self) -> dict[str, Any]:
        known = [(source.name, source.groups) for source in self.snapshot.sources if source.groups is not None]
        rows = [{"source": name, **row._asdict()} for name, groups in known for row in groups.rows]
        return {"groups": rows, "groups_total": sum(groups.all_rows for _, groups in known)}

    def _partitions(self) -> dict[str, Any]:
        now = time.monotonic()
        counts = {source.name: source.counts for source in self.snapshot.sources}
        nothing = Counted()
        rows = []
        for row in self.snapshot.partitions:
            counted = counts[row.source].partitions.get((row.topic, row.partition), nothing)
            records, size = counted.pace(now)
            rows.append(
                {
                    **row._asdict(),
                    "records": counted.records,
                    "records_per_second": round(records, 1),
                    "bytes_per_second": round(size),
                    "lane": counted.lane,
                    "latency_ms": _rounded(counted.latency),
                }
            )
        return {"partitions": rows}


def _groups(figures: GroupFigures) -> dict[str, Any]:
    return {
        "total": figures.groups,
        "ready": figures.ready,
        "states": {state: count for state, count in figures.states.items() if count},
        "read_again": figures.again,
        "missing": figures.missing,
        "last_round": figures.last_round or None,
        "round_seconds": round(figures.round_seconds, 3),
        "trouble": figures.trouble,
    }


def _together(everything: list[Counted]) -> list[int]:
    return [sum(counted.latency_counts[at] for counted in everything) for at in range(CLASSES)]


def _lately(everything: list[Counted]) -> tuple[float, ...] | None:
    return quantiles([sum(counts) for counts in zip(*(counted.lately for counted in everything), strict=True)])


def _rounded(latency: tuple[float, ...] | None) -> list[float] | None:
    return None if latency is None else [round(value, 1) for value in latency]


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
