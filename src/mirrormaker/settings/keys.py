"""The table of every setting that a consumer or producer file can hold, under every name since Kafka 0.7.

Reading files, the notes at the start, `mirrormaker settings` and docs/compatibility.md all use this table. The
`meaning` of a setting says what it does; if the setting has no effect, it says why.
"""

from __future__ import annotations

import re

from mirrormaker.settings.group_keys import GROUPS
from mirrormaker.settings.security_keys import JAVA_CLASS, SASL, TLS, ignored
from mirrormaker.settings.value_types import (
    ANY_NUMBER,
    BROKERS,
    BYTES,
    FLAG,
    LIST,
    MESSAGES,
    MS,
    TEXT,
    VERSION,
    ZOOKEEPER,
    Key,
    choice,
    number,
    words,
)  # fmt: skip
from mirrormaker.wire.records.compression import CODECS

_COMPRESSION = {
    **words(*CODECS), **{str(number): name for number, name in enumerate(CODECS)},
    "producer": "producer", "passthrough": "producer", "": "producer",
}  # fmt: skip
_RESETS = {**words("earliest", "latest", "none"), "smallest": "earliest", "largest": "latest"}
_ACKS = {"all": "all", "-1": "all", "1": "1", "0": "0"}
_PROVIDERS = ("env", "file")

_NO_JMX = "There are no JMX metrics; --status.address offers metrics for Prometheus."
_BYTES_ONLY = "Keys and values are mirrored as bytes."
_KERNEL_BUFFERS = "The operating system sizes socket buffers for the round-trip time; a fixed size would turn that off."
_ZOOKEEPER_GROUPS = "It belongs to consumer groups in ZooKeeper, which are not used."
_OWN_RETRIES = "The pauses between retries cannot be set."
_REBOOTSTRAP = "The bootstrap servers are contacted again when no other broker answers."

COMMON = (
    Key(
        "bootstrap.servers", BROKERS,
        "The brokers to contact first. They name all other brokers. Required unless zookeeper.connect is set.",
        old_names=("metadata.broker.list", "broker.list"),
    ),
    Key(
        "zookeeper.connection.timeout.ms", number(0, unit="ms"),
        "The longest wait for a ZooKeeper connection at the start. Values above 30000 count as 30000.",
        "6000", old_names=("zk.connectiontimeout.ms",), is_obsolete=True,
        note=lambda ms: "the longest wait is 30 s, so that a wrong address shows soon" if ms > 30_000 else "",
    ),
    Key(
        "broker.version", VERSION,
        "The version of brokers before 0.10. Without it, the mirror finds out, which takes some seconds.",
    ),
    Key(
        "client.id", TEXT,
        "The client's name in the brokers' logs and quotas. Without it: group.id in a consumer file, mirrormaker in a"
        " producer file.",
        old_names=("clientid",),
    ),
    Key(
        "request.timeout.ms", number(100, unit="ms"), "The longest wait for a broker's answer.", "30000",
        old_names=("socket.timeout.ms",),
    ),
    Key(
        "socket.connection.setup.timeout.ms", number(100, unit="ms"), "The longest wait until a connection is open.",
        "10000", old_names=("connect.timeout.ms",),
    ),
    Key(
        "reconnect.backoff.ms", number(1, unit="ms"),
        "The first pause before a lost connection is opened again. Each further pause is longer.", "50",
    ),
    Key("reconnect.backoff.max.ms", number(1, unit="ms"), "The longest of these pauses.", "1000"),
    *TLS,
    *SASL,
    Key(
        "config.providers", LIST,
        "The providers that replace ${env:NAME} and ${file:path:key} in values. Both are active without this setting.",
        ",".join(_PROVIDERS),
        refusal=lambda names: f"only the providers env and file are supported, not {', '.join(unknown)}"
        if (unknown := [name for name in names if name not in _PROVIDERS]) else "",
    ),
    ignored("config.providers.env.class", TEXT, f"{JAVA_CLASS}."),
    ignored("config.providers.file.class", TEXT, f"{JAVA_CLASS}."),
    ignored(
        "receive.buffer.bytes", BYTES, _KERNEL_BUFFERS, "socket.receive.buffer.bytes", "socket.buffersize",
        announced=True,
    ),
    ignored("send.buffer.bytes", BYTES, _KERNEL_BUFFERS, "buffer.size", announced=True),
    ignored("interceptor.classes", TEXT, f"{JAVA_CLASS}.", announced=True),
    ignored(
        "retry.backoff.ms", MS, _OWN_RETRIES, "refresh.leader.backoff.ms", "fetcher.backoff.ms", "backoff.increment.ms",
    ),
    ignored("retry.backoff.max.ms", MS, _OWN_RETRIES),
    ignored(
        "connections.max.idle.ms", MS, "A connection that a broker closed is opened again when it is needed.",
        "reconnect.time.interval.ms",
    ),
    ignored("socket.connection.setup.timeout.max.ms", MS, "Every attempt has socket.connection.setup.timeout.ms."),
    ignored(
        "zookeeper.session.timeout.ms", MS, "The session timeout cannot be set.", "zk.sessiontimeout.ms",
        is_obsolete=True,
    ),
    ignored("zookeeper.sync.time.ms", MS, _ZOOKEEPER_GROUPS, "zk.synctime.ms", is_obsolete=True),
    ignored("client.dns.lookup", TEXT, "All addresses of a host name are tried."),
    ignored("metadata.recovery.strategy", TEXT, _REBOOTSTRAP),
    ignored("metadata.recovery.rebootstrap.trigger.ms", MS, _REBOOTSTRAP),
    ignored("metric.reporters", TEXT, _NO_JMX, "kafka.metrics.reporters"),
    ignored("metrics.num.samples", ANY_NUMBER, _NO_JMX),
    ignored("metrics.recording.level", TEXT, _NO_JMX),
    ignored("metrics.sample.window.ms", MS, _NO_JMX),
    ignored("kafka.metrics.polling.interval.secs", ANY_NUMBER, _NO_JMX, is_obsolete=True),
    ignored("auto.include.jmx.reporter", FLAG, _NO_JMX),
    ignored("enable.metrics.push", FLAG, _NO_JMX),
)  # fmt: skip

_COMMITTED_WHEN_ACKNOWLEDGED = "Positions are committed only after the target has acknowledged the records."
_COMMIT_RETRIES = "A commit is repeated until it succeeds."
_CLASSIC_GROUPS = "Only the classic group protocol is supported."
_REQUEST_TIMEOUT = "Use request.timeout.ms."
_SHARE_GROUPS = "It belongs to share groups, which are not used."

CONSUMER = (
    Key(
        "zookeeper.connect", ZOOKEEPER,
        "ZooKeeper of the source cluster. It names the brokers if bootstrap.servers is missing, and it holds the"
        " offsets of old groups.",
        old_names=("zk.connect",), is_obsolete=True,
    ),
    Key(
        "group.id", TEXT, "The consumer group whose committed offsets hold the mirror's positions. Required.",
        old_names=("groupid",),
    ),
    Key(
        "group.instance.id", TEXT,
        "The name of this process in the group. Without it, the name is the host name with a number.",
    ),
    Key(
        "auto.offset.reset", choice(_RESETS),
        "Where a partition without a committed offset starts, and where it continues if its next records were deleted."
        " none: both are errors. Kafka's default is latest.",
        "earliest", old_names=("autooffset.reset",),
    ),
    Key(
        "isolation.level", choice(words("read_committed", "read_uncommitted")),
        "read_committed mirrors a transaction's records only after it was committed.", "read_uncommitted",
    ),
    Key(
        "session.timeout.ms", number(1000, unit="ms"),
        "How long a process can be silent before other processes take over its partitions. Kafka's default is 45000.",
        "10000",
    ),
    Key(
        "heartbeat.interval.ms", number(100, unit="ms"),
        "The interval between heartbeats to the coordinator. The default is at most a third of session.timeout.ms.",
        "1000",
    ),
    Key(
        "fetch.max.wait.ms", number(0, unit="ms"), "How long a broker waits for fetch.min.bytes before it answers.",
        "500", old_names=("fetch.wait.max.ms", "max.fetch.wait.ms"),
    ),
    Key(
        "fetch.min.bytes", number(0, unit="bytes"), "The amount of data that a broker waits for before it answers.",
        "1", old_names=("min.fetch.bytes",),
    ),
    Key("fetch.max.bytes", number(1024, unit="bytes"), "The most data that one fetch response holds.", str(50 << 20)),
    Key(
        "max.partition.fetch.bytes", number(1024, unit="bytes"),
        "The most data of one partition that one fetch response holds.", str(2 << 20),
        old_names=("fetch.message.max.bytes", "fetch.size"),
    ),
    Key(
        "metadata.max.age.ms", number(1, unit="ms"),
        "The interval between searches for new topics. Values above 5000 count as 5000.", "300000",
    ),
    Key(
        "partition.assignment.strategy", TEXT,
        "The assignor of the group. Only range is supported, and all members of a group must have the same.", "range",
        refusal=lambda text: "" if re.search("range|^roundrobin$", text, re.I)
        else "only the range assignor is supported; remove the line",
        note=lambda text: "range is used; roundrobin belongs to consumer groups in ZooKeeper"
        if text.lower() == "roundrobin" else "",
    ),
    Key(
        "exclude.internal.topics", FLAG,
        "Internal topics such as __consumer_offsets are never mirrored; false is refused.", "true",
        refusal=lambda value: "" if value
        else "internal topics belong to their own cluster, and mirroring them would break the target; remove the line",
    ),
    Key(
        "mirror.topics.whitelist", TEXT, "The topics to mirror, if neither --whitelist nor --blacklist is given.",
        is_obsolete=True,
    ),
    Key(
        "mirror.topics.blacklist", TEXT, "The topics not to mirror, if neither --whitelist nor --blacklist is given.",
        is_obsolete=True,
    ),
    Key("mirror.consumer.numthreads", number(1), "The number of streams without --num.streams.", is_obsolete=True),
    Key(
        "shallow.iterator.enable", FLAG,
        "true forwards batches unchanged, even if the producer file has compression.type=none or linger.ms.", "false",
        old_names=("shallowiterator.enable", "enable.shallow.iterator"), is_obsolete=True,
    ),
    Key(
        "offsets.storage", choice(words("kafka", "zookeeper")),
        "Positions are always kept in Kafka. zookeeper also writes the offsets to ZooKeeper, every 10 s.",
        is_obsolete=True,
    ),
    Key(
        "dual.commit.enabled", FLAG, "true also writes the offsets to ZooKeeper, every 10 s.", "false",
        is_obsolete=True,
    ),
    *GROUPS,
    ignored(
        "enable.auto.commit", FLAG, _COMMITTED_WHEN_ACKNOWLEDGED,
        "auto.commit.enable", "autocommit.enable", "auto.commit.enabled",
        note=lambda value: "positions are committed only after the target has acknowledged the records"
        if value else "",
    ),
    ignored("auto.commit.interval.ms", MS, "Use --offset.commit.interval.ms.", "autocommit.interval.ms"),
    ignored(
        "consumer.timeout.ms", MS, "The mirror waits for new records without a time limit.", is_obsolete=True,
        note=lambda ms: "" if ms == -1
        else "the mirror waits for new records without a time limit; --exit.when.caught.up ends it",
    ),
    ignored(
        "consumer.id", TEXT, "All processes with this file would have the same id. Use group.instance.id.",
        "consumerid", announced=True, is_obsolete=True,
    ),
    ignored(
        "queued.max.message.chunks", ANY_NUMBER, "The producer file's buffer.memory limits the records in memory.",
        "queued.max.messages", "queuedchunks.max", announced=True, is_obsolete=True,
    ),
    ignored("num.consumer.fetchers", ANY_NUMBER, "Use --num.streams.", announced=True, is_obsolete=True),
    ignored("group.protocol", TEXT, _CLASSIC_GROUPS, announced=True),
    ignored("group.remote.assignor", TEXT, _CLASSIC_GROUPS, announced=True),
    ignored("rebalance.max.retries", ANY_NUMBER, _ZOOKEEPER_GROUPS, "rebalance.retries.max", is_obsolete=True),
    ignored("rebalance.backoff.ms", MS, _ZOOKEEPER_GROUPS, is_obsolete=True),
    ignored("offsets.channel.backoff.ms", MS, _COMMIT_RETRIES, is_obsolete=True),
    ignored("offsets.channel.socket.timeout.ms", MS, _REQUEST_TIMEOUT, is_obsolete=True),
    ignored("offsets.commit.max.retries", ANY_NUMBER, _COMMIT_RETRIES, is_obsolete=True),
    ignored("key.deserializer", TEXT, _BYTES_ONLY),
    ignored("value.deserializer", TEXT, _BYTES_ONLY),
    ignored("check.crcs", FLAG, "Checksums are always checked."),
    ignored("max.poll.interval.ms", MS, "A stream that stops reporting is always replaced."),
    ignored("max.poll.records", ANY_NUMBER, "Records are fetched in whole batches."),
    ignored("default.api.timeout.ms", MS, _REQUEST_TIMEOUT),
    ignored("allow.auto.create.topics", FLAG, "The mirror never creates topics on a source."),
    ignored("client.rack", TEXT, "Records are always fetched from the partition's leader."),
    ignored("internal.leave.group.on.close", FLAG, "The process leaves the group when it ends."),
    ignored("internal.throw.on.fetch.stable.offset.unsupported", FLAG, "It belongs to Kafka Streams."),
    ignored("share.acknowledgement.mode", TEXT, _SHARE_GROUPS),
    ignored("share.acquire.mode", TEXT, _SHARE_GROUPS),
)  # fmt: skip

BATCH_SIZE = Key(
    "batch.size", number(0, unit="bytes"),
    "The size of the batches that the mirror packs itself, for example from small ones. Kafka's default is 16384.",
    str(512 << 10),
)  # fmt: skip
# Kafka 0.7 used the name batch.size for a number of messages: see `PropertyFile`.
BATCH_MESSAGES = ignored(
    "batch.num.messages", MESSAGES, "Batches are limited by bytes. Use batch.size.", announced=True, is_obsolete=True
)

_NEVER_DROPPED = "Records are never dropped: when the buffer is full, the stream waits."
_SENT_UNTIL_ANSWERED = "A record is sent again until the target accepts it or refuses it for good."
_NO_TRANSACTIONS = "The mirror does not use transactions."
_CODEC_LEVEL = "Each codec has its default level."
_PARTITION_BY = "Use partition.by."
_HANDLER = f"{JAVA_CLASS}. Use --message.handler."

PRODUCER = (
    Key(
        "zookeeper.connect", ZOOKEEPER,
        "ZooKeeper of the target cluster. It names the brokers if bootstrap.servers is missing.",
        old_names=("zk.connect",), is_obsolete=True,
    ),
    Key(
        "acks", choice(_ACKS),
        "all: every record arrives exactly once. 1: a record can arrive twice, and it can be lost if only the leader"
        " had it. 0 counts as 1.",
        "all", old_names=("request.required.acks",),
        note=lambda acks: "acks=1 is used, because the mirror must know which records have arrived"
        if acks == "0" else "",
    ),
    Key(
        "compression.type", choice(_COMPRESSION),
        "The codec on the target. Batches with another codec are unpacked and compressed again. producer: each batch"
        " keeps its codec. Kafka's default is none.",
        "producer", old_names=("compression.codec",),
    ),
    Key(
        "max.in.flight.requests.per.connection", number(1),
        "The number of unanswered requests per connection. Values above 5 count as 5. Kafka's MirrorMaker uses 1.", "5",
        note=lambda n: "5 is used, because brokers recognise duplicates only in the last five batches" if n > 5 else "",
    ),
    Key(
        "max.request.size", number(1024, unit="bytes"), "The size of the largest request. Kafka's default is 1048576.",
        str(8 << 20), old_names=("max.message.size",),
    ),
    Key("buffer.memory", number(1 << 20, unit="bytes"), "The most data that a stream holds in memory.", str(32 << 20)),
    BATCH_SIZE,
    Key(
        "linger.ms", number(0, unit="ms"), "How long small batches wait for others, to be packed together.", "0",
        old_names=("queue.buffering.max.ms", "queue.time"),
    ),
    Key(
        "partition.by", choice({**words("key", "same"), "": ""}),
        "key: a record goes to the partition that Java's producer would choose for its key. same: a record keeps its"
        " partition number. Without it: same if both sides have the same number of partitions, otherwise key.",
    ),
    Key(
        "offset.map", FLAG,
        "Keep an offset map in the topic __mirrormaker_offsets of the target: it translates offsets of the source to offsets"
        " of the target and back.",
        "true",
    ),
    BATCH_MESSAGES,
    ignored(
        "producer.type", TEXT, "Sending is asynchronous, and positions are committed after the acknowledgement.",
        announced=True,
    ),
    ignored(
        "queue.buffering.max.messages", MESSAGES, "Use buffer.memory, or the option --queue.size.", "queue.size",
        announced=True, is_obsolete=True,
    ),
    ignored(
        "queue.enqueue.timeout.ms", MS, _NEVER_DROPPED, "queue.enqueueTimeout.ms", is_obsolete=True,
        note=lambda ms: "" if ms == -1 else "records are never dropped: when the buffer is full, the stream waits",
    ),
    ignored(
        "block.on.buffer.full", FLAG, _NEVER_DROPPED,
        note=lambda value: "" if value else "records are never dropped: when the buffer is full, the stream waits",
    ),
    ignored(
        "retries", ANY_NUMBER, _SENT_UNTIL_ANSWERED, "message.send.max.retries", "num.retries",
        note=lambda n: "" if n >= 2**31 - 1
        else "a record is sent again until the target accepts it or refuses it for good",
    ),
    ignored(
        "enable.idempotence", FLAG, "Sending is always idempotent: brokers accept each sequence number once.",
        note=lambda value: "" if value else "idempotence stays on, because it keeps records from arriving twice",
    ),
    ignored("transactional.id", TEXT, f"{_NO_TRANSACTIONS} Records arrive exactly once without them.", announced=True),
    ignored("transaction.timeout.ms", MS, _NO_TRANSACTIONS),
    ignored("transaction.two.phase.commit.enable", FLAG, _NO_TRANSACTIONS),
    ignored("compressed.topics", TEXT, "compression.type applies to all topics.", announced=True, is_obsolete=True),
    ignored("compression.gzip.level", ANY_NUMBER, _CODEC_LEVEL, announced=True),
    ignored("compression.lz4.level", ANY_NUMBER, _CODEC_LEVEL, announced=True),
    ignored("compression.zstd.level", ANY_NUMBER, _CODEC_LEVEL, announced=True),
    ignored("partitioner.class", TEXT, f"{JAVA_CLASS}. {_PARTITION_BY}", announced=True),
    ignored("partitioner.ignore.keys", FLAG, _PARTITION_BY, announced=True),
    ignored("partitioner.adaptive.partitioning.enable", FLAG, _PARTITION_BY),
    ignored("partitioner.availability.timeout.ms", MS, _PARTITION_BY),
    ignored("event.handler", TEXT, _HANDLER, announced=True, is_obsolete=True),
    ignored("event.handler.props", TEXT, f"{JAVA_CLASS}.", is_obsolete=True),
    ignored("callback.handler", TEXT, _HANDLER, announced=True, is_obsolete=True),
    ignored("callback.handler.props", TEXT, f"{JAVA_CLASS}.", is_obsolete=True),
    ignored("key.serializer", TEXT, _BYTES_ONLY, "key.serializer.class"),
    ignored("value.serializer", TEXT, _BYTES_ONLY, "serializer.class"),
    ignored("delivery.timeout.ms", MS, _SENT_UNTIL_ANSWERED),
    ignored("max.block.ms", MS, "When the buffer is full, the stream waits without a time limit."),
    ignored("metadata.fetch.timeout.ms", MS, _REQUEST_TIMEOUT),
    ignored("timeout.ms", MS, _REQUEST_TIMEOUT),
    ignored("metadata.max.age.ms", MS, "The consumer file's value is used.", "topic.metadata.refresh.interval.ms"),
    ignored("metadata.max.idle.ms", MS, "Topics stay in the mirror's metadata."),
    ignored("reconnect.interval", ANY_NUMBER, "Connections stay open.", is_obsolete=True),
    ignored("zk.read.num.retries", ANY_NUMBER, "Use zookeeper.connection.timeout.ms.", is_obsolete=True),
)  # fmt: skip

SIDES = {"consumer": (*COMMON, *CONSUMER), "producer": (*COMMON, *PRODUCER)}
TABLE = {side: {name: key for key in keys for name in key.names} for side, keys in SIDES.items()}

_SECRET = re.compile(r"pas+w|pass(phrase)?\b|pwd|jaas|secret|token|credential|private|keystore\.key|certificate", re.I)


def is_secret(name: str, value: str) -> bool:
    """Return True if a value must not be shown: its name says so, or the value itself contains a password.

    A `ssl.` or `sasl.` setting that the table does not know counts as a secret.
    """
    is_unknown = re.match(r"(ssl|sasl)\.", name) is not None and not any(name in table for table in TABLE.values())
    return bool(is_unknown or _SECRET.search(name) or re.search(r"(passw\w*|secret)\s*=", value, re.I))


def is_old_name(name: str, side: str) -> bool:
    """Return True if no current Kafka client knows the name, so that the file is from the time of Kafka 0.7 or 0.8."""
    key = TABLE[side].get(name)
    return key is not None and (key.is_obsolete or name != key.name)
