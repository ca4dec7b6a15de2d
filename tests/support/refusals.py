"""Brokers' answers with an error code of our choice: for some topics of the answer, or for the whole answer.

A request that would change something is refused as a broker refuses it: the broker behind the proxy does not get to see
the refused topics. The answer to a request that only reads is changed on its way back.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafka.protocol.admin import CreatePartitionsResponse, CreateTopicsResponse
from kafka.protocol.consumer import (
    FetchRequest,
    OffsetCommitResponse,
)

from mirrormaker.kafka_errors import NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT
from mirrormaker.wire.protocol import fetch, group_messages, messages, produce
from mirrormaker.wire.protocol.codec import Reader
from tests.support.answers import NONE_ABORTED, FetchAnswer, ProduceAnswer, encode_fetch_answer, encode_produce_answer
from tests.support.whole_refusals import WHOLE_ANSWERS, encoded

WHOLE = ""  # in place of a topic: the whole answer is refused
NETWORK_EXCEPTION = 13

REQUESTS = {
    "Produce": 0, "Fetch": 1, "ListOffsets": 2, "Metadata": 3, "OffsetCommit": 8, "OffsetFetch": 9,
    "FindCoordinator": 10, "JoinGroup": 11, "Heartbeat": 12, "LeaveGroup": 13, "SyncGroup": 14, "ListGroups": 16,
    "SaslHandshake": 17, "ApiVersions": 18, "CreateTopics": 19, "InitProducerId": 22, "OffsetForLeaderEpoch": 23,
    "DescribeConfigs": 32, "SaslAuthenticate": 36, "CreatePartitions": 37, "DescribeProducers": 61,
    "DescribeShareGroupOffsets": group_messages.DESCRIBE_SHARE_OFFSETS,
    "AlterShareGroupOffsets": group_messages.ALTER_SHARE_OFFSETS,
}  # fmt: skip
_NAMES = {key: name for name, key in REQUESTS.items()}

# With these codes a broker does not say that it refuses a batch: it has appended it, or nobody knows.
_APPENDED = frozenset({REQUEST_TIMED_OUT, NETWORK_EXCEPTION, NOT_ENOUGH_REPLICAS_AFTER_APPEND})


class Refusal:
    """One type of request that is refused: its codes by topic, and how often each was answered."""

    def __init__(self, request: str, codes: Mapping[str, int], times: int | None = None) -> None:
        """`times` limits how often each topic is refused."""
        self.request, self.codes, self._times = request, dict(codes), times
        self.hits: Counter[str] = Counter()

    def code(self, topic: str) -> int:
        """Return the topic's code; 0 if it is not refused, or not any more."""
        is_over = self._times is not None and self.hits[topic] >= self._times
        return 0 if is_over else self.codes.get(topic, 0)


class Script:
    """All refusals of one cluster, and the names that belong to its topic ids."""

    def __init__(self) -> None:
        self.refusals: tuple[Refusal, ...] = ()
        self.seen: Counter[str] = Counter()  # how often each request has come
        self.names: dict[bytes, str] = {}
        # The partitions of each fetch session, by topic (name or id) and number.
        self.sessions: dict[int, set[tuple[str | bytes, int]]] = {}

    def is_refused(self, request: str, topic: str | bytes) -> bool:
        """Return True if the topic is refused at the moment."""
        return any(refusal.request == request and refusal.code(self.name(topic)) for refusal in self.refusals)

    def code(self, request: str, topic: str | bytes) -> int:
        """Return the error code to answer for a topic, and count it; 0 if it is not refused."""
        name = self.name(topic)
        for refusal in self.refusals:
            if refusal.request == request and (code := refusal.code(name)):
                refusal.hits[name] += 1
                return code
        return 0

    def name(self, topic: str | bytes) -> str:
        """Return the name of a topic that is given by its name or its id."""
        return topic if isinstance(topic, str) else self.names.get(topic, "unknown id")


class Header(NamedTuple):
    """The beginning of a request."""

    api_key: int
    version: int
    correlation: int
    size: int  # of the header, in bytes

    @classmethod
    def of(cls, request: bytes) -> Header:
        """Decode the header of a request."""
        api_key, version, correlation, client_id = struct.unpack_from(">hhih", request)
        size = 10 + max(0, client_id)
        if _is_flexible(api_key, version):
            size += 1  # no tagged fields: none are defined
            assert request[size - 1] == 0, "the request's header has tagged fields"
        return cls(api_key, version, correlation, size)


class Exchange:
    """One request on its way to a broker, and its answer on the way back."""

    def __init__(self, script: Script, request: bytes) -> None:
        self.header = Header.of(request)
        self.name = _NAMES.get(self.header.api_key, f"API key {self.header.api_key}")
        self._script = script
        script.seen[self.name] += 1
        self._change: Callable[[bytes], bytes] = lambda answer: answer
        self.expects_answer = True
        # The request for the broker; None if the proxy answers it alone.
        self.forwarded: bytes | None = request
        body = request[self.header.size :]
        if self.name in WHOLE_ANSWERS and (code := script.code(self.name, WHOLE)):
            refused = WHOLE_ANSWERS[self.name](self.header.version, code, body)
            self.forwarded, self._change = None, lambda _: refused
        elif self.name in _ROWS_READ:
            self._change = self._change_rows
        elif self.name in _ROWS_WRITTEN:
            self._withhold_rows(request, body)
        elif self.name == "Produce":
            self._produce(request, body)
        elif self.name == "Fetch":
            self._fetch(request, body)

    def answer(self, frame: bytes | None) -> bytes:
        """Return the answer for the client; `frame` is the broker's, None if it did not get the request."""
        size = 5 if _is_flexible_answer(*self.header[:2]) else 4
        head = frame[:size] if frame is not None else struct.pack(">i", self.header.correlation) + bytes(size - 4)
        return head + self._change(b"" if frame is None else frame[size:])

    # -- requests that kafka-python decodes

    def _change_rows(self, body: bytes) -> bytes:
        kind, refuse = _ROWS_READ[self.name]
        answer = messages.decode_response(kind, body, self.header.version)
        if not refuse(self._script, answer):
            return body
        return encoded(answer, self.header.version)

    def _withhold_rows(self, request: bytes, body: bytes) -> None:
        kind, response, attribute, refused_row = _ROWS_WRITTEN[self.name]
        version = self.header.version
        decoded: Any = kind.decode(body, version=version)
        refused, kept = [], []
        for row in decoded.topics:
            code = self._script.code(self.name, row.name)
            if code:
                refused.append(refused_row(row, code))
            else:
                kept.append(row)
        if not refused:
            return
        decoded.topics = kept
        self.forwarded = request[: self.header.size] + encoded(decoded, version) if kept else None

        def change(answered: bytes) -> bytes:
            answer: Any = messages.decode_response(kind, answered, version) if kept else response(**{attribute: []})
            setattr(answer, attribute, [*getattr(answer, attribute), *refused])
            return encoded(answer, version)

        self._change = change

    # -- Produce and Fetch, which we frame by hand

    def _produce(self, request: bytes, body: bytes) -> None:
        version, script = self.header.version, self._script
        acks, timeout, topics = _produced(version, body)
        self.expects_answer = acks != 0
        errors: dict[tuple[str | bytes, int], int] = {}
        kept = []
        for topic, partitions in topics:
            code = script.code(self.name, topic)
            if code:
                errors |= {(topic, partition): code for partition, _ in partitions}
            if not code or code in _APPENDED:
                kept.append((topic, partitions))
        if not errors:
            return
        rows = [(t if isinstance(t, str) else "", t if isinstance(t, bytes) else b"", parts) for t, parts in kept]
        parts = produce.encode_request(version, rows, acks=acks, timeout_ms=timeout)
        self.forwarded = request[: self.header.size] + b"".join(map(bytes, parts)) if kept else None

        def change(answered: bytes) -> bytes:
            results = produce.decode_response(version, memoryview(answered)) if kept else []
            found = {result[:2]: result for result in results}
            refused = {key: produce.Appended(*key, code, -1, None) for key, code in errors.items()}
            return encode_produce_answer(version, ProduceAnswer(_by_topic((found | refused).values()), [], None, []))

        self._change = change

    def _fetch(self, request: bytes, body: bytes) -> None:
        version, script = self.header.version, self._script
        wanted: Any = FetchRequest.decode(body, version=version)
        keys = _fetched_keys(wanted.topics, version)
        session = wanted.session_id or 0
        if wanted.session_epoch is not None and wanted.session_epoch > 0:
            forgotten = {(_topic(t, version), p) for t in wanted.forgotten_topics_data for p in t.partitions}
            keys |= script.sessions.get(session, set()) - forgotten
        if any(script.is_refused(self.name, topic) for topic, _ in keys):
            # A broker does not wait for more records if it has an error to tell.
            at = self.header.size + (0 if version >= 15 else 4)
            self.forwarded = request[:at] + bytes(4) + request[at + 4 :]

        def change(answered: bytes) -> bytes:
            session = struct.unpack_from(">i", answered, 6)[0] if version >= 7 else 0
            if session:
                script.sessions[session] = set(keys)
            codes = {topic: script.code(self.name, topic) for topic in {topic for topic, _ in keys}}
            if not any(codes.values()):
                return answered
            error, parts = fetch.decode_response(version, memoryview(answered))
            found = {part[:2]: part for part in parts}
            for key in keys:
                if code := codes[key[0]]:
                    found[key] = fetch.FetchedPartition(*key, code, -1, -1, -1, NONE_ABORTED, None, memoryview(b""))
            given = encode_fetch_answer(version, FetchAnswer(error, _by_topic(found.values()), None, []))
            return given[:6] + struct.pack(">i", session) + given[10:] if version >= 7 else given

        self._change = change


def _is_flexible(api_key: int, version: int) -> bool:
    # kafka-python has no classes for share groups, whose requests have always been flexible.
    return api_key not in _KINDS or bool(_KINDS[api_key].flexible_version_q(version))


def _is_flexible_answer(api_key: int, version: int) -> bool:
    """Return True if the answer's header ends in tagged fields; that of ApiVersions never does."""
    return api_key != REQUESTS["ApiVersions"] and _is_flexible(api_key, version)


def _requests() -> Iterable[Any]:
    found = (getattr(messages, name) for name in messages.__all__ if name.endswith("Request"))
    return (*found, FetchRequest)


_KINDS = {kind.API_KEY: kind for kind in _requests()}


def _produced(version: int, body: bytes) -> tuple[int, int, list[tuple[str | bytes, list[tuple[int, memoryview]]]]]:
    """Return acks, timeout and the batches of a Produce request, by topic name or id."""
    reader = Reader(memoryview(body), produce.is_flexible(version))
    if version >= produce.FIRST_WITH_RECORD_BATCHES:
        reader.string()  # transactional id
    acks, timeout = reader.take(struct.Struct(">hi"))
    topics: list[tuple[str | bytes, list[tuple[int, memoryview]]]] = []
    for _ in range(reader.length()):
        topic = bytes(reader.slice(16)) if version >= 13 else reader.string() or ""
        partitions = []
        for _ in range(reader.length()):
            (partition,) = reader.take(struct.Struct(">i"))
            partitions.append((partition, reader.slice(max(0, reader.length()))))
            reader.skip_tags()
        reader.skip_tags()
        topics.append((topic, partitions))
    return acks, timeout, topics


def _topic(row: Any, version: int) -> str | bytes:
    return bytes(row.topic_id.bytes) if version >= 13 else str(row.topic)


def _fetched_keys(topics: Iterable[Any], version: int) -> set[tuple[str | bytes, int]]:
    return {(_topic(topic, version), part.partition) for topic in topics for part in topic.partitions}


def _by_topic(parts: Iterable[Any]) -> list[tuple[str, bytes, list[Any]]]:
    """Group the partitions of an answer by topic, as its encoder wants them."""
    found: dict[str | bytes, list[Any]] = defaultdict(list)
    for part in parts:
        found[part.topic].append(part)
    return [(t if isinstance(t, str) else "", t if isinstance(t, bytes) else bytes(16), p) for t, p in found.items()]


# -- the answers of each request: which rows to change, and what a broker leaves out of a refused one


def _metadata(script: Script, answer: Any) -> bool:
    refused = False
    for topic in answer.topics:
        if topic.name and topic.topic_id is not None:
            script.names[topic.topic_id.bytes] = topic.name
        if code := script.code("Metadata", topic.name or ""):
            topic.error_code, topic.partitions, refused = code, [], True
    return refused


def _partitions(request: str, topic_field: str, **blank: Any) -> Callable[[Script, Any], bool]:
    """Return a function that refuses every partition of a topic, and sets the other fields of the row to `blank`."""

    def refuse(script: Script, answer: Any) -> bool:
        refused = False
        # Young versions of OffsetFetch answer for several groups.
        for topic in [*(answer.topics or ()), *(t for g in getattr(answer, "groups", None) or () for t in g.topics)]:
            if topic.partitions and (code := script.code(request, getattr(topic, topic_field))):
                refused = True
                for partition in topic.partitions:
                    partition.error_code = code
                    for name, value in blank.items():
                        setattr(partition, name, value)
        return refused

    return refuse


def _configs(script: Script, answer: Any) -> bool:
    refused = False
    for result in answer.results:
        if code := script.code("DescribeConfigs", result.resource_name):
            result.error_code, result.configs, refused = code, [], True
    return refused


_ROWS_READ: dict[str, tuple[Any, Callable[[Script, Any], bool]]] = {
    "Metadata": (messages.MetadataRequest, _metadata),
    "ListOffsets": (messages.ListOffsetsRequest, _partitions("ListOffsets", "name", offset=-1, timestamp=-1)),
    "OffsetFetch": (messages.OffsetFetchRequest, _partitions("OffsetFetch", "name", committed_offset=-1, metadata="")),
    "OffsetForLeaderEpoch": (
        messages.OffsetForLeaderEpochRequest,
        _partitions("OffsetForLeaderEpoch", "topic", leader_epoch=-1, end_offset=-1),
    ),
    "DescribeProducers": (
        messages.DescribeProducersRequest,
        _partitions("DescribeProducers", "name", active_producers=[]),
    ),
    "DescribeConfigs": (messages.DescribeConfigsRequest, _configs),
}


def _refused_commit(row: Any, code: int) -> Any:
    topic = OffsetCommitResponse.OffsetCommitResponseTopic
    partition = topic.OffsetCommitResponsePartition
    rows = [partition(partition_index=p.partition_index, error_code=code) for p in row.partitions]
    return topic(name=row.name, partitions=rows)


def _refused_creation(row: Any, code: int) -> Any:
    return CreateTopicsResponse.CreatableTopicResult(
        name=row.name, error_code=code, error_message="refused", num_partitions=-1, replication_factor=-1, configs=[]
    )


def _refused_growth(row: Any, code: int) -> Any:
    return CreatePartitionsResponse.CreatePartitionsTopicResult(name=row.name, error_code=code, error_message="refused")


# The request, its response, the response's list of rows, and a row with an error code for a row of the request.
_ROWS_WRITTEN: dict[str, tuple[Any, Any, str, Callable[[Any, int], Any]]] = {
    "OffsetCommit": (messages.OffsetCommitRequest, OffsetCommitResponse, "topics", _refused_commit),
    "CreateTopics": (messages.CreateTopicsRequest, CreateTopicsResponse, "topics", _refused_creation),
    "CreatePartitions": (messages.CreatePartitionsRequest, CreatePartitionsResponse, "results", _refused_growth),
}
