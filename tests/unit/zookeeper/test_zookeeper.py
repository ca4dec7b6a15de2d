"""What brokers of every era write into ZooKeeper, and how people write its address."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.errors import ClusterError, SettingError, ZooKeeperError
from mirrormaker.zookeeper.ensemble import ZooKeeper, parse_connect
from mirrormaker.zookeeper.registrations import Listener, Registration, broker_addresses, registration, requests_version

PLAIN = Listener("PLAINTEXT", "PLAINTEXT", "host1", 9092)


def read(text: str | dict[str, object]) -> Registration:
    data = text if isinstance(text, str) else json.dumps(text)
    return registration(1, data.encode(), "zk:2181: /brokers/ids/1")


# -- registrations

ERAS = {
    "0.7": "host1-1323987394000:host1:9092",
    "0.8": {"jmx_port": -1, "timestamp": "1416974968782", "host": "host1", "version": 1, "port": 9092},
    "0.9": {
        "jmx_port": -1, "timestamp": "1", "endpoints": ["PLAINTEXT://host1:9092"], "host": "host1", "version": 2, "port": 9092,
    },
    "0.10": {
        "jmx_port": -1, "timestamp": "1", "endpoints": ["PLAINTEXT://host1:9092"], "host": "host1", "version": 3, "port": 9092,
        "rack": "r1",
    },
    "1.0": {
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}, "endpoints": ["PLAINTEXT://host1:9092"],
        "jmx_port": -1, "host": "host1", "timestamp": "1", "port": 9092, "version": 4,
    },
    "3.9": {
        "features": {}, "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "endpoints": ["PLAINTEXT://host1:9092"], "jmx_port": -1, "host": "host1", "timestamp": "1", "port": 9092, "version": 5,
    },
}  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
def test_a_broker_of_every_era_is_found(era: str) -> None:
    assert read(ERAS[era]).listeners == (PLAIN,)  # type: ignore[arg-type]


def test_listeners_have_names_and_protocols_of_their_own() -> None:
    found = read(
        {
            "listener_security_protocol_map": {"INSIDE": "PLAINTEXT", "OUTSIDE": "SASL_SSL"},
            "endpoints": ["OUTSIDE://kafka.example.com:9094", "INSIDE://[2001:db8::1]:9092"],
            "host": None,
            "port": -1,
            "version": 4,
        }
    )
    assert found.listener() == Listener("INSIDE", "PLAINTEXT", "2001:db8::1", 9092)
    assert found.listener("SASL_SSL") == Listener("OUTSIDE", "SASL_SSL", "kafka.example.com", 9094)
    assert found.listener("SSL") is None


def test_a_distributions_own_name_of_a_protocol_is_known() -> None:
    found = read({"version": 2, "endpoints": ["PLAINTEXTSASL://host1:6667"], "host": "host1", "port": -1})
    assert found.listener("SASL_PLAINTEXT") == Listener("PLAINTEXTSASL", "SASL_PLAINTEXT", "host1", 6667)


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "{", "7", '"host:1"', '{"version": 1}', '{"host": null, "port": -1, "version": 1}',
        '{"host": "a", "port": "x", "version": 1}', '{"endpoints": ["PLAINTEXT:/a:1"], "version": 2}',
        '{"endpoints": ["PLAINTEXT://a:99999"], "version": 2}', '{"endpoints": "PLAINTEXT://a:1", "version": 2}',
        '{"endpoints": [1], "version": 2}', '{"endpoints": ["A://a:1"], "listener_security_protocol_map": {"A": 1}}',
        "creator:host:0", "creator:host:99999", "creator:host", "\xff\xfe",
    ],
)  # fmt: skip
def test_what_is_no_registration_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ClusterError, match=r"zk:2181: /brokers/ids/1 holds .* no broker's registration"):
        read(text)


@given(st.binary(max_size=60))
def test_whatever_a_znode_holds_the_answer_is_a_registration_or_one_error(data: bytes) -> None:
    try:
        found = registration(1, data, "here")
    except ClusterError:
        return
    assert all(listener.host and 0 < listener.port < 65536 for listener in found.listeners)


def test_each_brokers_address_for_the_wanted_protocol() -> None:
    both = Registration(1, 4, (PLAIN, Listener("SSL", "SSL", "host1", 9093)))
    secure = Registration(2, 4, (Listener("OUTSIDE", "SSL", "host2", 9093),))
    brokers = {1: both, 2: secure}
    assert broker_addresses(brokers) == {1: ("host1", 9092)}
    assert broker_addresses(brokers, "SSL") == {1: ("host1", 9093), 2: ("host2", 9093)}
    with pytest.raises(ClusterError, match=r"security.protocol=PLAINTEXT; there are OUTSIDE \(SSL\) at host2:9093$"):
        broker_addresses({2: secure})
    with pytest.raises(ClusterError, match=r"zk:2181 knows no broker.*host:2181/chroot"):
        broker_addresses({}, where="zk:2181")


def test_brokers_that_cannot_be_asked_for_their_version_are_known_by_their_registration() -> None:
    eras = {era: {1: read(text)} for era, text in ERAS.items() if era != "0.7"}  # type: ignore[arg-type]
    assert {era: requests_version(brokers) for era, brokers in eras.items()} == {
        "0.8": (0, 8, 2), "0.9": (0, 9), "0.10": None, "1.0": None, "3.9": None,
    }  # fmt: skip
    assert requests_version({**eras["3.9"], 2: eras["0.8"][1]}) == (0, 8, 2), (
        "the oldest counts in the middle of an upgrade"
    )
    with pytest.raises(ClusterError, match=r"Kafka 0\.7"):
        requests_version({1: read(str(ERAS["0.7"]))})


# -- addresses


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zk:2181", [("zk", 2181)], ""),
        ("zk", [("zk", 2181)], ""),
        (" a:2181 , b:2182 ", [("a", 2181), ("b", 2182)], ""),
        ("a:1,b:2/kafka", [("a", 1), ("b", 2)], "/kafka"),
        ("a:1/kafka/one/", [("a", 1)], "/kafka/one"),
        ("a:1/", [("a", 1)], ""),
        ("a:1,a:1,", [("a", 1)], ""),
        ("[::1]:2181,[2001:db8::2]/k", [("::1", 2181), ("2001:db8::2", 2181)], "/k"),
    ],
)
def test_an_address_is_understood(text: str, servers: list[tuple[str, int]], chroot: str) -> None:
    assert parse_connect(text) == (tuple(servers), chroot)


@pytest.mark.parametrize(
    "text", ["", "/kafka", ",", "a:b", "a:0", "a:65536", "a b:1", "::1:2181", "http://a:1", "a:1/../b"]
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SettingError, match=r"write host:2181,host2:2181/chroot$"):
        parse_connect(text)


# -- nobody there


def test_servers_that_refuse_are_named_with_their_reasons_in_time() -> None:
    with pytest.raises(ZooKeeperError) as error, ZooKeeper("127.0.0.1:1,no.such.host.invalid:2181/kafka", 0.3):
        pass
    text = str(error.value)
    assert text.startswith("ZooKeeper 127.0.0.1:1,no.such.host.invalid:2181/kafka cannot be reached within 0.")
    assert "127.0.0.1:1: connection refused" in text
    assert "no.such.host.invalid:2181: the name has no address" in text
    assert not error.value.unknown_host


def test_a_name_without_an_address_is_not_waited_for(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(ZooKeeperError, match="the name has no address") as error,
        ZooKeeper("no.such.host.invalid:2181"),
    ):
        pass
    assert error.value.unknown_host
    assert capfd.readouterr() == ("", "")
