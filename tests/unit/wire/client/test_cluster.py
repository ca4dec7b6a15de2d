"""A cluster whose brokers hang up, or send answers that cannot be decoded."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
import uuid
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsResponse

from mirrormaker.errors import BadFrame, ConnectionLost, HungUp, Silent
from mirrormaker.kafka_errors import LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.client.cluster_description import decode_description
from mirrormaker.wire.credentials import PLAINTEXT, Password, Sasl, Security
from mirrormaker.wire.transport.connection import Connection
from tests.support.peer import Talk, correlation_of, frame, hear, run, serving
from tests.support.scripted_broker import ScriptedBroker, metadata

_PRODUCE, _FETCH, _METADATA, _API_VERSIONS = 0, 1, 3, 18
_KNOWN = [
    ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=1)
    for key in (_PRODUCE, _FETCH, _API_VERSIONS, _METADATA)
]
_HINT = "if it asks for a login, security.protocol must be SASL_PLAINTEXT or SASL_SSL"


async def _answer_versions(reader: Reader, writer: Writer) -> bytes:
    """Answer ApiVersions, and return the next request."""
    answer = ApiVersionsResponse(error_code=0, api_keys=_KNOWN).encode(version=0)
    writer.write(frame(correlation_of(await hear(reader)), answer))
    return await hear(reader)


async def hangs_up(reader: Reader, writer: Writer) -> None:
    """Hang up on the first request after ApiVersions, as a broker does that requires a login."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        await _answer_versions(reader, writer)


async def talks_nonsense(reader: Reader, writer: Writer) -> None:
    """Answer Metadata with an array of two billion brokers."""
    request = await _answer_versions(reader, writer)
    writer.write(frame(correlation_of(request), struct.pack(">i", 0x7FFFFFFF)))
    await reader.read()


async def refreshed(talk: Talk, security: Security = PLAINTEXT, *, is_known: bool = False) -> None:
    """Read the metadata of a cluster with one broker; `is_known`: it was read before."""
    async with serving(talk) as port:
        cluster = Cluster(Endpoint((("127.0.0.1", port),), security=security))
        if is_known:
            cluster.brokers = {1: ("127.0.0.1", port)}
        try:
            await cluster.refresh()
        finally:
            cluster.close()
            await asyncio.sleep(0.01)


def test_a_broker_that_hangs_up_on_the_first_request_may_want_a_login() -> None:
    with pytest.raises(ConnectionLost, match=f"closed the connection; {_HINT}"):
        run(refreshed(hangs_up))


def test_a_client_that_has_logged_in_gets_no_hint_at_a_login() -> None:
    login = Security("SASL_PLAINTEXT", sasl=Sasl("PLAIN", Password("me", "hush")))
    with pytest.raises(ConnectionLost) as error:
        run(refreshed(hangs_up, login))
    assert _HINT not in str(error.value)


def test_a_broker_that_answered_before_and_hangs_up_is_an_ordinary_outage() -> None:
    with pytest.raises(HungUp) as error:
        run(refreshed(hangs_up, is_known=True))
    assert _HINT not in str(error.value)


def test_an_answer_that_cannot_be_decoded_names_the_broker_and_the_request() -> None:
    with pytest.raises(
        BadFrame, match=r"127\.0\.0\.1:\d+: the answer to MetadataRequest \(version 1\) cannot be decoded"
    ):
        run(refreshed(talks_nonsense))


# -- answers that are not to be believed


def test_an_answer_without_brokers_is_an_outage_and_changes_nothing() -> None:
    """A broker that has just started does not know its cluster yet."""

    async def test() -> None:
        broker = ScriptedBroker({})
        async with broker.running() as cluster:
            broker.answers[_METADATA] = metadata({1: broker.port}, {"orders": 2})
            await cluster.refresh()
            broker.answers[_METADATA] = metadata({}, {})
            with pytest.raises(ConnectionLost, match="knows no brokers of its cluster yet"):
                await cluster.refresh()
            assert set(cluster.topics) == {"orders"}
            assert set(cluster.brokers) == {1}
            broker.answers[_METADATA] = metadata({1: broker.port}, {"orders": 2})
            await cluster.refresh()

    run(test())


@pytest.mark.parametrize("names", [None, ["orders"]])
def test_topics_that_one_answer_does_not_name_are_kept_if_the_next_one_does(names: list[str] | None) -> None:
    async def test() -> None:
        broker = ScriptedBroker({})
        async with broker.running() as cluster:
            whole = metadata({1: broker.port}, {"orders": 2})
            answers = [whole, metadata({1: broker.port}, {}), whole]
            broker.answers[_METADATA] = lambda _version, _body: answers.pop(0)
            await cluster.refresh()
            await cluster.refresh(names)
            assert not answers
            assert len(cluster.topics["orders"].partitions) == 2

    run(test())


def test_another_broker_is_asked_for_topics_that_one_broker_no_longer_has() -> None:
    async def test() -> None:
        young, old = ScriptedBroker({}), ScriptedBroker({})
        async with old.running(), young.running() as cluster:
            brokers = {1: young.port, 2: old.port}
            young.answers[_METADATA] = old.answers[_METADATA] = metadata(brokers, {"orders": 2})
            await cluster.refresh()
            assert not old.heard
            young.answers[_METADATA] = metadata(brokers, {})
            await cluster.refresh()
            assert set(cluster.topics) == {"orders"}
            assert [key for key, _ in old.heard] == [_API_VERSIONS, _METADATA]

    run(test())


def test_a_deleted_topic_is_gone_after_one_refresh_that_asks_twice() -> None:
    async def test() -> None:
        broker = ScriptedBroker({})
        async with broker.running() as cluster:
            broker.answers[_METADATA] = metadata({1: broker.port}, {"orders": 2, "deleted": 1})
            await cluster.refresh()
            broker.heard.clear()
            broker.answers[_METADATA] = metadata({1: broker.port}, {"orders": 2})
            await cluster.refresh()
            assert set(cluster.topics) == {"orders"}
            await cluster.refresh()
            assert [key for key, _ in broker.heard] == [_METADATA] * 3

    run(test())


@pytest.mark.parametrize("code", [LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR, 9999])
@pytest.mark.parametrize("names", [None, ["orders", "new"]])
def test_a_topic_that_is_answered_with_an_error_stays_as_it_was(names: list[str] | None, code: int) -> None:
    """Its partitions may work as before, so nobody has to let go of them."""

    async def test() -> None:
        broker = ScriptedBroker({})
        async with broker.running() as cluster:
            broker.answers[_METADATA] = metadata({1: broker.port}, {"orders": 2, "others": 1})
            await cluster.refresh()
            broker.heard.clear()
            answer = metadata({1: broker.port}, {"orders": 0, "others": 1, "new": 0})
            answer.topics[0].error_code = answer.topics[2].error_code = code
            broker.answers[_METADATA] = answer
            await cluster.refresh(names)
            assert [key for key, _ in broker.heard] == [_METADATA]
            assert {name: len(topic.partitions) for name, topic in cluster.topics.items()} == {"orders": 2, "others": 1}
            assert cluster.refused == {"orders": code, "new": code}
            broker.answers[_METADATA] = metadata({1: broker.port}, {"orders": 3, "others": 1, "new": 1})
            await cluster.refresh(names)
            assert not cluster.refused
            assert len(cluster.topics["orders"].partitions) == 3

    run(test())


def test_a_topic_with_fewer_partitions_than_before_is_looked_at_twice() -> None:
    async def test() -> None:
        broker = ScriptedBroker({})
        async with broker.running() as cluster:
            whole = metadata({1: broker.port}, {"orders": 3})
            answers = [whole, metadata({1: broker.port}, {"orders": 1}), whole]
            broker.answers[_METADATA] = lambda _version, _body: answers.pop(0)
            await cluster.refresh()
            await cluster.refresh()
            assert len(cluster.topics["orders"].partitions) == 3

    run(test())


@pytest.mark.parametrize("wrong", [{"topic_id": 7}, {"cluster": "damaged"}], ids=["of a topic", "of the cluster"])
def test_an_id_that_only_one_answer_names_is_not_believed(wrong: dict[str, Any]) -> None:
    """Nothing in an answer has a checksum, and a topic with another id would be mirrored from its start."""

    async def test() -> None:
        broker = ScriptedBroker({})
        async with broker.running() as cluster:
            topics: dict[str, int | list[int]] = {"orders": 2}
            right = metadata({1: broker.port}, topics, topic_id=6)
            damaged = metadata({1: broker.port}, topics, **{"topic_id": 6, **wrong})
            other = metadata({1: broker.port}, topics, topic_id=8, cluster="new")
            answers = [right, damaged, right, damaged, other, other, other]
            broker.answers[_METADATA] = lambda _version, _body: answers.pop(0)
            await cluster.refresh()
            before = cluster.id, cluster.topics["orders"].id
            await cluster.refresh(["orders"])
            assert (cluster.id, cluster.topics["orders"].id) == before
            with pytest.raises(ConnectionLost, match="do not name the same ids"):
                await cluster.refresh()
            assert (cluster.id, cluster.topics["orders"].id) == before
            await cluster.refresh()
            assert (cluster.id, cluster.topics["orders"].id) == ("new", uuid.UUID(int=8).bytes)
            assert not answers

    run(test())


def test_partitions_after_a_gap_have_to_wait() -> None:
    """A broker leaves out a partition that never had a leader."""

    async def test() -> None:
        broker = ScriptedBroker({})
        async with broker.running() as cluster:
            topics: dict[str, int | list[int]] = {"grown": [0, 1, 3], "new": [1, 2], "absurd": [0, 2**31 - 1]}
            broker.answers[_METADATA] = metadata({1: broker.port}, topics)
            await cluster.refresh()
            assert {name: list(topic.partitions) for name, topic in cluster.topics.items()} == {
                "grown": [0, 1],
                "absurd": [0],
            }

    run(test())


def test_the_port_of_a_controller_is_an_outage_that_says_so() -> None:
    async def test() -> None:
        row = ApiVersionsResponse.ApiVersion(api_key=_FETCH, min_version=0, max_version=17)
        broker = ScriptedBroker({_API_VERSIONS: ApiVersionsResponse(error_code=0, api_keys=[row])})
        async with broker.running() as cluster:
            with pytest.raises(ConnectionLost, match="is that the port of a controller"):
                await cluster.refresh()

    run(test())


def test_a_broker_that_talks_nonsense_is_not_asked_again_if_there_is_another_one() -> None:
    async def test() -> None:
        broken, sound = ScriptedBroker({}), ScriptedBroker({})
        async with sound.running(), broken.running() as cluster:
            brokers = {1: broken.port, 2: sound.port}
            broken.answers[_METADATA] = sound.answers[_METADATA] = metadata(brokers, {"orders": 1})
            await cluster.refresh()
            await cluster.connection(2)
            broken.answers[_METADATA] = b"nonsense"
            with pytest.raises(BadFrame):
                await cluster.refresh()
            await cluster.refresh()

    run(test())


def test_metadata_that_have_not_changed_are_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def counted(data: bytes, version: int) -> Any:
        decoded.append(len(data))
        return decode_description(data, version)

    async def test() -> None:
        broker = ScriptedBroker({})
        async with broker.running() as cluster:
            broker.answers[_METADATA] = metadata({1: broker.port}, {"orders": 2})
            monkeypatch.setattr("mirrormaker.wire.client.cluster_description.decode_description", counted)
            for _ in range(5):
                await cluster.refresh()
                del cluster.topics["orders"]
            assert len(decoded) == 1
            broker.answers[_METADATA] = metadata({1: broker.port}, {"orders": 3})
            await cluster.refresh()
            assert len(cluster.topics["orders"].partitions) == 3
            assert len(decoded) == 2

    run(test())


def test_long_answers_are_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def noted(data: bytes, version: int) -> Any:
        threads.append(threading.current_thread())
        return decode_description(data, version)

    async def test() -> None:
        broker = ScriptedBroker({})
        async with broker.running() as cluster:
            monkeypatch.setattr("mirrormaker.wire.client.cluster_description.decode_description", noted)
            for partitions in (2, 3000):
                broker.answers[_METADATA] = metadata({1: broker.port}, {"orders": partitions})
                await cluster.refresh()
                assert len(cluster.topics["orders"].partitions) == partitions
            assert [thread is threading.current_thread() for thread in threads] == [True, False]
            broker.answers[_METADATA] = b"\0" * 50_000 + b"\1"
            with pytest.raises(BadFrame):
                await cluster.refresh()

    run(test())


def test_a_connection_on_which_an_answer_is_overdue_is_closed() -> None:
    """It may be dead without a word; the next request must not go the same way."""

    async def body() -> None:
        async def silent(reader: Reader, writer: Writer) -> None:
            while await reader.read(1 << 20):
                pass
            writer.close()
            gone.set()

        gone = asyncio.Event()
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        connection = Connection("127.0.0.1", server.sockets[0].getsockname()[1], client_id="test")
        await connection.open(5)
        answer = connection.request(1, 4, False, [b""])
        with pytest.raises(Silent):
            await connection.answered_within(0.05, "Fetch", answer)
        assert not connection.is_open
        await asyncio.wait_for(gone.wait(), 5)
        server.close()

    asyncio.run(body())
