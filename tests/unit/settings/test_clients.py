"""Consumer and producer files as typed values, and the errors that people make in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.errors import SettingError
from mirrormaker.settings import keys
from mirrormaker.settings.addresses import addresses
from mirrormaker.settings.clients import SourceSettings, TargetSettings, source_settings, target_settings
from mirrormaker.settings.properties import Properties, Property, parse, read

SOURCE = "bootstrap.servers=old:9092\ngroup.id=mirror\n"
TARGET = "bootstrap.servers=new:9092\n"


def properties(text: str) -> Properties:
    return Properties("my.properties", parse(text, "my.properties"))


def source(more: str = "") -> SourceSettings:
    return source_settings(properties(SOURCE + more))


def target(more: str = "") -> TargetSettings:
    return target_settings(properties(TARGET + more))


def refusal(text: str, side: str = "source") -> str:
    """Return the one line that a user reads."""
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


@pytest.mark.parametrize("wrong", ["host:0", "host:65536", "127.0.0.1:999999", "[::1]:99999", "SSL://host:70000"])
def test_a_port_that_cannot_be_one_is_told_the_range(wrong: str) -> None:
    with pytest.raises(SettingError) as error:
        addresses(f"a:1,{wrong}", "my.properties, line 7", "bootstrap.servers")
    assert str(error.value) == (
        f"my.properties, line 7: bootstrap.servers=a:1,{wrong}: '{wrong}': a port must be from 1 to 65535"
    )


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


# -- required settings


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


# -- unknown, unsupported and surprising settings


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


def test_another_assignor_is_refused() -> None:
    strategy = "org.apache.kafka.clients.consumer.RoundRobinAssignor"
    assert f"{strategy}: only the range assignor is supported" in refusal(
        f"{SOURCE}partition.assignment.strategy={strategy}"
    )
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
    assert target("acks=0").notes == (
        "my.properties, line 2: acks=0: acks=1 is used, because the mirror must know which records have arrived",
    )
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


# -- old names


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("client.id=x", "endpoint.client_id", "x"),
        ("clientid=x", "endpoint.client_id", "x"),
        ("autooffset.reset=smallest", "auto_offset_reset", "earliest"),
        ("autooffset.reset=largest", "auto_offset_reset", "latest"),
        ("socket.timeout.ms=5000", "endpoint.request_timeout", 5.0),
        ("fetch.size=2048", "partition_fetch_bytes", 2048),
        ("fetch.message.max.bytes=2048", "partition_fetch_bytes", 2048),
        ("min.fetch.bytes=7", "fetch_min_bytes", 7),
        ("fetch.wait.max.ms=70", "fetch_max_wait_ms", 70),
        ("max.fetch.wait.ms=70", "fetch_max_wait_ms", 70),
        ("shallowiterator.enable=true", "shallow", True),
        ("shallow.iterator.enable=TRUE", "shallow", True),
        ("mirror.topics.whitelist=a,b", "include", "a,b"),
        ("mirror.topics.blacklist=a,b", "exclude", "a,b"),
        ("mirror.topics.whitelist=", "include", None),
        ("mirror.consumer.numthreads=3", "num_streams", 3),
        ("offsets.storage=Kafka", "offsets_storage", "kafka"),
        ("dual.commit.enabled=true", "dual_commit", True),
        ("zk.connectiontimeout.ms=2000", "zookeeper_timeout", 2.0),
        ("zookeeper.connection.timeout.ms=2000", "zookeeper_timeout", 2.0),
        ("broker.version=0.9.0.1", "broker_version", (0, 9, 0, 1)),
        ("broker.version=0.8.2", "endpoint.broker_version", (0, 8, 2)),
    ],
)
def test_each_name_of_a_consumer_setting(line: str, field: str, value: object) -> None:
    found: object = source(line)
    for part in field.split("."):
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("request.required.acks=1", "acks", 1),
        ("request.required.acks=-1", "acks", -1),
        ("compression.codec=0", "codec", 0),
        ("compression.codec=2", "codec", 2),
        ("compression.codec=gzip", "codec", 1),
        ("compression.type=passthrough", "codec", None),
        ("max.message.size=1000000", "max_request_bytes", 1_000_000),
        ("queue.time=1000", "linger", 1.0),
        ("queue.buffering.max.ms=1000", "linger", 1.0),
        ("connect.timeout.ms=3000", "endpoint.connect_timeout", 3.0),
        ("broker.version=0.10.2", "broker_version", (0, 10, 2)),
        ("zookeeper.connect=zk:2181", "zookeeper", "zk:2181"),
    ],
)
def test_each_name_of_a_producer_setting(line: str, field: str, value: object) -> None:
    found: object = target(line)
    for part in field.split("."):
        found = getattr(found, part)
    assert found == value


def test_defaults_of_what_old_files_have() -> None:
    found = source()
    assert (found.zookeeper, found.zookeeper_timeout, found.broker_version) == ("", 6.0, None)
    assert (found.include, found.exclude, found.num_streams, found.shallow) == (None, None, None, False)
    assert (found.offsets_storage, found.dual_commit) == ("", False)


@pytest.mark.parametrize("key", ["broker.list", "metadata.broker.list"])
def test_old_lists_of_brokers_may_have_ids(key: str) -> None:
    found = target_settings(properties(f"{key}=0:a:9092,1:b:9093,c:9094"))
    assert found.endpoint.bootstrap == (("a", 9092), ("b", 9093), ("c", 9094))
    assert "'0:a:9092' is not host:port" in refusal("bootstrap.servers=0:a:9092", "target")


@pytest.mark.parametrize("name", ["Int.MaxValue", "Integer.MAX_VALUE", "2147483647"])
def test_the_largest_number_may_have_its_name(name: str) -> None:
    assert source(f"fetch.max.bytes={name}").fetch_max_bytes == 2**31 - 1
    assert target(f"retries={name} ").notes == ()
    assert target("max.block.ms=Long.MAX_VALUE").notes == ()


def test_one_setting_under_two_names_must_have_one_value() -> None:
    assert source("groupid=mirror").group_id == "mirror"
    assert source("fetch.size=2048\nmax.partition.fetch.bytes= 2048").partition_fetch_bytes == 2048
    assert target("acks=-1\nrequest.required.acks=all").acks == -1
    assert refusal(SOURCE + "groupid=other") == (
        "my.properties: group.id=mirror (line 2) and groupid=other (line 3) are one setting with two values; remove one of them"
    )
    assert target("retries=1\nnum.retries=2").acks == -1, "of no consequence, so no reason to refuse the file"


def test_a_name_given_twice_is_noted() -> None:
    found = source("fetch.size=2048\nfetch.size=4096")
    assert found.partition_fetch_bytes == 4096
    assert found.notes == ("my.properties, line 3: fetch.size is given again in line 4, which counts",)
    assert source("fetch.size=2048\nfetch.size=2048").notes == ()


@pytest.mark.parametrize(
    ("more", "size", "why"),
    [
        ("batch.size=16384", 16384, ""),
        ("batch.size=1024", 1024, ""),
        ("batch.size=200", 512 << 10, "because it is less than 1024"),
        ("batch.size=20000\nqueue.time=5", 512 << 10, "as in the Kafka versions that had queue.time"),
        ("batch.size=20000\nproducer.type=sync\nblock.on.buffer.full=true", 20000, ""),
    ],
)
def test_a_batch_size_is_messages_where_something_says_so(more: str, size: int, why: str) -> None:
    found = target(more)
    assert found.batch_bytes == size
    notes = [note for note in found.notes if "batch.size" in note]
    assert bool(notes) == bool(why)
    if why:
        assert notes[0].startswith(
            f"my.properties, line 2: {more.splitlines()[0]}: taken as a number of messages, {why}"
        )


@pytest.mark.parametrize(
    ("line", "side", "words"),
    [
        ("consumer.timeout.ms=10000", "source", "--exit.when.caught.up"),
        ("autocommit.enable=true", "source", "positions are committed only after the target has acknowledged the records"),
        ("auto.commit.enabled=true", "source", "positions are committed only after the target has acknowledged the records"),
        ("partition.assignment.strategy=roundrobin", "source", "range is used"),
        ("zookeeper.connection.timeout.ms=40000", "source", "the longest wait is 30 s"),
        ("acks=1\nzk.connect=zk:2181", "target", "the brokers of bootstrap.servers are used; ZooKeeper is not used"),
        ("zk.connect=zk:2181", "source", "ZooKeeper is used only for an old group's offsets"),
        ("dual.commit.enabled=true", "source", "has no effect without zookeeper.connect"),
        ("queue.enqueueTimeout.ms=0", "target", "records are never dropped"),
        ("queue.enqueue.timeout.ms=100", "target", "records are never dropped"),
        ("block.on.buffer.full=false", "target", "records are never dropped"),
        ("num.retries=3", "target", "until the target accepts it or refuses it"),
        ("enable.idempotence=false", "target", "idempotence stays on"),
        ("producer.type=sync\nqueue.size=10", "target", "these settings have no effect: producer.type, queue.size ("),
        ("socket.buffersize=10000", "source", "these settings have no effect: socket.buffersize"),
        ("acks=all", "source", "line 3: acks is a producer setting; it has no effect in a consumer file"),
        ("group.id=x", "target", "line 2: group.id is a consumer setting; it has no effect in a producer file"),
        ("broker.id=1", "target", "broker.id is not known"),
        ("groupId=x", "source", "groupId is not known; did you mean groupid?"),
    ],
)  # fmt: skip
def test_what_is_not_as_it_seems_is_noted_once(line: str, side: str, words: str) -> None:
    (note,) = source(line).notes if side == "source" else target(line).notes
    assert words in note


@pytest.mark.parametrize(
    ("line", "side"),
    [
        ("consumer.timeout.ms=-1", "source"),
        ("auto.commit.enable=false", "source"),
        ("exclude.internal.topics=true", "source"),
        ("zk.sessiontimeout.ms=6000\nzk.synctime.ms=2000\nrebalance.retries.max=4", "source"),
        ("queue.enqueueTimeout.ms=-1", "target"),
        ("block.on.buffer.full=true", "target"),
        ("serializer.class=kafka.serializer.DefaultEncoder\nkey.serializer.class=x", "target"),
        ("enable.idempotence=true\ndelivery.timeout.ms=2147483647\nmax.block.ms=9223372036854775807", "target"),
    ],
)
def test_what_changes_nothing_is_not_spoken_of(line: str, side: str) -> None:
    assert (source(line).notes if side == "source" else target(line).notes) == ()


@pytest.mark.parametrize(
    ("line", "side", "words"),
    [
        ("exclude.internal.topics=false", "source", "internal topics belong to their own cluster"),
        ("config.providers=env,vault", "source", "only the providers env and file are supported, not vault"),
        (
            "ssl.engine.factory.class=x.Y",
            "target",
            "Java classes cannot be loaded here; name the stores with ssl.truststore.location",
        ),
        ("ssl.enabled.protocols=TLSv1,TLSv1.1", "source", "only TLSv1.2 and TLSv1.3 are supported"),
        ("mirror.topics.whitelist=a\nmirror.topics.blacklist=b", "source", "contradict each other"),
        ("broker.version=new", "target", "this must be a version like 0.8.2"),
        ("broker.version=8", "source", "this must be a version like 0.8.2"),
        ("offsets.storage=disk", "source", "this must be one of kafka, zookeeper"),
        ("dual.commit.enabled=yes", "source", "this must be true or false"),
        ("mirror.consumer.numthreads=0", "source", "this must be a whole number from 1"),
        ("compression.codec=9", "target", "this must be one of none, gzip"),
        ("retries=many", "target", "this must be a whole number"),
        ("fetch.max.bytes=Long.MAX_VALUE", "source", "a whole number of bytes from 1024 to 2147483647"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_place(line: str, side: str, words: str) -> None:
    said = refusal((SOURCE if side == "source" else TARGET) + line, side)
    assert re.match(r"my\.properties, line \d: ", said)
    assert words in said


# -- ZooKeeper


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("zk:2181", "zk:2181"),
        ("zk", "zk:2181"),
        ("a:1, b:2 ,c/kafka", "a:1,b:2,c:2181/kafka"),
        ("a:1/kafka/one/", "a:1/kafka/one"),
        ("a:1/", "a:1"),
        ("[::1]:2181/kafka", "[::1]:2181/kafka"),
    ],
)
def test_zookeeper_as_people_write_it(text: str, found: str) -> None:
    assert source_settings(properties(f"zookeeper.connect={text}\ngroup.id=g")).zookeeper == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no server; write zookeeper.connect=host:2181"),
        ("/kafka", "names no server"),
        ("zk:port", "'zk:port' is not host:port"),
        ("zk:99999", "'zk:99999': a port must be from 1 to 65535"),
        ("zk1-2181", "'zk1-2181' has a dash where the colon belongs; write zk1:2181"),
        ("a:1/kafka,b:2/kafka", "written once, at the end: a:1,b:2/kafka"),
        ("a:1//kafka", "is not a path in ZooKeeper"),
        ("a:1/my kafka", "is not a path in ZooKeeper"),
    ],
)
def test_a_wrong_zookeeper_is_named_with_the_way_out(text: str, words: str) -> None:
    said = refusal(f"zookeeper.connect={text}\ngroup.id=g")
    assert said.startswith("my.properties, line 1: zookeeper.connect")
    assert words in said


def test_brokers_or_zookeeper_must_be_named() -> None:
    assert refusal("group.id=g").startswith("my.properties: bootstrap.servers is missing")
    assert source_settings(properties("zk.connect=zk:2181\ngroupid=g")).endpoint.bootstrap == ()


# -- the table


def test_no_name_has_two_meanings() -> None:
    for side, found in keys.SIDES.items():
        names = [name for key in found for name in key.names]
        assert len(names) == len(set(names)), side


def test_every_meaning_is_a_sentence() -> None:
    for table in keys.SIDES.values():
        assert [key.name for key in table if not key.meaning.endswith(".")] == []


def test_every_default_is_a_value_that_could_be_written() -> None:
    for found in keys.SIDES.values():
        for key in found:
            if key.default:
                key.type.read(key.default, "default", key.name)


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("ssl.keystore.password", "x", True),
        ("ssl.key.password", "x", True),
        ("sasl.jaas.config", "x", True),
        ("ssl.keystore.key", "x", True),
        ("sasl.oauthbearer.client.credentials.client.secret", "x", True),
        ("required", 'username="u" password="p";', True),
        ("key.deserializer", "x", False),
        ("group.id", "secret-mirror", False),
        ("ssl.keystore.location", "/etc/x.jks", False),
    ],
)
def test_secrets_are_known_by_their_names(name: str, value: str, secret: bool) -> None:
    assert keys.is_secret(name, value) is secret


NAMES = sorted({name for found in keys.SIDES.values() for key in found for name in key.names})
LINES = st.tuples(
    st.sampled_from([*NAMES, "x", ""]), st.sampled_from(["", "1", "-1", "true", "a:1", "none"]) | st.text(max_size=8)
)


@given(lines=st.lists(LINES, max_size=6), side=st.sampled_from(["source", "target"]))
def test_any_file_is_understood_or_refused_in_one_line(lines: list[tuple[str, str]], side: str) -> None:
    written = [Property("zk.connect", "zk", 1), Property("groupid", "g", 2)]
    written += [Property(key, value, at) for at, (key, value) in enumerate(lines, 3)]
    try:
        found = (source_settings if side == "source" else target_settings)(Properties("my.properties", written))
    except SettingError as error:
        assert str(error).startswith("my.properties")
    else:
        assert found.zookeeper
