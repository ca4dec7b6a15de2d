"""One source partition that spreads over several target partitions, through hundreds of short histories of trouble.

Everything from `accept` to `Sender` is the real thing; only the brokers are played: their logs take a batch as real
ones do (the next number of a known identity, or one of the last five again), and around them requests are refused,
appended but not confirmed, lost with their connection, and delivered after their sender is dead. Streams crash and are
replaced at a position that was reported some time before. In the end every record is there once, in its place, in
order.

In a fifth of the histories the target topic is deleted and created again, with requests on their way to it. In the end
the new logs hold each record at most once and in order, and all records that the deleted logs do not hold.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from kafka.partitioner.default import murmur2
from kafka.protocol.producer import ProduceRequest

from mirrormaker.errors import ConnectionLost, Undeliverable
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.wire.protocol.produce import Appended
from mirrormaker.wire.records import columns as columns_module
from mirrormaker.wire.records.batch import SEQUENCES, Batch, Batches, split
from mirrormaker.wire.records.columns import unpack
from mirrormaker.wire.transport.connection import Answered, Part
from mirrormaker.worker import cursor as cursor_module
from mirrormaker.worker import intake as intake_module
from mirrormaker.worker import stream_metadata
from mirrormaker.worker.buffer import Frame
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.interrupts import Renumber, RestartAt
from mirrormaker.worker.stream import Stream
from tests.support.answers import ProduceAnswer, encode_produce_answer
from tests.support.batches import Record, write_batch
from tests.support.scripted_target import ScriptedLog, ScriptedTarget
from tests.support.worker_stage import TASK

_make_certain = Cursor.make_certain
US = Identity(7, 0)
VERSION = 12
HISTORIES = 120
# Histories in which records that were refused together never ended, a topic was created again while its end was awaited, and
# records that were ahead in a deleted topic counted in the new one.
NOTABLE = (2185, 2585, 2121)
NOW = int(time.time() * 1000)
NOT_LEADER, TIMED_OUT, OUT_OF_ORDER, INVALID = 6, 7, 45, 87
BAD = b"bad"  # no broker takes a record with this in it


class Log(ScriptedLog):
    """One target partition, at its leader."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[int, Batch]] = []  # base offset, and the batch as it came

    def take(self, data: memoryview) -> tuple[int, int]:
        """Append a batch as a broker does; return the error code and the base offset."""
        batch = Batch(memoryview(bytearray(data)))
        batch.check()
        mine = [(base, known) for base, known in self.taken if known.producer_id == batch.producer_id]
        for base, known in mine[-5:]:
            if (known.base_sequence, known.count) == (batch.base_sequence, batch.count):
                return 0, base
        if mine:
            last = mine[-1][1]
            if batch.base_sequence != (last.base_sequence + last.count) % SEQUENCES:
                return OUT_OF_ORDER, -1
        records = unpack(Batches.of(batch))
        if any(BAD in records.tail(i) for i in range(len(records))):
            return INVALID, -1
        base = self.add(batch.data)
        self.taken.append((base, batch))
        assert self.producers is not None
        self.producers[Identity(batch.producer_id, batch.producer_epoch)] = batch.last_sequence
        return 0, base

    def values(self) -> list[int]:
        """Return the numbers of the records in the log."""
        return [int(t) - NOW for _, batch in self.taken for t in unpack(Batches.of(batch)).timestamps]


class World:
    """The source's log, the target's logs, and what is on its way between them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.logs = [Log() for _ in range(chance.randint(2, 5))]
        self.records: list[Record] = []
        self.batches: list[bytes] = []
        self.starts: list[int] = []
        self.on_the_way: list[tuple[int, memoryview]] = []  # of the dead
        self.bad: set[int] = set()
        self.seen: Counter[str] = Counter()
        self.numbered_from = 0  # where the present identity begins
        self.incarnation = 1  # of the target topic
        self.is_recreated = chance.random() < 0.2
        self.is_certain = False  # True while the driver is about to give a new identity
        self.deleted: list[list[int]] = [[] for _ in self.logs]  # records of deleted logs
        for _ in range(chance.randint(3, 30)):
            rows: list[Record] = []
            for _ in range(chance.choice((1, 1, 2, 3, 20))):
                number = len(self.records) + len(rows)
                key = None if chance.random() < 0.2 else b"key-%d" % chance.randrange(20)
                if chance.random() < 0.02:
                    self.bad.add(number)
                rows.append(Record(NOW + number, key, (BAD if number in self.bad else b"value-") + b"%d" % number))
            self.starts.append(len(self.records))
            codec = chance.choice((0, 0, 3))
            self.batches.append(write_batch(rows, base_offset=len(self.records), codec=codec).data)
            self.records += rows

    def fetched(self, offset: int) -> list[Batches | memoryview]:
        """What a broker gives from here on: it may begin before the wanted offset, and end anywhere."""
        first = max(i for i, start in enumerate(self.starts) if start <= offset)
        few = self.batches[first : first + self.chance.choice((1, 3, 12))]
        return list(split(memoryview(bytearray(b"".join(few)))))

    def start(self) -> Position:
        cuts = tuple(Cut(p, 0, 0) for p in range(len(self.logs)))
        return Position("t", 3, 0, 0, "", US, "target", self.topic_id.hex(), len(self.logs), cuts, by_key=True)

    @property
    def topic_id(self) -> bytes:
        return bytes([self.incarnation]) * 16

    def create_again(self) -> None:
        """Delete the target topic and create it again: requests on their way find the new one under its name."""
        self.seen["created again"] += 1
        self.incarnation += 1
        for partition, log in enumerate(self.logs):
            self.deleted[partition] += log.values()
        self.logs = [Log() for _ in self.logs]

    def check(self) -> None:
        count = len(self.logs)
        wanted: dict[int, list[int]] = defaultdict(list)
        for number, record in enumerate(self.records):
            if record.key is not None and number not in self.bad:
                wanted[(murmur2(record.key) & 0x7FFFFFFF) % count].append(number)
        keyless: list[int] = []
        for partition, (log, deleted) in enumerate(zip(self.logs, self.deleted, strict=True)):
            numbers = log.values()
            if not self.seen["sent again"]:
                assert numbers == sorted(set(numbers)), f"partition {partition} holds {numbers}"
            found = sorted({*numbers, *deleted})
            assert [n for n in found if self.records[n].key is not None] == wanted[partition]
            keyless += [n for n in found if self.records[n].key is None]
        assert sorted(keyless) == [n for n, r in enumerate(self.records) if r.key is None and n not in self.bad]


class Wire:
    """A connection to one broker; requests wait until the world looks at them."""

    def __init__(self) -> None:
        self.is_open = self.can_write = True
        self.error: Exception | None = None
        self.versions = {0: (0, VERSION)}
        self.on_drain: Callable[[], None] | None = None
        self.waiting: list[tuple[list[tuple[int, memoryview]], Answered]] = []

    def send(self, key: int, version: int, flexible: bool, parts: list[Part], answered: Answered) -> None:
        request = ProduceRequest.decode(b"".join(bytes(part) for part in parts), version=VERSION)
        (topic,) = request.topic_data
        rows = [(p.index, memoryview(bytes(p.records))) for p in topic.partition_data]
        assert len({index for index, _ in rows}) == len(rows), "two batches for one partition in one request"
        self.waiting.append((rows, answered))

    def close(self, *, abort: bool = False) -> None:
        self.is_open = False


class Actor:
    """A stream with one cursor, as long as it lives."""

    def __init__(self, world: World, position: Position, monkeypatch: pytest.MonkeyPatch, *, clean: bool) -> None:
        self.world = world
        self.stream = stream = Stream(
            replace(
                TASK,
                max_request_bytes=world.chance.choice((300, 1 << 20)),
                batch_bytes=world.chance.choice((200, 1 << 19)),
                codec=world.chance.choice((None, 0, 3)),
            ),
            0,
            0,
        )
        self.wires: dict[int, Wire] = {}
        stream.target.brokers = {1: ("a", 1), 2: ("b", 1)}
        scripted = ScriptedTarget({})

        async def connection(node: int, purpose: str = "control") -> Any:
            scripted.logs = {("t", p): log for p, log in enumerate(world.logs)}
            if purpose == "scan":
                return await scripted.connection(node)
            if node not in self.wires or not self.wires[node].is_open:
                self.wires[node] = Wire()
            return self.wires[node]

        async def refresh(topics: object = None) -> None:
            partitions = {p: Partition(1 + p % 2, 0, 1) for p in range(len(world.logs))}
            stream.target.topics = {"t": Topic("t", world.topic_id, False, partitions)}

        async def ask(request: Any, node: int | None = None) -> Any:
            await asyncio.sleep(0)
            scripted.logs = {("t", p): log for p, log in enumerate(world.logs)}
            return await scripted.ask(request, node)

        asyncio.ensure_future(refresh()).add_done_callback(lambda _: None)
        monkeypatch.setattr(stream.target, "connection", connection)
        monkeypatch.setattr(stream.target, "refresh", refresh)
        monkeypatch.setattr(stream.target, "ask", ask)
        monkeypatch.setattr(stream, "fetch", lambda cursor: None)
        self.cursor = Cursor(stream, position, clean=clean)
        stream.cursors[position.key] = self.cursor
        self.run = asyncio.create_task(self.cursor.run())
        self.delivery: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.delivery.set_result(None)

    def fetch(self) -> None:
        """Deliver a fetch, as a fetcher does: not before the last one is delivered."""
        cursor = self.cursor
        if cursor.flowing and cursor.expected < len(self.world.records) and self.delivery.done():
            fetched = self.world.fetched(cursor.expected)
            self.delivery = asyncio.create_task(self.deliver(fetched, cursor.fetch_round))

    async def deliver(self, fetched: list[Batches | memoryview], fetch_round: int) -> None:
        frame = Frame(self.stream.buffer, 1)
        try:
            if self.cursor.flowing and self.cursor.fetch_round == fetch_round:
                await self.cursor.accept(fetched, [], frame)
        finally:
            frame.drop(0)

    def answer(self, *, smoothly: bool) -> None:
        chance = self.world.chance
        wires = [wire for wire in self.wires.values() if wire.waiting]
        if not wires:
            return
        wire = chance.choice(wires)
        rows, answered = wire.waiting.pop(0)
        results = []
        for partition, data in rows:
            fate = 1.0 if smoothly else chance.random()
            if fate < 0.05:
                results.append(Appended("", partition, NOT_LEADER, -1, None))
                continue
            error, base = self.world.logs[partition].take(data)
            results.append(Appended("", partition, TIMED_OUT if fate < 0.08 and not error else error, base, None))
        body = encode_produce_answer(VERSION, ProduceAnswer([("t", bytes(16), results)], [], None, []))
        answered(memoryview(body), None)

    def lose_a_connection(self) -> None:
        for wire in self.world.chance.sample(sorted(self.wires), 1) if self.wires else ():
            lost = self.wires.pop(wire)
            lost.is_open = False
            waiting, lost.waiting = lost.waiting, []
            heard = self.world.chance.randint(0, len(waiting))  # the broker got these; nobody hears what it says
            for rows, _ in waiting[:heard]:
                for partition, data in rows:
                    self.world.logs[partition].take(data)
            for _, answered in waiting:
                answered(None, ConnectionLost("gone"))

    async def hand_over(self, monkeypatch: pytest.MonkeyPatch) -> Actor:
        """Release the partition; the successor begins at the closing position."""
        self.cursor.release()
        while not (self.cursor.done.done() and self.delivery.done()):
            self.answer(smoothly=self.world.chance.random() < 0.9)
            await asyncio.sleep(0)
        assert self.stream.buffer.bytes == 0
        closing = Position.from_json(self.cursor.closing.to_json())
        assert consistent(self.world, closing), f"a successor of {closing} gives other numbers"
        self.world.seen["even" if not any(cut.ahead for cut in closing.cuts) else "ahead"] += 1
        return Actor(self.world, closing, monkeypatch, clean=self.cursor.is_clean)

    def go_on(self, monkeypatch: pytest.MonkeyPatch) -> Actor:
        """What the driver does about a cursor that has ended: on under new numbers, behind a record that no broker takes."""
        world, why, old = self.world, self.cursor.done.result(), self.cursor.closing
        offset, keep_ahead = old.offset, True
        if isinstance(why, Undeliverable):
            assert why.offset in world.bad
            world.seen["given up"] += 1
            offset = why.offset + 1
        else:
            assert isinstance(why, Renumber), why
            assert world.incarnation > 1, why
            keep_ahead = why.where == RestartAt.FORGOTTEN
            world.seen["counted in a new log" if keep_ahead else "sent again"] += 1
        cuts = tuple(
            Cut(c.partition, 0, c.offset, "", c.ahead)
            if c.ahead and keep_ahead
            else Cut(c.partition, 0, world.logs[c.partition].end)
            for c in old.cuts
        )
        world.seen["others ahead"] += any(c.ahead for c in cuts)
        world.numbered_from, world.is_certain = offset, False
        position = replace(
            old, offset=offset, identity=Identity(old.identity.producer_id + 1, 0), cuts=cuts, leader_epoch=-1,
            target_topic_id=world.topic_id.hex(),
        )  # fmt: skip
        return Actor(world, position, monkeypatch, clean=True)

    def crash(self) -> None:
        self.run.cancel()
        self.delivery.cancel()
        for wire in self.wires.values():
            self.world.on_the_way += [row for rows, _ in wire.waiting for row in rows]


def consistent(world: World, position: Position) -> bool:
    """Do offset and numbers belong together, for every target partition?"""
    counts = [0] * len(world.logs)
    numbered = world.records[world.numbered_from : position.offset]
    for record in numbered:
        if record.key is not None:
            counts[(murmur2(record.key) & 0x7FFFFFFF) % len(counts)] += 1
    keyless = sum(record.key is None for record in numbered)
    numbers = [position.cut(p).sequence for p in range(len(counts))]
    numbers = [n - position.cut(p).ahead for p, n in enumerate(numbers)]
    if world.seen["others ahead"]:
        return True  # numbers and what was ahead when they were given cannot be told apart
    return sum(numbers) == sum(counts) + keyless and all(n >= c for n, c in zip(numbers, counts, strict=True))


async def history(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = world.chance

    async def make_certain(cursor: Cursor) -> None:
        """By the time that the logs are read, requests of the dead are appended, or never will be."""
        while world.on_the_way:
            partition, data = world.on_the_way.pop(0)
            if chance.random() < 0.5:
                world.logs[partition].take(data)
        world.is_certain = True  # the driver goes on in these logs
        try:
            await _make_certain(cursor)
        except BaseException:
            world.is_certain = False
            raise

    monkeypatch.setattr(Cursor, "make_certain", make_certain)
    # In some histories a fetch is processed in many small steps, and everything else may happen between two of them.
    monkeypatch.setattr(intake_module, "_MAX_TURN", chance.choice((-1.0, 1000.0)))
    monkeypatch.setattr(intake_module, "_PIECE", chance.choice((1, 100, 4 << 20)))
    monkeypatch.setattr(columns_module, "MOST_RECORDS", chance.choice((1, 7, 1 << 16)))
    actor = Actor(world, world.start(), monkeypatch, clean=True)
    reported = world.start()
    for _ in range(150):
        what = chance.random()
        if what < 0.35:
            actor.fetch()
        elif what < 0.8:
            actor.answer(smoothly=False)
        elif what < 0.83:
            actor.lose_a_connection()
        elif what < 0.86:
            reported = actor.cursor.current
            assert consistent(world, reported), f"a successor of {reported} gives other numbers"
        elif what < 0.88:
            actor.crash()
            await asyncio.gather(actor.run, return_exceptions=True)
            actor = Actor(world, replace(reported), monkeypatch, clean=False)
        elif what < 0.90:
            actor = await actor.hand_over(monkeypatch)
            reported = actor.cursor.current
        elif what < 0.92 and world.on_the_way:
            partition, data = world.on_the_way.pop(0)
            world.logs[partition].take(data)
        elif what < 0.94 and world.is_recreated and world.incarnation < 4 and not world.is_certain:
            world.create_again()
        for _ in range(chance.choice((0, 1, 5))):
            await asyncio.sleep(0)
        if actor.cursor.done.done():
            actor = actor.go_on(monkeypatch)
            reported = actor.cursor.current
    for _ in range(20_000):
        if actor.cursor.offset == len(world.records):
            break
        if actor.cursor.done.done():
            actor = actor.go_on(monkeypatch)
        actor.fetch()
        actor.answer(smoothly=True)
        await asyncio.sleep(0)
    else:
        raise AssertionError(f"{actor.cursor} is {actor.cursor.state} at {actor.cursor.current}: {actor.cursor.note}")
    assert consistent(world, actor.cursor.current)
    assert world.seen["given up"] == len(world.bad)
    await asyncio.gather(actor.delivery)
    assert actor.stream.buffer.bytes == 0, "memory that nobody gives back"
    actor.run.cancel()
    await asyncio.gather(actor.run, return_exceptions=True)
    world.check()


@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, HISTORIES, 20)] + [NOTABLE])
def test_each_record_arrives_once_in_its_place_and_in_order(
    seeds: Iterable[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_module, "_BACKOFF", (0.0,))
    monkeypatch.setattr(cursor_module, "ZOMBIE_HORIZON", 0.0)
    monkeypatch.setattr(stream_metadata, "_REFRESH_PAUSE", 0.0)
    seen: Counter[str] = Counter()
    for seed in seeds:
        world = World(random.Random(seed))
        try:
            asyncio.run(history(world, monkeypatch))
            seen += world.seen
        except BaseException as error:
            print(f"history {seed}: {error!r}")
            raise
    assert seen["even"], "no partition was let go in order"
