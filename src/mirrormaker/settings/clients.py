"""Consumer and producer files as typed values: one class for a source, one for the target."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirrormaker.errors import SettingError
from mirrormaker.settings.group_settings import GroupSettings, group_settings
from mirrormaker.settings.login import LoginFiles, from_environment
from mirrormaker.settings.properties import Properties
from mirrormaker.settings.property_file import PropertyFile
from mirrormaker.settings.security import security, security_notes
from mirrormaker.wire.client.cluster import Endpoint
from mirrormaker.wire.records.compression import CODECS

# Seconds. Old files have 1000; a user or a supervisor should see much earlier that ZooKeeper is not there.
_MAX_ZOOKEEPER_TIMEOUT = 30.0


@dataclass(frozen=True)
class SourceSettings:
    """The settings of one `--consumer.config` file."""

    path: str
    endpoint: Endpoint  # has no brokers if the file names only ZooKeeper
    zookeeper: str  # empty: none
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
    include: str | None  # the topics to mirror, if the command line names none
    exclude: str | None
    num_streams: int | None
    shallow: bool  # forward batches unchanged
    offsets_storage: str  # "kafka" or "zookeeper"; empty: not set
    dual_commit: bool
    notes: tuple[str, ...]
    groups: GroupSettings = field(default_factory=GroupSettings)

    @property
    def tells_zookeeper(self) -> bool:
        """Return True if the group's offsets are written to ZooKeeper too."""
        return bool(self.zookeeper) and (self.dual_commit or self.offsets_storage == "zookeeper")


@dataclass(frozen=True)
class TargetSettings:
    """The settings of the `--producer.config` file."""

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
    codec: int | None  # None: each batch keeps its codec
    partition_by: str | None
    keeps_offset_map: bool
    notes: tuple[str, ...]


def source_settings(properties: Properties, logins: LoginFiles | None = None) -> SourceSettings:
    """Return the settings of a consumer file. `logins` default to the files that the environment names."""
    file = PropertyFile(properties, "consumer")
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
            f"{file.where('mirror.topics.blacklist')}: mirror.topics.blacklist and mirror.topics.whitelist contradict"
            " each other: keep one of them"
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
        groups=group_settings(file),
        notes=(
            *file.notes,
            *_brokers_and_zookeeper(file, "ZooKeeper is used only for an old group's offsets and old topics' settings"),
            *_commits_without_zookeeper(file),
            *security_notes(file),
        ),
    )


def target_settings(properties: Properties, logins: LoginFiles | None = None) -> TargetSettings:
    """Return the settings of a producer file. `logins` default to the files that the environment names."""
    file = PropertyFile(properties, "producer")
    file.check()
    codec = file.text("compression.type")
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
        codec=CODECS.index(codec) if codec in CODECS else None,
        partition_by=file.text("partition.by") or None,
        keeps_offset_map=bool(file.value("offset.map")),
        notes=(*file.notes, *_brokers_and_zookeeper(file, "ZooKeeper is not used"), *security_notes(file)),
    )


def _endpoint(file: PropertyFile, client_id: str, logins: LoginFiles | None) -> Endpoint:
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


def _zookeeper_timeout(file: PropertyFile) -> float:
    return min(_MAX_ZOOKEEPER_TIMEOUT, file.number("zookeeper.connection.timeout.ms") / 1000)


def _commits_without_zookeeper(file: PropertyFile) -> list[str]:
    """Return a note if the file asks for offsets in ZooKeeper and names no ZooKeeper."""
    requests = [key for key in ("dual.commit.enabled", "offsets.storage") if file.value(key) in (True, "zookeeper")]
    if not requests or file.has("zookeeper.connect"):
        return []
    key = requests[0]
    return [f"{file.where(key)}: {key} has no effect without zookeeper.connect; offsets are kept in Kafka"]


def _brokers_and_zookeeper(file: PropertyFile, consequence: str) -> list[str]:
    """Return a note if the file names both, so that nobody has to guess which of them is used."""
    brokers, zookeeper = file.find("bootstrap.servers"), file.find("zookeeper.connect")
    if brokers is None or zookeeper is None:
        return []
    return [f"{file.where('zookeeper.connect')}: {zookeeper.key}: the brokers of {brokers.key} are used; {consequence}"]
