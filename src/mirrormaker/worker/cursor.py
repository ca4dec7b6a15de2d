"""One source partition on its way through a stream.

The hot path is plain calls: the fetcher hands what it got to `accept`, the outlets keep it for their senders, and
acknowledgements come to `delivered`. Everything slow or rare (resuming, retrying, releasing) is in `run`, a coroutine
that reads top to bottom.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from mirrormaker.control.lease import ZOMBIE_HORIZON
from mirrormaker.errors import (
    OUTAGE,
    BrokerError,
    DataError,
    PartitionError,
    Undeliverable,
    UnsupportedRequest,
    describe,
)
from mirrormaker.kafka_errors import TOPIC_AUTHORIZATION_FAILED
from mirrormaker.model.position import Cut, Place, Position
from mirrormaker.model.progress import Progress, Unit
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.records.transactions import Aborted
from mirrormaker.worker import interrupts
from mirrormaker.worker.bring_in import bring_in
from mirrormaker.worker.buffer import Frame
from mirrormaker.worker.counters import Counters
from mirrormaker.worker.endings import ending_for
from mirrormaker.worker.intake import Fetched, Intake
from mirrormaker.worker.interrupts import AwaitZombies, Flag, Released, ReleaseSignal, Renumber, RestartAt, SplitBatch
from mirrormaker.worker.outlet import Entry, Outlet
from mirrormaker.worker.repack import NOT_THE_SAME
from mirrormaker.worker.resume import restart_outlets, scan_outlets

if TYPE_CHECKING:
    from mirrormaker.worker.stream import Stream

_BACKOFF = (0.05, 0.1, 0.2, 0.5, 1.0)  # seconds between attempts at one partition; a failover takes a broker 0.1 to 2 s
_HOUR_MS = 3_600_000  # records count as old so long before the target's brokers may forget their producer
_SLOW_SCAN = 4.0  # seconds until a scan of the target's log is mentioned in the partition's note
_SLOW_NOTE = "reading the target back takes long: has it enough in-sync replicas?"


class Cursor:
    """One source partition: what is fetched, ready, sent and acknowledged of it. Slots: there may be thousands of cursors."""

    __slots__ = (
        "_clean", "_intake", "_interrupt", "_next_after_zombies", "_release", "_skipping", "bytes", "corrupt", "counters",
        "done", "drained", "expected", "expected_epoch", "fans_out", "fetch_from", "fetch_round", "first_undeliverable",
        "flowing", "given_up", "handler", "handler_round", "high_watermark", "min_fetch_bytes", "note", "outlets",
        "partition", "position", "progress", "records", "refused", "settings_seen", "source_id", "split_size", "split_until",
        "state", "stream", "takes_zstd", "target_ids", "tenancy", "topic", "zombies_until",
    )  # fmt: skip

    def __init__(self, stream: Stream, position: Position, *, clean: bool) -> None:
        """Start at `position`. `clean`: nobody else has requests in flight, and the target holds nothing after it."""
        self.stream = stream
        self.position = position  # as taken over; `current` is how far it has come
        self.topic, self.partition = position.key
        self.tenancy = 0
        self.source_id = bytes.fromhex(position.topic_id)
        # The ids of the target topics that the numbers are meant for. The id of a topic that only a handler writes to is unknown.
        self.target_ids = {self.topic: bytes.fromhex(position.target_topic_id)}
        self.handler = stream.handler
        # True if the records may go to several target partitions.
        self.fans_out = position.by_key or self.handler is not None
        self.progress = Progress(position)
        # The next offset to come out of a fetch, and the next one to ask for: it is ahead by the fetches in flight.
        self.expected, self.expected_epoch = position.offset, position.leader_epoch
        self.fetch_from = self.expected, self.expected_epoch
        self.outlets = [Outlet(self, position.identity, cut) for cut in self._start_cuts()]
        self.flowing = False
        # Fetches of an earlier round are ignored.
        self.fetch_round = 0
        # The same for records that wait for the message handler; these stay valid when the source's leader changes.
        self.handler_round = 0
        self.high_watermark = -1
        self.min_fetch_bytes = 0  # more than usual if a broker has cut a message short
        self.records = self.bytes = 0
        self.counters = Counters()
        self.corrupt = -1, 0  # the source offset of the last corrupt answer, and how often it came
        self.state, self.note = "waiting", ""
        # After the target refused a batch: up to this offset units have so few records, to find the bad one.
        self.split_size, self.split_until = 0, -1
        self.refused = -1, ""  # the source offset after the last such batch, and the target's error
        # The copies of a record that is given up: the new position must not count those that the target holds.
        self.given_up: dict[Place, int] = {}
        self.takes_zstd = True
        self.settings_seen = 0  # as `StreamMetadata.settings_changes` was when the cursor last started
        # Until then, requests of a former sender may still be appended. 0 once the logs were read after that time.
        self.zombies_until = 0.0 if clean else time.monotonic() + ZOMBIE_HORIZON
        self._next_after_zombies: list[int] | None = None  # on each outlet, once that time was over
        self.drained = Flag()
        # The result is None if the partition was released, else the error that stopped it.
        self.done = asyncio.get_running_loop().create_future()
        self._intake = Intake(self, stream.work, stream.buffer)
        self._clean = clean
        self._interrupt: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._release = ReleaseSignal()
        self._skipping: tuple[float, int] | None = None  # since when, and the source offset before which all must come
        # Of several undeliverable records the first one at the source, which must be given up first.
        self.first_undeliverable: Undeliverable | None = None

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def offset(self) -> int:
        """Return the source offset up to which everything is acknowledged."""
        return self.progress.offset

    @property
    def current(self) -> Position:
        """Return the position up to which everything is acknowledged, and proved to be there if it was skipped."""
        return self.position.advanced(*self.progress.proved)

    @property
    def is_clean(self) -> bool:
        """Return True if the closing position covers all that the target holds or may still get from us."""
        return self._clean or (not self.zombies_until and all(outlet.is_certain for outlet in self.outlets))

    @property
    def closing(self) -> Position:
        """Return the current position together with the records after its offset that the target holds already."""
        proved = self.current
        cuts = [outlet.closing_cut(proved.cut(outlet.partition, outlet.place[0])) for outlet in self.outlets]
        cuts = [cut._replace(ahead=max(0, cut.ahead - self.given_up.get(cut.place, 0))) for cut in cuts]
        return proved.advanced(proved.offset, proved.leader_epoch, cuts)

    @property
    def is_skipping(self) -> bool:
        """Return True while a target partition holds records that have not come from the source again yet."""
        return any(outlet.skip for outlet in self.outlets)

    @property
    def is_unproved(self) -> bool:
        """Return True while it is not proved what the target holds: see `check_skipping` and `must_read_again`."""
        return self.is_skipping or self.zombies_until > 0

    def _start_cuts(self) -> list[Cut]:
        if not self.fans_out:
            return [self.position.cut(self.partition)]
        return sorted(self.position.cuts, key=lambda cut: cut.place)

    def cut_of(self, outlet: Outlet) -> Cut:
        """Return the cut up to which everything is acknowledged on an outlet's target partition."""
        return self.progress.cuts.get(outlet.place) or self.position.cut(outlet.partition, outlet.place[0])

    def outlets_of(self, topic: str) -> list[Outlet]:
        """Return a topic's outlets by partition; none if the position has no numbers for the topic."""
        if not self.fans_out:
            return self.outlets
        return [outlet for outlet in self.outlets if outlet.place[0] == topic]

    # -- the hot path

    async def accept(self, fetched: Fetched, aborted: Aborted, frame: Frame) -> None:
        """Take the batches of a fetch, and offer what becomes of them to the senders."""
        await self._intake.accept(fetched, aborted, frame)

    def expiry_cutoff_ms(self) -> float:
        """Return the timestamp before which records are so old that a broker may forget which producer wrote them."""
        return time.time() * 1000 - (self.stream.work.identity_expiration_ms - _HOUR_MS)

    def doubt_leaders(self, cutoff_ms: float) -> None:
        """Expect that leaders have forgotten our identity where the last records are older than the timestamp."""
        for outlet in self.outlets:
            if outlet.last_timestamp < cutoff_ms and not outlet.sent:
                outlet.channel.leader_knows_us = False

    def check_skipping(self, patience: float) -> None:
        """Ask for a new identity if the source lacks records that the target holds: they came from below its high watermark."""
        if not (self.flowing and self.is_skipping):
            self._skipping = None
            return
        now = time.monotonic()
        since, until = self._skipping or (now, 0)
        if now - since <= patience:  # a new leader's high watermark may lag
            self._skipping = since, max(until, self.high_watermark)
        # Not `expected`: records that wait for the message handler may be the ones.
        elif self.high_watermark >= 0 and self.progress.end >= until:
            self.interrupt(Renumber(RestartAt.SAME_PLACE, NOT_THE_SAME))

    def offer(self) -> None:
        """Tell the senders which outlets have batches ready."""
        for outlet in self.outlets:
            if outlet.ready and outlet.sender is not None:
                outlet.sender.offer(outlet)

    def delivered(self, entry: Entry, cut: Cut) -> None:
        """Count an acknowledged batch; `cut` lies right after it."""
        self.progress.acknowledged(entry.unit, cut)
        self.records += entry.count
        self.bytes += entry.size
        self.counters.delivered(entry)

    def requests_lost(self) -> None:
        """Make old records wait until lost requests of our own are appended or dropped."""
        self.zombies_until, self._next_after_zombies = time.monotonic() + ZOMBIE_HORIZON, None

    def must_read_again(self, patience: float) -> bool:
        """Return True if the logs must be read again, after requests of a former sender were appended or dropped.

        An acknowledgement of a batch that was sent after that makes it needless: the leader takes numbers only in order.
        """
        if not self.flowing or not self.zombies_until or time.monotonic() < self.zombies_until:
            return False
        if self._next_after_zombies is None:
            self._next_after_zombies = [outlet.channel.next for outlet in self.outlets]
            return False
        if all(o.channel.has_passed(n) for o, n in zip(self.outlets, self._next_after_zombies, strict=True)):
            self.zombies_until = 0.0
            return False
        return time.monotonic() > self.zombies_until + patience

    def interrupt(self, error: BaseException) -> None:
        """Leave the hot path for this reason; if there are several reasons, the first one counts."""
        self.flowing = False
        self.fetch_round += 1
        self.handler_round += 1
        first = self.first_undeliverable
        if isinstance(error, Undeliverable) and (first is None or error.offset < first.offset):
            self.first_undeliverable = error
        if not self._interrupt.done():
            self._interrupt.set_exception(error)
            self._interrupt.exception()

    def go_back(self) -> None:
        """Fetch again all that is not acknowledged; answers to earlier fetches no longer count."""
        self.fetch_round += 1
        self.handler_round += 1
        self.first_undeliverable = None
        self.progress.units.clear()
        self.expected, self.expected_epoch = self.fetch_from = self.progress.offset, self.progress.epoch
        self.progress.doubt(self.is_skipping)
        self._skipping = None

    @property
    def is_released(self) -> bool:
        """Return True if the driver wants the partition back."""
        return self._release.is_set

    def release(self) -> None:
        """Finish what was begun, and end with `done`."""
        self._release.set()
        self.interrupt(Released())

    # -- the slow path

    async def run(self) -> None:
        """Mirror until the driver wants the partition back, or it cannot go on; then set `done`."""
        try:
            await self._run()
        except Exception as error:  # a bug of ours must be reported, not end in silence
            traceback.print_exc()
            await self._drain()
            self.stop(self.stop_error(self.offset, f"unexpected {type(error).__name__}: {error}"))

    async def _run(self) -> None:
        failures = 0
        while True:
            started = self.offset
            try:
                if self.is_released:
                    raise Released
                self.stream.check_topics(self)
                self.settings_seen = self.stream.metadata.settings_changes
                await self._resume()
                self.go_back()
                await self._flow()
            except Released:
                await self._drain()
                self.state = "released"
                self.done.set_result(None)
                return
            except (DataError, PartitionError, Renumber) as error:
                await self._drain()
                if self.is_released:
                    self.done.set_result(None)
                    return
                if await self._ends_with(error):
                    return
                await self._release.pause(_BACKOFF[-1])
            except SplitBatch as refusal:
                await self._drain()
                self.refused = refusal.end, str(refusal)
                # Other records may be refused in every round. One that was refused alone must not wait for them.
                if self.first_undeliverable is not None and await self._ends_with(self.first_undeliverable):
                    return
            except AwaitZombies:
                await self._drain()
                await self._wait_for_zombies()
            except (interrupts.LookAgain, UnsupportedRequest, *OUTAGE) as error:
                await self._drain()
                if isinstance(error, BrokerError) and error.code == TOPIC_AUTHORIZATION_FAILED:
                    reason = denied(self.stream.target.endpoint, "Read", "topic", error.detail or self.topic)
                    self.stop(self.stop_error(self.offset, reason))
                    return
                failures = 0 if self.offset > started else failures + 1
                self.counters.retries += 1
                self.state, self.note = "waiting", describe(error)
                await self._release.pause(_BACKOFF[min(failures, len(_BACKOFF) - 1)])
                topics = {outlet.topic for outlet in self.outlets}
                await self.unless_released(self.stream.metadata.refresh_target(topics))

    async def _ends_with(self, error: Exception) -> bool:
        """Stop because of the error and return True, unless the cursor has to try again before that."""
        with contextlib.suppress(Released):
            ending = await self._release.unless_set(ending_for(self, error))
            if isinstance(ending, Renumber) and self.offset < self.refused[0]:
                ending.reason += f"; the target refuses a batch there: {self.refused[1]}"
            if ending is not None:
                self.stop(ending)
            return ending is not None
        return False

    async def make_certain(self) -> None:
        """Read the target's logs, once no request of a former sender can be appended any more."""
        if self.zombies_until:
            await self._wait_for_zombies()
        await self._resume()

    async def _wait_for_zombies(self) -> None:
        """Wait until a former sender's requests are appended or dropped; then the target's logs must be read again."""
        self.state, self.note = "waiting", "until requests of a former sender are appended or dropped"
        await self._release.pause(max(0.0, self.zombies_until - time.monotonic()))
        for outlet in self.outlets:
            outlet.channel.stop_until_log_read()
        if not self.is_released:
            self.zombies_until, self._next_after_zombies = 0.0, None

    async def _resume(self) -> None:
        """Find out what each target partition holds after the position."""
        clean, self._clean = self._clean, False
        unknown = restart_outlets(self.outlets, self.position.identity, self.cut_of, clean=clean)
        ahead = [outlet for outlet in self.outlets if outlet.skip]
        if not (unknown or ahead):
            return
        if self.handler is not None and not self.handler.is_deterministic:
            reason = "its message handler is not deterministic, so some records may be there twice"
            raise Renumber(RestartAt.SAME_PLACE, reason)
        self.state = "resuming"
        timer = asyncio.get_running_loop().call_later(_SLOW_SCAN, setattr, self, "note", _SLOW_NOTE)
        try:
            await self._release.unless_set(scan_outlets(self.stream.target, unknown, ahead, self.cut_of))
        finally:
            timer.cancel()
        self.counters.resumes += 1

    def stop(self, error: Exception) -> None:
        """End with this error, without having been asked to release the partition."""
        self.state, self.note = "stopped", str(error)
        self.done.set_result(error)

    async def _flow(self) -> None:
        """Stay on the hot path until an interrupt; raise its reason."""
        self._interrupt = asyncio.get_running_loop().create_future()
        self.takes_zstd = await self._release.unless_set(self.stream.metadata.target_takes_zstd())
        # An interrupt that came while the logs were read is forgotten: a topic may have been created again meanwhile.
        self.stream.check_topics(self)
        for outlet in self.outlets:
            if not any(outlet.target_id):
                self.target_ids[outlet.topic] = self.stream.metadata.target_id(outlet.topic)
            outlet.sender = self.stream.sender_of(outlet)
        if self.is_released:
            raise Released
        self.flowing, self.state, self.note = True, "flowing", ""
        self.stream.fetch(self)
        await self._interrupt

    async def _drain(self) -> None:
        """Send nothing new, and wait for the answers to all batches in flight; what is only fetched is dropped."""
        self.flowing = False
        self.fetch_round += 1
        self.stream.forget(self)
        reason = self._interrupt.exception() if self._interrupt.done() else None
        keep: set[Unit] = set()
        if isinstance(reason, Released):
            keep = self.progress.begun_units()
        elif isinstance(reason, PartitionError | Renumber):
            # At an error of one record its copies are finished, and all units before it.
            keep = self.progress.units_until(reason.unit if isinstance(reason, Undeliverable) else None)
        await bring_in(self.outlets, keep, self._release, self.drained)

    async def unless_released(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that may take long; return as soon as the driver wants the partition back."""
        with contextlib.suppress(Released):
            await self._release.unless_set(work)

    def stop_error(self, offset: int, reason: str, *, final: bool = False) -> PartitionError:
        """Return the error that stops the partition at a source offset."""
        return PartitionError(f"{self} stops at source offset {offset}: {reason}", final=final)
