"""Property files and command lines from users' documents, and every key that any Kafka version had."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from mirrormaker.embedded.certificates import Authority
from mirrormaker.errors import SettingError
from mirrormaker.settings import keys
from mirrormaker.settings.clients import SourceSettings, TargetSettings, source_settings, target_settings
from mirrormaker.settings.consistency import combine
from mirrormaker.settings.options import RunOptions, parse
from mirrormaker.settings.properties import read

HERE = Path(__file__).parent


def source(name: str) -> SourceSettings:
    return source_settings(read(str(HERE / "seeds" / f"{name}-consumer.properties"), "--consumer.config"))


def target(name: str) -> TargetSettings:
    return target_settings(read(str(HERE / "seeds" / f"{name}-producer.properties"), "--producer.config"))


def options(line: str) -> RunOptions:
    return parse(shlex.split(line))


def refusal(path: str) -> str:
    with pytest.raises(SettingError) as error:
        (source if "consumer" in path else target)(path.rpartition("-")[0])
    return str(error.value)


def test_a_file_of_0_7_is_understood() -> None:
    """The file is from Hortonworks' guides of 2016 and 2019."""
    found = source("hdp")
    assert (found.zookeeper, found.endpoint.bootstrap) == ("hdp1:2181/kafka", ())
    assert found.zookeeper_timeout == 30
    assert found.group_id == found.endpoint.client_id == "dp-MirrorMaker-test-datapl"
    assert found.shallow is True
    assert (found.include, found.exclude) == ("app_log", None)
    (note,) = found.notes
    assert "line 2: zk.connectiontimeout.ms=1000000: the longest wait is 30 s" in note


def test_a_producer_file_of_0_7_is_understood() -> None:
    found = target("hdp")
    assert (found.zookeeper, found.endpoint.bootstrap) == ("hdp1:2181/kafka-test", ())
    assert found.codec == 0
    assert found.max_request_bytes == 10_000_000
    assert found.linger == 1.0
    assert found.acks == -1
    (note,) = found.notes
    assert "these settings have no effect: producer.type (mirrormaker settings " in note


def test_both_together_forward_batches_as_they_are() -> None:
    checked, _, combined = combine(options("--consumer.config c --producer.config p"), [source("hdp")], target("hdp"))
    assert checked.include == "app_log", "no option names topics, so the file does"
    assert combined.codec is None, "codec 0 and the shallow iterator belong together"
    assert "compressed batches stay compressed" in combined.notes[-2]
    assert combined.linger == 0, "and they do not wait to be packed with others"
    assert "they do not wait for others" in combined.notes[-1]


def test_a_dash_for_a_colon_is_refused_with_the_right_address() -> None:
    """The files of the best practices have a dash in one of three addresses, on both sides."""
    for side, name in (("consumer", "source"), ("producer", "target")):
        said = refusal(f"best-practices-{side}")
        assert "line 1: bootstrap.servers=" in said
        assert said.endswith(
            f"'kafka-{name}-server3-6667' has a dash where the colon belongs; write kafka-{name}-server3:6667"
        )


def test_the_best_practices_are_understood_once_that_is_mended(tmp_path: Path) -> None:
    for side in ("consumer", "producer"):
        text = (HERE / "seeds" / f"best-practices-{side}.properties").read_text()
        (tmp_path / side).write_text(text.replace("server3-6667", "server3:6667"))
    found = source_settings(read(str(tmp_path / "consumer"), "--consumer.config"))
    assert [host for host, _ in found.endpoint.bootstrap] == [f"kafka-source-server{n}" for n in (1, 2, 3)]
    assert (found.group_id, found.include) == ("dp-MirrorMaker-group", "app_log")
    assert (found.endpoint.client_id, found.notes) == ("mirror_maker_consumer", ())
    written = target_settings(read(str(tmp_path / "producer"), "--producer.config"))
    assert (written.acks, written.batch_bytes) == (1, 512 << 10)
    (note,) = written.notes
    assert "line 5: batch.size=100: taken as a number of messages, because it is less than 1024" in note


def test_the_advice_against_data_loss_is_understood() -> None:
    assert source("no-data-loss").notes == ()
    assert source("no-data-loss").auto_offset_reset == "earliest"
    found = target("no-data-loss")
    assert (found.max_in_flight, found.acks, found.notes) == (1, -1, ())


def test_hdinsight_finds_its_source_through_zookeeper() -> None:
    found = source("hdinsight")
    assert found.zookeeper.count(":2181") == 3
    assert (found.group_id, found.endpoint.bootstrap, found.notes) == ("mirrorgroup", (), ())
    assert len(target("hdinsight").endpoint.bootstrap) == 2
    assert target("hdinsight").codec == 0


@pytest.mark.parametrize("name", ["kerberos-consumer", "kerberos-producer"])
def test_kerberos_without_a_login_configuration_says_how_to_name_one(name: str) -> None:
    said = refusal(name)
    assert "security.protocol=SASL_PLAINTEXT needs a login" in said
    assert "--jaas.config FILE" in said


def test_the_printed_tls_consumer_is_understood(tmp_path: Path) -> None:
    """Use two JKS stores, made as the documents describe."""
    authority = Authority(tmp_path)
    text = (HERE / "seeds" / "ssl-consumer.properties").read_text()
    assert text.count("test1234") == 3
    trust, keys_of = authority.truststore("test1234"), authority.issue("client").jks("test1234", "test1234")
    text = text.replace("/var/private/ssl/kafka.client.truststore.jks", str(trust))
    text = text.replace("/var/private/ssl/kafka.client.keystore.jks", str(keys_of))
    (tmp_path / "consumer").write_text(text)
    found = source_settings(read(str(tmp_path / "consumer"), "--consumer.config"))
    assert found.endpoint.security.principal == "User:CN=client,O=test"
    assert found.notes == ()
    assert "test1234" not in repr(found)


def test_a_store_that_is_not_there_is_named_without_a_word_of_the_password() -> None:
    said = refusal("ssl-consumer")
    assert "ssl.keystore.location=/var/private/ssl/kafka.client.keystore.jks: no such file or directory" in said
    assert "test1234" not in said


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('--consumer.config c --producer.config p --whitelist="topic1, topic"', {"include": "topic1, topic"}),
        ('--consumer.config c --producer.config p --white-list=".*"', {"include": ".*"}),
        ('--consumer.config c --producer.config p --blacklist="__consumer-offsets"', {"exclude": "__consumer-offsets"}),
        ("--consumer.config c --producer.config p --whitelist my-topic --new.consumer", {"include": "my-topic"}),
        ("--consumer.config c --producer.config p --whitelist testtopic --num.streams 4", {"num_streams": 4}),
        (
            '--consumer.config a --consumer.config b --num.streams 2 --producer.config p --whitelist=".*"',
            {"consumer_config": ("a", "b"), "num_streams": 2, "producer_config": "p"},
        ),
        ("--consumer.config c --producer.config p --whitelist x --queue.size 2000", {"queue_size": 2000}),
        ("--consumer.config c --producer.config p --whitelist x --num.producers 2", {"num_producers": 2}),
        ("--consumer.config c --producer.config p --abortOnSendFail --whitelist x", {"abort_on_send_failure": True}),
        ("--consumer.config c --producer.config p --whitelist x --abort.on.send.fail", {"abort_on_send_failure": True}),
    ],
)
def test_a_command_line_as_it_is_printed(line: str, expected: dict[str, object]) -> None:
    found = options(line)
    assert {name: getattr(found, name) for name in expected} == expected


def test_every_key_that_kafka_ever_had_is_known() -> None:
    """keys.txt holds the keys that Kafka's own classes list."""
    lines = [line.split() for line in (HERE / "keys.txt").read_text().splitlines() if not line.startswith("#")]
    assert len(lines) > 200
    assert [(side, name) for side, name in lines if name not in keys.TABLE[side]] == []
