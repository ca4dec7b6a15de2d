"""Consumer and producer files as typed values, and what people get wrong in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.errors import SettingError
from mirrormaker.settings.addresses import addresses
from mirrormaker.settings.clients import SourceSettings, TargetSettings, source_settings, target_settings
from mirrormaker.settings.properties import Properties, parse, read

SOURCE = "bootstrap.servers=old:9092\ngroup.id=mirror\n"
TARGET = "bootstrap.servers=new:9092\n"


def properties(text: str) -> Properties:
    found = Properties("my.properties")
    for prop in parse(text, "my.properties"):
        found[prop.key] = prop
    return found


def source(more: str = "") -> SourceSettings:
    return source_settings(properties(SOURCE + more))


def target(more: str = "") -> TargetSettings:
    return target_settings(properties(TARGET + more))


def refusal(text: str, side: str = "source") -> str:
    """The one line that a user reads."""
    with pytest.raises(SettingError) as error:
        (source_settings if side == "source" else target_settings)(properties(text))
    assert "\n" not in str(error.value)
    return str(error.value)


# -- addresses


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("host:9092", [("host", 9092)]),
        ("a:1,b:65535", [("a", 1), ("b", 65535)]),
        (" a:1 , b:2 ", [("a", 1), ("b", 2)]),
        ("a:1,,b:2,", [("a", 1), ("b", 2)]),
        ("a:1,a:1", [("a", 1)]),
        ("kafka-1.example.com:9092", [("kafka-1.example.com", 9092)]),
        ("10.0.0.1:9092", [("10.0.0.1", 9092)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("[2001:db8::1]:9092,[::ffff:10.0.0.1]:9093", [("2001:db8::1", 9092), ("::ffff:10.0.0.1", 9093)]),
        ("[fe80::1%eth0]:9092", [("fe80::1%eth0", 9092)]),
        ("PLAINTEXT://host:9092", [("host", 9092)]),
        ("under_score:9092", [("under_score", 9092)]),
    ],
)
def test_addresses_as_people_write_them(text: str, found: list[tuple[str, int]]) -> None:
    assert addresses(text, "my.properties, line 1", "bootstrap.servers") == tuple(found)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("host", "host"),
        ("a:1,host", "host"),
        ("host:", "host:"),
        (":9092", ":9092"),
        ("host:0", "host:0"),
        ("host:65536", "host:65536"),
        ("host:port", "host:port"),
        ("a:1 b:2", "a:1 b:2"),
        ("a:1;b:2", "a:1;b:2"),
        ("::1:9092", "::1:9092"),
        ("http://host:9092/", "http://host:9092/"),
        ("host:9092/path", "host:9092/path"),
    ],
)
def test_an_address_that_is_none_is_named_with_its_place(text: str, wrong: str) -> None:
    with pytest.raises(SettingError) as error:
        addresses(text, "my.properties, line 7", "bootstrap.servers")
    assert str(error.value) == f"my.properties, line 7: bootstrap.servers={text}: '{wrong}' is not host:port"


def test_a_dash_instead_of_the_colon_is_called_that() -> None:
    """The reference documents of MirrorMaker themselves have this slip."""
    with pytest.raises(SettingError, match="'kafka-1-9092' has a dash where the colon belongs; write kafka-1:9092"):
        addresses("a:1,kafka-1-9092", "my.properties, line 7", "bootstrap.servers")


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_no_address_at_all_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"bootstrap\.servers names no broker; write bootstrap\.servers=host:9092"):
        addresses(text, "my.properties", "bootstrap.servers")


@given(st.text(max_size=30))
def test_any_text_is_addresses_or_one_line_of_refusal(text: str) -> None:
    try:
        found = addresses(text, "f", "k")
    except SettingError:
        return
    assert found
    assert all(host and 0 < port < 65536 for host, port in found)


# -- what must be there


def test_the_smallest_files_are_enough() -> None:
    assert source().endpoint.bootstrap == (("old", 9092),)
    assert source().group_id == "mirror"
    assert target().endpoint.bootstrap == (("new", 9092),)
    assert source().notes == target().notes == ()


def test_defaults_are_those_of_the_design() -> None:
    s, t = source(), target()
    assert (s.session_timeout_ms, s.heartbeat_interval_ms) == (10_000, 1000)
    assert s.auto_offset_reset is None
    assert s.read_committed is False
    assert s.instance_id is None
    assert (t.acks, t.max_in_flight) == (-1, 5)


@pytest.mark.parametrize(
    ("text", "side", "key"),
    [
        ("group.id=mirror", "source", "bootstrap.servers"),
        ("bootstrap.servers=a:1", "source", "group.id"),
        ("bootstrap.servers=a:1\ngroup.id=", "source", "group.id"),
        ("bootstrap.servers=a:1\ngroup.id=  ", "source", "group.id"),
        ("acks=all", "target", "bootstrap.servers"),
    ],
)
def test_a_missing_key_is_named_with_an_example(text: str, side: str, key: str) -> None:
    assert re.fullmatch(rf"my\.properties: {key} is missing; add a line like {key}=\S+", refusal(text, side))


# -- numbers and choices


@pytest.mark.parametrize(
    "line",
    [
        "fetch.min.bytes=many",
        "fetch.min.bytes=1.5",
        "fetch.min.bytes=",
        "fetch.min.bytes=-1",
        "session.timeout.ms=99999999999",
        "session.timeout.ms=10s",
        "request.timeout.ms=0x10",
        "max.partition.fetch.bytes=1",
    ],
)
def test_a_bad_number_names_file_line_key_and_value(line: str) -> None:
    assert refusal(SOURCE + "# a comment\n" + line).startswith(
        f"my.properties, line 4: {line}: this must be a whole number"
    )


@pytest.mark.parametrize(
    ("line", "side", "choices"),
    [
        ("auto.offset.reset=first", "source", "earliest, latest, none"),
        ("auto.offset.reset=", "source", "earliest, latest, none"),
        ("isolation.level=serializable", "source", "read_committed, read_uncommitted"),
        ("acks=2", "target", "all, -1, 1, 0"),
    ],
)
def test_a_bad_choice_names_the_good_ones(line: str, side: str, choices: str) -> None:
    text = (SOURCE if side == "source" else TARGET) + line
    message = refusal(text, side)
    assert line in message
    assert choices in message


def test_values_are_read_whatever_their_case_and_the_blanks_around_them() -> None:
    s = source("auto.offset.reset = Earliest \nisolation.level=READ_COMMITTED\t\nfetch.min.bytes= 100 \n")
    assert (s.auto_offset_reset, s.read_committed, s.fetch_min_bytes) == ("earliest", True, 100)
    assert target("acks=ALL ").acks == -1


@pytest.mark.parametrize(("old", "new"), [("smallest", "earliest"), ("largest", "latest")])
def test_the_old_names_of_a_reset_are_understood(old: str, new: str) -> None:
    assert source(f"auto.offset.reset={old}").auto_offset_reset == new


def test_a_heartbeat_slower_than_the_session_is_refused() -> None:
    message = refusal(SOURCE + "session.timeout.ms=3000\nheartbeat.interval.ms=3000")
    assert message == "my.properties: heartbeat.interval.ms=3000 must be less than session.timeout.ms=3000"


def test_a_short_session_has_a_heartbeat_to_match() -> None:
    assert source("session.timeout.ms=3000").heartbeat_interval_ms == 1000


# -- what is not known, not built, or not what it seems


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("auto.ofset.reset=latest", "auto.offset.reset"),
        ("group.instace.id=x", "group.instance.id"),
        ("max.partiton.fetch.bytes=5000", "max.partition.fetch.bytes"),
    ],
)
def test_an_unknown_key_is_noted_with_the_nearest_known_one(line: str, near: str) -> None:
    (note,) = source(line).notes
    assert note == f"my.properties, line 3: {line.split('=')[0]} is not known; did you mean {near}?"


def test_a_key_like_no_other_is_noted_without_a_guess() -> None:
    assert source("favourite.colour=blue").notes == ("my.properties, line 3: favourite.colour is not known",)


@pytest.mark.parametrize(
    "line",
    ["key.deserializer=x.Y", "enable.auto.commit=false", "max.poll.records=5", "client.rack=a", "security.protocol=plaintext"],
)  # fmt: skip
def test_files_of_the_original_keep_working(line: str) -> None:
    assert source(line).notes == ()


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize(
    "line",
    ["security.protocol=SSL", "security.protocol=SASL_PLAINTEXT", "ssl.truststore.location=/x", "sasl.mechanism=PLAIN"],
)
def test_security_is_refused_by_name_and_not_ignored(line: str, side: str) -> None:
    message = refusal((SOURCE if side == "source" else TARGET) + line, side)
    assert line.split("=")[0] in message
    assert "TLS and SASL are not built yet" in message
    assert "line" in message


@pytest.mark.parametrize("key", ["zk.connect", "zookeeper.connect"])
def test_zookeeper_is_refused_with_the_way_out(key: str) -> None:
    assert "use bootstrap.servers=host:9092" in refusal(f"{key}=zk:2181\ngroup.id=g")


@pytest.mark.parametrize("key", ["groupid", "broker.list", "metadata.broker.list", "compression.codec"])
def test_names_of_old_versions_are_refused_by_name(key: str) -> None:
    assert refusal(f"{SOURCE}{key}=1").startswith(f"my.properties, line 3: {key}: the names of Kafka 0.7 and 0.8")


def test_another_assignor_is_refused() -> None:
    strategy = "org.apache.kafka.clients.consumer.RoundRobinAssignor"
    assert f"{strategy}: only the range assignor" in refusal(f"{SOURCE}partition.assignment.strategy={strategy}")
    source("partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor")


def test_compression_is_as_it_came_unless_it_is_set() -> None:
    assert target("").codec is target("compression.type=producer").codec is None
    assert [target(f"compression.type={name}").codec for name in ("none", "gzip", "snappy", "lz4", "ZSTD")] == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert "compression.type=lzma: this must be one of none, gzip" in refusal(
        TARGET + "compression.type=lzma", "target"
    )


def test_batches_and_lingering_are_as_a_producer_has_them() -> None:
    assert target("").batch_bytes == 512 << 10
    assert target("batch.size=16384").batch_bytes == 16384
    assert target("batch.size=0").batch_bytes == 1024, "no batching: as little as makes sense"
    assert (target("").linger, target("linger.ms=250").linger) == (0, 0.25)
    assert not target("batch.size=16384\nlinger.ms=5").notes, "they have an effect"
    assert "linger.ms=soon: this must be a whole number" in refusal(TARGET + "linger.ms=soon", "target")


def test_partitions_are_chosen_by_key_or_kept() -> None:
    assert target("").partition_by is None
    assert [target(f"partition.by={name}").partition_by for name in ("key", "Same")] == ["key", "same"]
    assert "this must be one of key, same" in refusal(TARGET + "partition.by=value", "target")


def test_what_is_not_done_as_written_is_noted() -> None:
    assert "acks=0 is treated as acks=1" in target("acks=0").notes[0]
    assert target("acks=0").acks == 1
    assert "5 is used" in target("max.in.flight.requests.per.connection=100").notes[0]
    assert target("max.in.flight.requests.per.connection=100").max_in_flight == 5
    assert "positions are committed only after" in source("enable.auto.commit=true").notes[0]


def test_a_mistake_in_a_real_file_names_the_path(tmp_path: Path) -> None:
    path = tmp_path / "source.properties"
    path.write_text("# mine\r\nbootstrap.servers=old-9092\r\ngroup.id=mirror\r\n")
    with pytest.raises(
        SettingError, match=rf"^{re.escape(str(path))}, line 2: bootstrap\.servers=old-9092: .*old:9092$"
    ):
        source_settings(read(str(path), "--consumer.config"))
