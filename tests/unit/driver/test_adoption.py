"""Partitions without a committed offset whose target holds records: going on, starting anew, or refusing to guess."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mirrormaker.driver import adoption as adoption_module
from mirrormaker.driver.adoption import Adoption
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.start_positions import StartPositions
from mirrormaker.errors import PartitionError, Unanswered
from mirrormaker.events.event import Event
from mirrormaker.events.partition_events import Adopted, NewGroupOnFullTarget
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.settings.clients import source_settings
from mirrormaker.settings.properties import load
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.records.columns import unpack
from mirrormaker.wire.records.murmur2 import by_key
from tests.support.batches import NOW, Record, Written, join, write_batch
from tests.support.scripted_logs import Logs, ScriptedLogs

KEY = ("orders", 0)
RECORDS = [Record(NOW + n, b"key-%d" % (n % 7), b"value-%d" % n) for n in range(400)]
OTHERS = [Record(NOW + n, b"key-%d" % (n % 7), b"other-%d" % n) for n in range(400)]
COMMAND = (
    "kafka-consumer-groups --bootstrap-server source:9092 --group mirror --topic orders:{} --reset-offsets --to-offset N"
    " --execute"
)


def log_of(records: Sequence[Record], producer_id: int = -1, first: int = 0) -> list[Written]:
    """Return batches of 10 records of one producer."""
    return [
        write_batch(
            records[at : at + 10], base_offset=first + at, producer_id=producer_id, producer_epoch=0, base_sequence=at
        )
        for at in range(0, len(records), 10)
    ]


def mirrored(records: Sequence[Record], first: int = 0) -> list[Written]:
    return log_of(records, producer_id=9, first=first)


class Office:
    """An adoption between two clusters with these logs."""

    def __init__(
        self, source: Logs, target: Logs, partition_by: str | None = None, handler: Any = None, **settings: str
    ) -> None:
        self.source, self.target = ScriptedLogs(source, "source"), ScriptedLogs(target, "target")
        properties = {"bootstrap.servers": "source:9092", "group.id": "mirror"}
        self.settings = source_settings(load({**properties, **settings}, "source"))
        routing = Routing(self.source, self.target, "target", partition_by, handler, self.settings.read_committed)
        self.events: list[Event] = []
        self.adoption = Adoption(self.source, self.target, self.settings, routing, self.events.append)
        self.starts = StartPositions(self.source, self.target, self.settings, routing, False, self.events.append)

    def find(
        self, entries: Mapping[TopicPartition, Position | int] | None = None, first_start: bool = True
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Exception]]:
        """Return where the source's partitions start, and the errors of those that do not."""
        keys = list(self.source.logs)
        starts = asyncio.run(self.starts.find(keys, entries or {}, first_start))
        found = [*starts.started, *starts.continued]
        assert all(cut.sequence == 0 for position in starts.started for cut in position.cuts)
        return {position.key: position.offset for position in found}, starts.failed

    @property
    def requests(self) -> int:
        return self.source.fetches + self.target.fetches


# -- going on


def test_a_partition_goes_on_after_the_last_record_that_the_target_holds() -> None:
    office = Office({KEY: log_of(RECORDS)}, {KEY: mirrored(RECORDS[:250])})
    assert office.find() == ({KEY: 250}, {})
    (event,) = office.events
    assert event.text == (
        "group mirror has no committed offset for orders-0; the target holds its records up to source offset 249: going on"
        " from there"
    )


def test_records_of_another_writer_at_the_end_do_not_matter() -> None:
    target = [*mirrored(RECORDS[:250]), *log_of(OTHERS[:60], 8, 250), *log_of(OTHERS[60:90], -1, 310)]
    office = Office({KEY: log_of(RECORDS)}, {KEY: target})
    assert office.find() == ({KEY: 250}, {})


def test_the_newest_of_several_producer_ids_counts() -> None:
    target = [*mirrored(RECORDS[:100]), *log_of(RECORDS[100:130], 12, 100)]
    assert Office({KEY: log_of(RECORDS)}, {KEY: target}).find() == ({KEY: 130}, {})


def test_a_mirror_that_has_caught_up_goes_on_at_the_end_of_the_source() -> None:
    assert Office({KEY: log_of(RECORDS)}, {KEY: mirrored(RECORDS)}).find() == ({KEY: 400}, {})


def test_auto_offset_reset_does_not_matter_where_the_target_tells_the_place() -> None:
    office = Office({KEY: log_of(RECORDS)}, {KEY: mirrored(RECORDS[:250])}, **{"auto.offset.reset": "latest"})
    assert office.find() == ({KEY: 250}, {})


def test_a_partition_whose_entry_alone_is_lost_goes_on_too() -> None:
    office = Office({KEY: log_of(RECORDS)}, {KEY: mirrored(RECORDS[:250])})
    assert office.find(first_start=False) == ({KEY: 250}, {})


def test_the_source_has_lost_its_first_records_meanwhile() -> None:
    office = Office({KEY: log_of(RECORDS)[15:]}, {KEY: mirrored(RECORDS[:250])})
    assert office.find() == ({KEY: 250}, {})


def stamped(records: Sequence[Record], append_time: int) -> list[Written]:
    """Return what a mirror has written to a topic with message.timestamp.type=LogAppendTime."""
    return [write_batch(records, producer_id=9, producer_epoch=0, base_sequence=0, append_time=append_time)]


def test_a_target_with_times_of_its_own_is_compared_by_content() -> None:
    office = Office({KEY: log_of(RECORDS)}, {KEY: stamped(RECORDS[:250], NOW + 7_200_000)})
    assert office.find() == ({KEY: 250}, {})


def test_the_same_records_written_again_after_the_mirror_has_stopped_were_not_mirrored() -> None:
    # Every day the source gets the same records. Retention has removed those that were mirrored.
    days = [row._replace(timestamp=NOW + 86_400_000) for row in RECORDS[:250]]
    office = Office({KEY: log_of(days, first=250)}, {KEY: stamped(RECORDS[:250], NOW + 7_200_000)})
    assert office.find() == ({KEY: 250}, {})
    assert office.events == [NewGroupOnFullTarget("mirror", 1)]


def test_many_partitions_of_a_topic_are_one_line() -> None:
    keys = [("orders", number) for number in range(5)]
    office = Office(dict.fromkeys(keys, log_of(RECORDS)), dict.fromkeys(keys, mirrored(RECORDS[:250])))
    assert office.find() == (dict.fromkeys(keys, 250), {})
    (event,) = office.events
    assert event.text == (
        "group mirror has no committed offsets for 5 partitions of orders; the target holds their records (source offsets:"
        " orders-0 up to 249, orders-1 up to 249, orders-2 up to 249 and 2 more): going on from there"
    )


# -- starting anew


def test_records_of_other_writers_lead_to_a_start_as_always() -> None:
    office = Office({KEY: log_of(RECORDS)}, {KEY: [*log_of(OTHERS[:200], 8), *log_of(OTHERS[200:], -1, 200)]})
    assert office.find() == ({KEY: 0}, {})
    assert office.events == [NewGroupOnFullTarget("mirror", 1)]
    assert office.find(first_start=False) == ({KEY: 0}, {})
    assert len(office.events) == 1


def test_the_records_of_another_source_lead_to_a_start_as_always() -> None:
    # Both sources have written at the same times, and the other one was mirrored already.
    office = Office({KEY: log_of(RECORDS)}, {KEY: mirrored(OTHERS)})
    assert office.find() == ({KEY: 0}, {})


def test_a_source_that_has_lost_everything_that_was_mirrored_starts_at_its_first_record() -> None:
    office = Office({KEY: log_of(RECORDS)[30:]}, {KEY: mirrored(RECORDS[:250])})
    assert office.find() == ({KEY: 300}, {})


def test_an_empty_target_costs_nothing() -> None:
    office = Office({KEY: log_of(RECORDS)}, {KEY: []})
    assert office.find() == ({KEY: 0}, {})
    assert office.requests == 0 and office.events == []
    # Where the source starts and where the target ends, which every start asks for.
    assert office.source.offset_requests == 1 and office.target.offset_requests == 1


def test_an_empty_source_costs_no_fetch() -> None:
    office = Office({KEY: []}, {KEY: mirrored(RECORDS)})
    assert office.find() == ({KEY: 0}, {})
    assert office.requests == 0 and office.events == []


@pytest.mark.parametrize("offset", [0, 130])
def test_an_offset_that_somebody_has_committed_counts_before_everything_else(offset: int) -> None:
    office = Office({KEY: log_of(RECORDS)}, {KEY: mirrored(RECORDS[:250])})
    assert office.find({KEY: offset}) == ({KEY: offset}, {})
    assert office.requests == 0 and office.events == []


def test_an_entry_of_the_ledger_costs_nothing() -> None:
    office = Office({KEY: log_of(RECORDS)}, {KEY: mirrored(RECORDS[:250])})
    entry = Position("orders", 0, 250, -1, "", Identity(9, 0), "target", "", 1, (Cut(0, 250, 250),))
    assert office.find({KEY: entry}) == ({KEY: 250}, {})
    assert office.requests == office.source.offset_requests == office.target.offset_requests == 0


# -- refusing


def refusal(office: Office, key: TopicPartition = KEY) -> str:
    """Return why a partition is refused, which must be nobody's guess."""
    started, failed = office.find()
    assert key not in started
    error = failed[key]
    assert isinstance(error, PartitionError), error
    return str(error)


def test_a_refusal_names_both_ways_on() -> None:
    equal = [Record(NOW, None, b"beat")] * 300
    office = Office({KEY: log_of(equal)}, {KEY: mirrored(equal[:200])})
    assert refusal(office) == (
        "orders-0 stops: group mirror has no committed offset for it, and the last records on the target are on the source"
        f" several times; stop the mirror and run: {COMMAND.format(0)} to go on at source offset N, or the same with"
        " --to-earliest to mirror everything again"
    )
    assert office.events == []


def test_a_source_that_was_compacted_since_is_refused() -> None:
    source = log_of(RECORDS)
    del source[22]
    text = refusal(Office({KEY: source}, {KEY: mirrored(RECORDS[:250])}))
    assert "not as the source has them now" in text


def test_a_mirror_of_committed_records_does_not_go_on_with_all_of_them() -> None:
    # The target holds what another isolation.level has mirrored.
    target = [row for row in RECORDS[:250] if int(row.value[6:]) % 20 < 10]  # type: ignore[index]
    assert "other settings" in refusal(Office({KEY: log_of(RECORDS)}, {KEY: mirrored(target)}))


def test_records_before_the_last_ten_thousand_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrormaker.driver.log_search.TAIL_OFFSETS", 100)
    target = [*mirrored(RECORDS[:200]), *log_of(OTHERS, 8, 200)]
    assert "not among its last 10,000" in refusal(Office({KEY: log_of(RECORDS)}, {KEY: target}))


def test_records_that_retention_has_left_on_the_target_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrormaker.driver.log_search.TAIL_OFFSETS", 100)
    # The source still has its first 100 records, the target does not.
    target = [*mirrored(RECORDS[:200])[10:], *log_of(OTHERS, 8, 200)]
    assert "not among its last 10,000" in refusal(Office({KEY: log_of(RECORDS)}, {KEY: target}))


def test_a_damaged_log_is_no_licence_to_mirror_again() -> None:
    target = mirrored(RECORDS[:250])
    data = bytearray(target[-1].data)
    data[-1] ^= 1
    target[-1] = replace(target[-1], data=bytes(data))
    text = refusal(Office({KEY: log_of(RECORDS)}, {KEY: target}))
    assert "a log cannot be read: the batch at offset 240 does not match its CRC" in text
    assert COMMAND.format(0) in text


def test_a_refused_partition_is_not_read_again_and_again() -> None:
    equal = [Record(NOW, None, b"beat")] * 300
    office = Office({KEY: log_of(equal)}, {KEY: mirrored(equal[:200])})
    text = refusal(office)
    requests, allocated = office.requests, office.target.allocated
    for _ in range(20):
        assert refusal(office) == text
    assert office.requests == requests and office.target.allocated == allocated
    # An offset that somebody commits counts at once.
    assert office.find({KEY: 150}) == ({KEY: 150}, {})


def test_a_refused_partition_is_looked_at_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption_module, "_REFUSED_FOR", 0.0)
    equal = [Record(NOW, None, b"beat")] * 300
    office = Office({KEY: log_of(equal)}, {KEY: mirrored(equal[:200])})
    refusal(office)
    office.target.logs[KEY] = []
    assert office.find() == ({KEY: 0}, {})


def test_other_partitions_do_not_wait_for_a_refused_one() -> None:
    equal = [Record(NOW, None, b"beat")] * 300
    second = ("orders", 1)
    office = Office(
        {KEY: log_of(equal), second: log_of(RECORDS)}, {KEY: mirrored(equal[:200]), second: mirrored(RECORDS[:50])}
    )
    started, failed = office.find()
    assert started == {second: 50} and failed.keys() == {KEY}


# -- by key, and with a message handler


def spread(
    records: Sequence[Record], partitions: int, source_partition: int = 0
) -> dict[TopicPartition, list[Written]]:
    """Return what a mirror by key has written to so many target partitions."""
    columns = unpack(join(*log_of(records)))
    targets = by_key(columns, source_partition, partitions).tolist()
    shares = {
        number: [row for row, target in zip(records, targets, strict=True) if target == number]
        for number in range(partitions)
    }
    return {("orders", number): mirrored(rows) for number, rows in shares.items()}


def test_a_topic_that_is_mirrored_by_key_is_refused_if_it_was_mirrored_before() -> None:
    office = Office({KEY: log_of(RECORDS)}, spread(RECORDS[:250], 3))
    text = refusal(office)
    assert "which do not go to one partition alone" in text and COMMAND.format(0) in text


def test_all_refused_partitions_of_a_topic_share_one_line() -> None:
    source = {("orders", number): log_of(RECORDS) for number in range(5)}
    office = Office(source, spread(RECORDS, 3))
    _, failed = office.find()
    assert failed.keys() == source.keys()
    (text,) = {str(error) for error in failed.values()}
    assert text.startswith(
        "orders-0, orders-1, orders-2 and 2 more stop: group mirror has no committed offset for them"
    )
    assert f"for each partition P: {COMMAND.format('P')}" in text


def test_a_topic_that_is_mirrored_by_key_starts_beside_other_writers() -> None:
    assert Office({KEY: log_of(RECORDS)}, spread(OTHERS, 3)).find() == ({KEY: 0}, {})


def test_a_partition_starts_while_another_one_is_mirrored_by_key() -> None:
    # The first start of a group: the other partition was quicker.
    second = ("orders", 1)
    office = Office({KEY: log_of(RECORDS), second: []}, spread(OTHERS, 3, source_partition=1))
    assert office.find() == ({KEY: 0, second: 0}, {})


def test_a_message_handler_that_leaves_records_as_they_are_is_refused() -> None:
    office = Office({KEY: log_of(RECORDS)}, {KEY: mirrored(RECORDS[:250])}, handler=("handlers:Filter", None))
    assert "which do not go to one partition alone" in refusal(office)


# -- brokers that do not answer


def test_an_outage_in_between_does_not_matter() -> None:
    office = Office({KEY: log_of(RECORDS)}, {KEY: mirrored(RECORDS[:250])})
    office.target.outages = office.source.outages = 1
    assert office.find() == ({KEY: 250}, {})


def test_an_outage_that_lasts_is_waited_for_and_never_guessed_about() -> None:
    office = Office({KEY: log_of(RECORDS)}, {KEY: mirrored(RECORDS[:250])})
    office.source.outages = 100
    started, failed = office.find()
    assert started == {} and isinstance(failed[KEY], Unanswered)
    office.source.outages = 0
    assert office.find() == ({KEY: 250}, {})
    assert [type(event) for event in office.events] == [Adopted]
