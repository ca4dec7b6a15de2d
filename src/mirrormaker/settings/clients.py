"""Consumer and producer files as typed values.

One table per side says what each known key means here. What would change the copy and is not built yet is refused by name; what has
no meaning for an engine that forwards whole batches is accepted, and said where someone may have tuned it; the rest is unknown,
and a note names the nearest known key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from mirrormaker.errors import SettingError
from mirrormaker.settings.addresses import addresses
from mirrormaker.settings.properties import Properties
from mirrormaker.wire.cluster import Endpoint
from mirrormaker.wire.compression import CODECS

T = TypeVar("T")

DEFAULT_BATCH = (
    512 << 10
)  # of what is packed here: half of what brokers take by default. Kafka's own producer waits for 16 KB.


@dataclass(frozen=True)
class SourceSettings:
    """One `--consumer.config`."""

    path: str
    endpoint: Endpoint
    group_id: str
    instance_id: str | None
    auto_offset_reset: str | None
    read_committed: bool
    session_timeout_ms: int
    heartbeat_interval_ms: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    partition_fetch_bytes: int
    metadata_max_age_ms: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TargetSettings:
    """The `--producer.config`."""

    path: str
    endpoint: Endpoint
    acks: int
    max_in_flight: int
    max_request_bytes: int
    buffer_bytes: int
    batch_bytes: int
    linger: float  # seconds
    codec: int | None  # None: as it came
    partition_by: str | None
    notes: tuple[str, ...]


# Keys that mean nothing to a mirror that forwards batches as they are; accepted so that files keep working.
_COMMON_UNUSED = (
    "client.dns.lookup", "client.rack", "connections.max.idle.ms", "interceptor.classes", "metric.reporters",
    "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "receive.buffer.bytes", "send.buffer.bytes",
    "retry.backoff.ms", "retry.backoff.max.ms",
)  # fmt: skip
_CONSUMER_UNUSED = (
    *_COMMON_UNUSED, "key.deserializer", "value.deserializer", "auto.commit.interval.ms", "check.crcs", "max.poll.interval.ms",
    "max.poll.records", "enable.auto.commit", "exclude.internal.topics", "default.api.timeout.ms", "allow.auto.create.topics",
)  # fmt: skip
_PRODUCER_UNUSED = (
    *_COMMON_UNUSED, "key.serializer", "value.serializer", "delivery.timeout.ms", "max.block.ms",
    "retries", "enable.idempotence", "metadata.max.age.ms", "partitioner.class", "block.on.buffer.full", "producer.type",
)  # fmt: skip
# Of those, the ones that someone tuned and may look for: the summary says that they do nothing here.
_MISSED = (
    "retries", "producer.type", "partitioner.class", "interceptor.classes", "receive.buffer.bytes",
    "send.buffer.bytes",
)  # fmt: skip
_CONSUMER_USED = (
    "bootstrap.servers", "group.id", "group.instance.id", "client.id", "auto.offset.reset", "isolation.level",
    "session.timeout.ms", "heartbeat.interval.ms", "fetch.max.wait.ms", "fetch.min.bytes", "fetch.max.bytes",
    "max.partition.fetch.bytes", "request.timeout.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms",
    "socket.connection.setup.timeout.ms", "metadata.max.age.ms", "partition.assignment.strategy", "security.protocol",
    "compression.type",
)  # fmt: skip
_PRODUCER_USED = (
    "bootstrap.servers", "client.id", "acks", "max.in.flight.requests.per.connection", "max.request.size", "buffer.memory",
    "request.timeout.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "socket.connection.setup.timeout.ms",
    "security.protocol", "compression.type", "batch.size", "linger.ms", "partition.by",
)  # fmt: skip
_NOT_BUILT = re.compile(
    r"(?P<security>(ssl|sasl)\..*)|(?P<zookeeper>zk\.connect|zookeeper\.connect)|(?P<legacy>groupid|broker\.list|"
    r"metadata\.broker\.list|compression\.codec|shallow\.?iterator\.enable|mirror\.topics\.(whitelist|blacklist))"
)
_NOT_BUILT_WHY = {
    "security": "TLS and SASL are not built yet",
    "zookeeper": "finding brokers through ZooKeeper is not built yet; use bootstrap.servers=host:9092",
    "legacy": "the names of Kafka 0.7 and 0.8 are not built yet; use today's name",
}


class _File:
    """A property file on its way to typed values, collecting what the summary should mention."""

    def __init__(self, properties: Properties, used: tuple[str, ...], unused: tuple[str, ...]) -> None:
        self.properties = properties
        self.notes: list[str] = []
        for key in properties:
            refused = _NOT_BUILT.fullmatch(key)
            if refused and refused.lastgroup:
                raise SettingError(f"{properties.where(key)}: {key}: {_NOT_BUILT_WHY[refused.lastgroup]}")
            if key not in used and key not in unused:
                near = difflib.get_close_matches(key, [*used, *unused], 1, 0.75)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.notes.append(f"{properties.where(key)}: {key} is not known{hint}")
        idle = [key for key in properties if key in _MISSED]
        if idle:
            self.notes.append(f"{properties.path}: without effect here: {', '.join(idle)}")
        protocol = self.text("security.protocol", "PLAINTEXT")
        if protocol.upper() != "PLAINTEXT":
            raise SettingError(
                f"{properties.where('security.protocol')}: security.protocol={protocol}: {_NOT_BUILT_WHY['security']}"
            )

    def text(self, key: str, default: str) -> str:
        return self.properties[key].value.strip() if key in self.properties else default

    def required(self, key: str, example: str) -> str:
        value = self.text(key, "")
        if not value:
            raise SettingError(f"{self.properties.path}: {key} is missing; add a line like {key}={example}")
        return value

    def number(self, key: str, default: int, low: int = 0, high: int = 2**31 - 1) -> int:
        return self._read(
            key, default, _whole_number, lambda n: low <= n <= high, f"a whole number from {low} to {high}"
        )

    def choice(self, key: str, default: str, *choices: str) -> str:
        return self._read(key, default, str.lower, lambda v: v in choices, "one of " + ", ".join(choices))

    def _read(self, key: str, default: T, parse: Callable[[str], T], good: Callable[[T], bool], wanted: str) -> T:
        if key not in self.properties:
            return default
        text = self.properties[key].value.strip()
        value: T | None
        try:
            value = parse(text)
        except ValueError:
            value = None
        if value is None or not good(value):
            raise SettingError(f"{self.properties.where(key)}: {key}={text}: this must be {wanted}")
        return value

    def endpoint(self, client_id: str) -> Endpoint:
        servers = self.required("bootstrap.servers", "host:9092")
        return Endpoint(
            bootstrap=addresses(servers, self.properties.where("bootstrap.servers"), "bootstrap.servers"),
            client_id=self.text("client.id", client_id),
            request_timeout=self.number("request.timeout.ms", 30_000, 100) / 1000,
            connect_timeout=self.number("socket.connection.setup.timeout.ms", 10_000, 100) / 1000,
            backoff=self.number("reconnect.backoff.ms", 50, 1) / 1000,
            max_backoff=self.number("reconnect.backoff.max.ms", 1000, 1) / 1000,
        )


def _whole_number(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(text)
    return int(text)


def source_settings(properties: Properties) -> SourceSettings:
    file = _File(properties, _CONSUMER_USED, _CONSUMER_UNUSED)
    group = file.required("group.id", "mirror")
    if file.text("enable.auto.commit", "false").lower() == "true":
        file.notes.append(
            f"{properties.where('enable.auto.commit')}: positions are committed only after the target has them"
        )
    strategy = file.text("partition.assignment.strategy", "range")
    if "range" not in strategy.lower():
        raise SettingError(
            f"{properties.where('partition.assignment.strategy')}: partition.assignment.strategy={strategy}:"
            " only the range assignor is built; remove the line"
        )
    reset: str | None = file.choice("auto.offset.reset", "", "earliest", "latest", "none", "smallest", "largest")
    session = file.number("session.timeout.ms", 10_000, 1000)
    heartbeat = file.number("heartbeat.interval.ms", min(1000, session // 3), 100)
    if heartbeat >= session:
        raise SettingError(
            f"{properties.path}: heartbeat.interval.ms={heartbeat} must be less than session.timeout.ms={session}"
        )
    return SourceSettings(
        path=properties.path,
        endpoint=file.endpoint(group),
        group_id=group,
        instance_id=file.text("group.instance.id", "") or None,
        auto_offset_reset={"smallest": "earliest", "largest": "latest"}.get(reset or "", reset) or None,
        read_committed=file.choice("isolation.level", "read_uncommitted", "read_committed", "read_uncommitted")
        == "read_committed",
        session_timeout_ms=session,
        heartbeat_interval_ms=heartbeat,
        fetch_max_wait_ms=file.number("fetch.max.wait.ms", 500),
        fetch_min_bytes=file.number("fetch.min.bytes", 1),
        fetch_max_bytes=file.number("fetch.max.bytes", 50 << 20, 1024),
        partition_fetch_bytes=file.number("max.partition.fetch.bytes", 1 << 20, 1024),
        metadata_max_age_ms=file.number("metadata.max.age.ms", 300_000, 1),
        notes=tuple(file.notes),
    )


def target_settings(properties: Properties) -> TargetSettings:
    file = _File(properties, _PRODUCER_USED, _PRODUCER_UNUSED)
    codec = file.choice("compression.type", "producer", *CODECS, "producer", "")
    acks = file.choice("acks", "all", "all", "-1", "1", "0")
    if acks == "0":
        file.notes.append(f"{properties.where('acks')}: acks=0 is treated as acks=1: a mirror must know what arrived")
    in_flight = file.number("max.in.flight.requests.per.connection", 5, 1)
    if in_flight > 5:
        file.notes.append(
            f"{properties.where('max.in.flight.requests.per.connection')}: 5 is used: brokers recognise no more duplicates"
        )
    return TargetSettings(
        path=properties.path,
        endpoint=file.endpoint("mirrormaker"),
        acks=-1 if acks in ("all", "-1") else 1,
        max_in_flight=min(5, in_flight),
        max_request_bytes=file.number("max.request.size", 8 << 20, 1024),
        buffer_bytes=file.number("buffer.memory", 32 << 20, 1 << 20, 2**31 - 1),
        batch_bytes=max(1024, file.number("batch.size", DEFAULT_BATCH)),
        linger=file.number("linger.ms", 0) / 1000,
        codec=CODECS.index(codec) if codec in CODECS else None,
        partition_by=file.choice("partition.by", "", "key", "same", "") or None,
        notes=tuple(file.notes),
    )
