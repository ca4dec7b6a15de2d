"""Consumer and producer files as typed values."""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.errors import SettingError
from mirrormaker.settings.login import LoginFiles, from_environment
from mirrormaker.settings.properties import Properties
from mirrormaker.settings.property_file import File
from mirrormaker.settings.security import idle_security, security
from mirrormaker.wire.client.cluster import Endpoint
from mirrormaker.wire.records.compression import CODECS

_LONGEST_ZOOKEEPER = 30.0  # seconds: a supervisor should see soon that there is none; old files say 1000


@dataclass(frozen=True)
class SourceSettings:
    """One `--consumer.config`."""

    path: str
    endpoint: Endpoint  # without brokers if only ZooKeeper is named
    zookeeper: str  # "": none
    zookeeper_timeout: float  # seconds
    broker_version: tuple[int, ...] | None
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
    include: str | None  # topics, where the command line names none
    exclude: str | None
    num_streams: int | None
    shallow: bool  # forward batches as they are
    offsets_storage: str  # "kafka", "zookeeper", "": not said
    dual_commit: bool
    notes: tuple[str, ...]

    @property
    def tells_zookeeper(self) -> bool:
        """Does someone look into ZooKeeper for how far the group is?"""
        return bool(self.zookeeper) and (self.dual_commit or self.offsets_storage == "zookeeper")


@dataclass(frozen=True)
class TargetSettings:
    """The `--producer.config`."""

    path: str
    endpoint: Endpoint
    zookeeper: str
    zookeeper_timeout: float
    broker_version: tuple[int, ...] | None
    acks: int
    max_in_flight: int
    max_request_bytes: int
    buffer_bytes: int
    batch_bytes: int
    linger: float  # seconds
    codec: int | None  # None: as it came
    partition_by: str | None
    notes: tuple[str, ...]


def source_settings(properties: Properties, logins: LoginFiles | None = None) -> SourceSettings:
    file = File(properties, "consumer")
    file.check()
    group = file.required("group.id", "mirror")
    session = file.number("session.timeout.ms")
    heartbeat = file.number("heartbeat.interval.ms")
    if not file.has("heartbeat.interval.ms"):
        heartbeat = min(heartbeat, session // 3)
    if heartbeat >= session:
        raise SettingError(
            f"{properties.path}: heartbeat.interval.ms={heartbeat} must be less than session.timeout.ms={session}"
        )
    include, exclude = file.text("mirror.topics.whitelist"), file.text("mirror.topics.blacklist")
    if include and exclude:
        raise SettingError(
            f"{file.where('mirror.topics.blacklist')}: mirror.topics.blacklist and mirror.topics.whitelist contradict each"
            " other: keep one of them"
        )
    return SourceSettings(
        path=properties.path,
        endpoint=_endpoint(file, group, logins),
        zookeeper=file.text("zookeeper.connect"),
        zookeeper_timeout=_zookeeper_timeout(file),
        broker_version=file.value("broker.version"),
        group_id=group,
        instance_id=file.text("group.instance.id") or None,
        auto_offset_reset=file.text("auto.offset.reset") if file.has("auto.offset.reset") else None,
        read_committed=file.text("isolation.level") == "read_committed",
        session_timeout_ms=session,
        heartbeat_interval_ms=heartbeat,
        fetch_max_wait_ms=file.number("fetch.max.wait.ms"),
        fetch_min_bytes=file.number("fetch.min.bytes"),
        fetch_max_bytes=file.number("fetch.max.bytes"),
        partition_fetch_bytes=file.number("max.partition.fetch.bytes"),
        metadata_max_age_ms=file.number("metadata.max.age.ms"),
        include=include or None,
        exclude=exclude or None,
        num_streams=file.value("mirror.consumer.numthreads"),
        shallow=file.value("shallow.iterator.enable"),
        offsets_storage=file.text("offsets.storage"),
        dual_commit=file.value("dual.commit.enabled"),
        notes=(
            *file.notes,
            *_two_ways(
                file, "ZooKeeper is asked for what brokers do not tell: an old group's offsets, old topics' settings"
            ),
            *_in_vain(file),
            *idle_security(file),
        ),
    )


def target_settings(properties: Properties, logins: LoginFiles | None = None) -> TargetSettings:
    file = File(properties, "producer")
    file.check()
    packing = file.text("compression.type")
    return TargetSettings(
        path=properties.path,
        endpoint=_endpoint(file, "mirrormaker", logins),
        zookeeper=file.text("zookeeper.connect"),
        zookeeper_timeout=_zookeeper_timeout(file),
        broker_version=file.value("broker.version"),
        acks=-1 if file.text("acks") == "all" else 1,
        max_in_flight=min(5, file.number("max.in.flight.requests.per.connection")),
        max_request_bytes=file.number("max.request.size"),
        buffer_bytes=file.number("buffer.memory"),
        batch_bytes=max(1024, file.number("batch.size")),
        linger=file.number("linger.ms") / 1000,
        codec=CODECS.index(packing) if packing in CODECS else None,
        partition_by=file.text("partition.by") or None,
        notes=(*file.notes, *_two_ways(file, "ZooKeeper is not asked"), *idle_security(file)),
    )


def _endpoint(file: File, client_id: str, logins: LoginFiles | None) -> Endpoint:
    if not file.has("zookeeper.connect"):
        file.required("bootstrap.servers", "host:9092")
    return Endpoint(
        bootstrap=file.value("bootstrap.servers") or (),
        client_id=file.text("client.id", client_id),
        request_timeout=file.number("request.timeout.ms") / 1000,
        connect_timeout=file.number("socket.connection.setup.timeout.ms") / 1000,
        backoff=file.number("reconnect.backoff.ms") / 1000,
        max_backoff=file.number("reconnect.backoff.max.ms") / 1000,
        broker_version=file.value("broker.version"),
        security=security(file, logins or from_environment()),
    )


def _zookeeper_timeout(file: File) -> float:
    return min(_LONGEST_ZOOKEEPER, file.number("zookeeper.connection.timeout.ms") / 1000)


def _in_vain(file: File) -> list[str]:
    """Offsets for ZooKeeper, and no ZooKeeper."""
    wanted = [key for key in ("dual.commit.enabled", "offsets.storage") if file.value(key) in (True, "zookeeper")]
    if not wanted or file.has("zookeeper.connect"):
        return []
    return [f"{file.where(wanted[0])}: {wanted[0]} does nothing without zookeeper.connect: offsets are kept in Kafka"]


def _two_ways(file: File, then: str) -> list[str]:
    """Brokers and ZooKeeper in one file: which of them is used must not be a guess."""
    brokers, zookeeper = file.written("bootstrap.servers"), file.written("zookeeper.connect")
    if brokers is None or zookeeper is None:
        return []
    return [f"{file.where('zookeeper.connect')}: {zookeeper.key}: the brokers of {brokers.key} are used; {then}"]
