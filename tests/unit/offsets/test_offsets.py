"""The offset checker's tables, its arithmetic, and what it says when it is called wrongly."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import ConsumerProtocolAssignment
from rich.console import Console

from mirrormaker.cli import call
from mirrormaker.errors import BadFrame
from mirrormaker.offsets import consumer_protocol_groups
from mirrormaker.offsets.group_lag import GroupLag, LagHistory, Pace, PartitionLag
from mirrormaker.offsets.group_state import assigned
from mirrormaker.offsets.table import as_json, lines, lines_with_pace, live_table

SEE = "(see mirrormaker offsets --help)"
BROKERS = {0: ("127.0.0.1", 9092), 1: ("::1", 9093)}


def group(*partitions: PartitionLag, failures: tuple[str, ...] = ()) -> GroupLag:
    return GroupLag("mirror", partitions, BROKERS, failures)


def partition(offset: int | None = 7, end: int | None = 10, owner: str | None = None, number: int = 0) -> PartitionLag:
    return PartitionLag("orders", number, 0, offset, end, owner)


# -- the original's table


def test_the_table_is_laid_out_like_the_originals() -> None:
    rows = (
        partition(11, 15, "mirror_c1-0"),
        partition(-1, 9, number=1),
        partition(None, 9, number=2),
        partition(7, None, number=3),
        PartitionLag("orders", 4, None, 7, None, None),
        PartitionLag("a.topic.with.a.name.of.over.thirty.letters", 10, 1, 1234567890123456, 1234567890123459, None),
    )
    assert list(lines(group(*rows, failures=("Could not fetch offset for [orders,2] due to X.",)), True)) == [
        "Could not fetch offset for [orders,2] due to X.",
        "Group           Topic                          Pid Offset          logSize         Lag             Owner",
        "mirror          orders                         0   11              15              4               mirror_c1-0",
        "mirror          orders                         1   -1              9               unknown         none",
        "mirror          orders                         2   unknown         9               unknown         none",
        "mirror          orders                         3   7               unknown         unknown         none",
        "No broker for partition orders - 4",
        "mirror          a.topic.with.a.name.of.over.thirty.letters 10  1234567890123456 1234567890123459 3               none",
        "BROKER INFO",
        "0 -> 127.0.0.1:9092",
        "1 -> [::1]:9093",
    ]  # fmt: skip


def test_no_partitions_are_a_header_alone() -> None:
    assert len(list(lines(group(), False))) == 1


# -- the table that moves


def watched(*lags: GroupLag, every: float = 2.0) -> LagHistory:
    history = LagHistory()
    for number, group_lag in enumerate(lags):
        history.add(number * every, group_lag)
    return history


def test_pace_and_time_to_catch_up() -> None:
    now = group(
        partition(50, 100, "me"), partition(20, 20, number=1), partition(5, 90, number=2), partition(-1, 4, number=3)
    )
    history = watched(
        group(partition(30, 100), partition(20, 20, number=1), partition(3, 70, number=2), partition(-1, 4, number=3)),
        now,
    )
    text = [line.split() for line in lines_with_pace(now, history, False)]
    assert text[1][5:] == ["50", "10", "in", "5", "s", "me"]
    assert text[2][5:] == ["0", "0", "yes", "none"]
    assert text[3][5:] == ["85", "1", "not", "at", "this", "pace", "none"], "20 came while 2 were consumed"
    assert text[4][5:] == ["unknown", "-", "unknown", "none"]
    assert " ".join(text[5]) == "total: lag 135, 11 records/s, caught up: in 2 min, 1 of 4 partitions unknown"
    assert history.pace(("orders", 0), ("orders", 1), ("orders", 2)) == Pace(11.0, 1.0)
    assert history.pace(("orders", 7)) is None


def test_a_group_with_partitions_of_unknown_lag_is_not_called_caught_up() -> None:
    now = group(partition(5, 5), PartitionLag("orders", 1, None, 7, None, None))
    *_, last = lines_with_pace(now, watched(now, now), False)
    assert last == "total: lag 0, 0 records/s, caught up: unknown, 1 of 2 partitions unknown"


def test_a_pace_is_that_of_the_last_minute_and_a_half() -> None:
    history = watched(*(group(partition(offset, 1000)) for offset in (0, 900, 910, 920)), every=60)
    assert history.pace(("orders", 0)) == Pace(10 / 60, 10 / 60)


def test_the_picture_for_a_terminal_fits_into_it() -> None:
    now = group(partition(50, 100, "consumer-of-a-long-name-" * 3), PartitionLag("orders", 1, None, 7, None, None))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(live_table(now, watched(group(partition(30, 100)), now), True, "12:00:00 nobody answers"))
    text = console.export_text()
    assert text.startswith("mirror: lag 50, 10 records/s, caught up: in 5 s, 1 of 2 partitions unknown\n")
    for words in ("no leader", "BROKER INFO", "12:00:00 nobody answers", "in 5 s"):
        assert words in text


def test_json_has_null_for_what_is_not_known() -> None:
    now = group(partition(7, 10, "me"), partition(-1, 4, number=1), failures=("why",))
    first = {"topic": "orders", "partition": 0, "offset": 7, "log_size": 10, "lag": 3, "owner": "me", "leader": 0}
    second = {**first, "partition": 1, "offset": None, "log_size": 4, "lag": None, "owner": None}
    assert as_json(now, None, False) == {
        "group": "mirror", "lag": 3, "unknown": 1, "partitions": [first, second], "failures": ["why"],
    }  # fmt: skip
    moving = as_json(now, watched(group(partition(1, 10)), now), True)
    assert moving["partitions"][0] == {**first, "records_per_second": 3.0, "seconds_to_catch_up": 1.0}
    assert moving["partitions"][1] == {**second, "records_per_second": None, "seconds_to_catch_up": None}
    assert moving["brokers"] == {"0": "127.0.0.1:9092", "1": "[::1]:9093"}


# -- assignments


def test_an_assignment_is_read() -> None:
    entry = ConsumerProtocolAssignment.TopicPartition
    given = ConsumerProtocolAssignment(
        version=1, assigned_partitions=[entry(topic="a", partitions=[0, 2])], user_data=b"x"
    )
    assert assigned(bytes(given.encode())) == [("a", 0), ("a", 2)]
    assert assigned(b"") == []


def test_an_assignment_may_cost_as_much_work_as_it_is_given() -> None:
    entry = ConsumerProtocolAssignment.TopicPartition(topic="a", partitions=list(range(20_000)))
    given = bytes(ConsumerProtocolAssignment(version=1, assigned_partitions=[entry], user_data=b"").encode())
    assert len(assigned(given, len(given))) == 20_000
    assert assigned(given, 39_900) == []


@given(st.binary(max_size=80))
def test_an_assignment_of_someone_elses_making_is_none(data: bytes) -> None:
    assert isinstance(assigned(data), list)


# What a broker of 4.3.1 answered about a group with one member, of two topics.
_NEW_GROUP = bytes.fromhex(
    "000000000200000003673807537461626c65000000020000000208756e69666f726d02176a44775f6f636774514d534d723946665f58596338410000"
    "00000002036d650b2f3132372e302e302e3103027402750103d4c8fa48eaba4f60b5438a7a63a7bb840274030000000000000001003795d8aa27cd4c"
    "a1a060dfabc32a32eb02750200000000000003d4c8fa48eaba4f60b5438a7a63a7bb840274030000000000000001003795d8aa27cd4ca1a060dfabc3"
    "2a32eb02750200000000000000800000000000"
)


def test_owners_in_a_group_of_the_new_protocol() -> None:
    member = "me-jDw_ocgtQMSMr9Ff_XYc8A"
    assert consumer_protocol_groups.read(memoryview(_NEW_GROUP)) == {
        ("t", 0): member,
        ("t", 1): member,
        ("u", 0): member,
    }


@pytest.mark.parametrize("end", range(len(_NEW_GROUP) - 1))
def test_an_answer_that_ends_too_early_is_told(end: int) -> None:
    with pytest.raises(BadFrame):
        consumer_protocol_groups.read(memoryview(_NEW_GROUP[:end]))


# -- wrong calls


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ([], f'Missing required argument "[group]" {SEE}'),
        (["--group", "g", "--watch", "0"], f"--watch 0: this must be from 0.1 to 86400 seconds {SEE}"),
        (["--group", "g", "--watch", "nan"], f"--watch nan: this must be from 0.1 to 86400 seconds {SEE}"),
        (["--group", "g", "--retry.backoff.ms", "0"], f"--retry.backoff.ms 0: this must be at least 1 {SEE}"),
        (["--group", "g", "--group", "h"], f"--group: given more than once {SEE}"),
        (
            ["--group", "g", "--zkconnect", "a:1", "--bootstrap-server", "b:1"],
            f"--zookeeper and --bootstrap-server are two ways to the same cluster: give one of them {SEE}",
        ),
        (["--group", "g", "--bootstrap-server", "b"], "the command line: --bootstrap-server=b: 'b' is not host:port"),
        (
            ["--group", "g", "--zookeeper", "a:x"],
            "ZooKeeper address a:x: 'a:x' is not host:port; write host:2181,host2:2181/chroot",
        ),
        (["--group", "g", "--bootstrap-server", "127.0.0.1:1"], "the brokers cannot be asked: 127.0.0.1:1: connection refused"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line_and_exit_code_1(
    args: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["offsets", *args]) == 1
    assert capsys.readouterr() == ("", f"mirrormaker: {line}\n")


def test_a_mistake_in_a_login_of_a_command_config_is_refused_without_its_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=hushhush\n")
    assert call(["offsets", "--group", "g", "--bootstrap-server", "a:1", "--command-config", str(file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"mirrormaker: {file}, line 3: sasl.jaas.config: one of required, ")
    assert "hush" not in error
