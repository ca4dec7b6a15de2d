"""The table of every key that a consumer or producer file may hold: the names it had since Kafka 0.7, and what it does here.

Reading, the notes at the start, `mirrormaker settings` and docs/compatibility.md all come from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
    Kind,
    choice,
    number,
    same,
)  # fmt: skip
from mirrormaker.wire.records.compression import CODECS


def _nothing(_value: Any) -> str:
    return ""


def _unless(good: Any, text: str) -> Callable[[Any], str]:
    return lambda value: "" if value == good else text


@dataclass(frozen=True)
class Key:
    """One meaning, under all of its names."""

    name: str  # today's, or the last that it had
    kind: Kind
    meaning: str  # what it does here, or why nothing
    default: str = ""  # as one would write it
    old: tuple[str, ...] = ()
    gone: bool = False  # no client of today knows even `name`
    used: bool = True  # False: accepted, so that files keep working
    told: bool = False  # of those: someone may have tuned it and should know that it does nothing
    note: Callable[[Any], str] = _nothing  # what the start should say about a value
    refuse: Callable[[Any], str] = _nothing  # why a value is refused

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.old)


def _idle(name: str, kind: Kind, meaning: str, *old: str, told: bool = False, **more: Any) -> Key:
    return Key(name, kind, meaning, old=old, used=False, told=told, **more)


_PACKING = {
    **same(*CODECS), **{str(number): name for number, name in enumerate(CODECS)},
    "producer": "producer", "passthrough": "producer", "": "producer",
}  # fmt: skip
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_RESETS = {**same("earliest", "latest", "none"), "smallest": "earliest", "largest": "latest"}
_ACKS = {"all": "all", "-1": "all", "1": "1", "0": "0"}
_NO_METRICS = "there are no JMX metrics"
_JAVA_CODE = "Java classes are not run"
_BYTES_AS_THEY_ARE = "records are bytes and stay as they are"
_KERNEL = "the kernel sizes its buffers by the distance; a fixed size would switch that off"
_IN_GROUP = "it belonged to groups in ZooKeeper"

_OF_BROKERS = "brokers check tokens, clients do not"
_TICKETS = "tickets are taken anew at each login, and no program is run for it"
_TOKENS = "a token is used for four fifths of its life, and then another is asked for"

SASL = (
    Key(
        "sasl.mechanism", choice({m.lower(): m for m in ("GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")}),
        "how to log in, with SASL_PLAINTEXT and SASL_SSL; GSSAPI is Kerberos", "GSSAPI",
    ),
    Key("sasl.jaas.config", TEXT, "who logs in: a login module with its options; unset: the login configuration (--jaas.config)"),
    Key("sasl.kerberos.service.name", TEXT, "the first part of the brokers' principals, if the login module does not say it"),
    Key("sasl.oauthbearer.token.endpoint.url", TEXT, "where an OAuth server gives tokens"),
    Key("sasl.oauthbearer.client.credentials.client.id", TEXT, "the OAuth client, if the login module does not say it"),
    Key("sasl.oauthbearer.client.credentials.client.secret", TEXT, "its secret"),
    Key("sasl.oauthbearer.scope", TEXT, "the scope that is asked for"),
    Key(
        "sasl.login.callback.handler.class", TEXT, "only Kafka's own for OAuth; other Java classes are not run",
        refuse=lambda name: "" if not name or name.endswith(".OAuthBearerLoginCallbackHandler")
        else f"{_JAVA_CODE}; sasl.mechanism and sasl.jaas.config say how to log in",
    ),
    Key(
        "sasl.client.callback.handler.class", TEXT, f"refused: {_JAVA_CODE}",
        refuse=lambda name: f"{_JAVA_CODE}; sasl.jaas.config says who logs in" if name else "",
    ),
    _idle("sasl.login.class", TEXT, _JAVA_CODE, told=True),
    _idle("sasl.kerberos.kinit.cmd", TEXT, _TICKETS),
    _idle("sasl.kerberos.min.time.before.relogin", MS, _TICKETS),
    _idle("sasl.kerberos.ticket.renew.jitter", TEXT, _TICKETS),
    _idle("sasl.kerberos.ticket.renew.window.factor", TEXT, _TICKETS),
    _idle("sasl.login.refresh.buffer.seconds", ANY_NUMBER, _TOKENS),
    _idle("sasl.login.refresh.min.period.seconds", ANY_NUMBER, _TOKENS),
    _idle("sasl.login.refresh.window.factor", TEXT, _TOKENS),
    _idle("sasl.login.refresh.window.jitter", TEXT, _TOKENS),
    _idle("sasl.login.connect.timeout.ms", MS, "a token is waited for 4 s"),
    _idle("sasl.login.read.timeout.ms", MS, "a token is waited for 4 s"),
    _idle("sasl.login.retry.backoff.ms", MS, "logins that fail are tried again after 1 to 10 s"),
    _idle("sasl.login.retry.backoff.max.ms", MS, "logins that fail are tried again after 1 to 10 s"),
    *(
        _idle(f"sasl.oauthbearer.{name}", TEXT, _OF_BROKERS)
        for name in (
            "clock.skew.seconds", "expected.audience", "expected.issuer", "jwks.endpoint.url", "jwks.endpoint.refresh.ms",
            "jwks.endpoint.retry.backoff.ms", "jwks.endpoint.retry.backoff.max.ms", "jwt.validator.class",
            "scope.claim.name", "sub.claim.name",
        )
    ),
    *(
        _idle(f"sasl.oauthbearer.{name}", TEXT, "only client credentials are built", told=True)
        for name in (
            "assertion.algorithm", "assertion.claim.aud", "assertion.claim.exp.seconds", "assertion.claim.iss",
            "assertion.claim.jti.include", "assertion.claim.nbf.seconds", "assertion.claim.sub", "assertion.file",
            "assertion.private.key.file", "assertion.private.key.passphrase", "assertion.template.file",
            "header.urlencode", "jwt.retriever.class",
        )
    ),
)  # fmt: skip

COMMON = (
    Key(
        "bootstrap.servers", BROKERS, "the brokers to ask first", old=("metadata.broker.list", "broker.list"),
    ),
    Key(
        "zookeeper.connection.timeout.ms", number(0, unit="ms"), "how long ZooKeeper is waited for at the start",
        "6000", old=("zk.connectiontimeout.ms",), gone=True,
        note=lambda ms: "30 s are waited at most: a supervisor should soon see that there is none" if ms > 30_000 else "",
    ),
    Key("broker.version", VERSION, "the brokers' version, for brokers before 0.10 that cannot be asked for it"),
    Key("client.id", TEXT, "the name in the brokers' logs and quotas", old=("clientid",)),
    Key(
        "request.timeout.ms", number(100, unit="ms"), "how long an answer is waited for", "30000",
        old=("socket.timeout.ms",),
    ),
    Key(
        "socket.connection.setup.timeout.ms", number(100, unit="ms"), "how long a connection may take to open", "10000",
        old=("connect.timeout.ms",),
    ),
    Key("reconnect.backoff.ms", number(1, unit="ms"), "the first pause before a broken connection is opened again", "50"),
    Key("reconnect.backoff.max.ms", number(1, unit="ms"), "the longest such pause", "1000"),
    Key(
        "security.protocol", choice({p.lower(): p for p in PROTOCOLS} | {"plaintextsasl": "SASL_PLAINTEXT"}),
        "how the brokers are spoken to", "PLAINTEXT",
    ),
    Key("ssl.truststore.location", TEXT, "a store with the certificates to trust: JKS, PKCS12 or PEM; unset: the machine's own"),
    Key("ssl.truststore.password", TEXT, "the password of that store"),
    Key("ssl.truststore.certificates", TEXT, "the certificates to trust themselves, as PEM"),
    Key("ssl.keystore.location", TEXT, "a store with this client's key and certificates: JKS, PKCS12 or PEM"),
    Key("ssl.keystore.password", TEXT, "the password of that store"),
    Key("ssl.keystore.key", TEXT, "this client's private key itself, as PEM"),
    Key("ssl.keystore.certificate.chain", TEXT, "this client's certificates themselves, as PEM"),
    Key("ssl.key.password", TEXT, "the password of the private key; unset: the store's"),
    Key(
        "ssl.endpoint.identification.algorithm", choice({"https": "https", "": ""}),
        "https: a broker's certificate must be for its name; empty: any trusted one will do", "https",
        note=_unless("https", "any trusted certificate will do, whoever shows it"),
    ),
    *SASL,
    Key(
        "ssl.enabled.protocols", LIST, "the versions of TLS to choose from", "TLSv1.2,TLSv1.3",
        refuse=lambda names: "" if {"TLSv1.2", "TLSv1.3"} & {*names}
        else "only TLSv1.2 and TLSv1.3 are spoken; name one of them",
        note=lambda names: f"{', '.join(old)} is not spoken" if (old := [n for n in names if n not in ("TLSv1.2", "TLSv1.3")])
        else "",
    ),
    Key("ssl.cipher.suites", LIST, "the cipher suites to choose from; those of TLS 1.3 all or none"),
    Key(
        "ssl.engine.factory.class", TEXT, f"refused: {_JAVA_CODE}",
        refuse=lambda name: f"{_JAVA_CODE}; name the stores by ssl.truststore.location and ssl.keystore.location" if name else "",
    ),
    Key(
        "config.providers", LIST, "where ${env:NAME} and ${file:path:key} in values are looked up; both are without this line, too",
        "env,file",
        refuse=lambda names: f"only env and file are looked up: {', '.join(more)} is not built"
        if (more := [name for name in names if name not in ("env", "file")]) else "",
    ),
    _idle("config.providers.env.class", TEXT, _JAVA_CODE),
    _idle("config.providers.file.class", TEXT, _JAVA_CODE),
    _idle("ssl.truststore.type", TEXT, "what a store is, its content tells"),
    _idle("ssl.keystore.type", TEXT, "what a store is, its content tells"),
    _idle("ssl.protocol", TEXT, "see ssl.enabled.protocols"),
    _idle("ssl.provider", TEXT, _JAVA_CODE),
    _idle("ssl.secure.random.implementation", TEXT, _JAVA_CODE),
    _idle("ssl.keymanager.algorithm", TEXT, _JAVA_CODE),
    _idle("ssl.trustmanager.algorithm", TEXT, _JAVA_CODE),
    _idle("receive.buffer.bytes", BYTES, _KERNEL, "socket.receive.buffer.bytes", "socket.buffersize", told=True),
    _idle("send.buffer.bytes", BYTES, _KERNEL, "buffer.size", told=True),
    _idle("interceptor.classes", TEXT, _JAVA_CODE, told=True),
    _idle("retry.backoff.ms", MS, "retries have pauses of their own", "refresh.leader.backoff.ms", "fetcher.backoff.ms",
          "backoff.increment.ms"),
    _idle("retry.backoff.max.ms", MS, "retries have pauses of their own"),
    _idle("connections.max.idle.ms", MS, "a connection that a broker has closed is opened again", "reconnect.time.interval.ms"),
    _idle("socket.connection.setup.timeout.max.ms", MS, "the first timeout is used each time"),
    _idle("zookeeper.session.timeout.ms", MS, "ZooKeeper sessions have a timeout of their own", "zk.sessiontimeout.ms", gone=True),
    _idle("zookeeper.sync.time.ms", MS, _IN_GROUP, "zk.synctime.ms", gone=True),
    _idle("client.dns.lookup", TEXT, "all addresses of a name are tried"),
    _idle("metadata.recovery.strategy", TEXT, "the first brokers are asked again when no other answers"),
    _idle("metadata.recovery.rebootstrap.trigger.ms", MS, "the first brokers are asked again when no other answers"),
    _idle("security.providers", TEXT, _JAVA_CODE),
    _idle("metric.reporters", TEXT, _NO_METRICS, "kafka.metrics.reporters"),
    _idle("metrics.num.samples", ANY_NUMBER, _NO_METRICS),
    _idle("metrics.recording.level", TEXT, _NO_METRICS),
    _idle("metrics.sample.window.ms", MS, _NO_METRICS),
    _idle("kafka.metrics.polling.interval.secs", ANY_NUMBER, _NO_METRICS, gone=True),
    _idle("auto.include.jmx.reporter", FLAG, _NO_METRICS),
    _idle("enable.metrics.push", FLAG, _NO_METRICS),
)  # fmt: skip

CONSUMER = (
    Key(
        "zookeeper.connect", ZOOKEEPER, "where the brokers are looked up if none are named, and an old group's offsets",
        old=("zk.connect",), gone=True,
    ),
    Key("group.id", TEXT, "the group that holds the mirror's positions", old=("groupid",)),
    Key("group.instance.id", TEXT, "this process's name in the group; otherwise the host's name and a number"),
    Key(
        "auto.offset.reset", choice(_RESETS), "where a new group starts, and where it goes on when records are gone", "earliest",
        old=("autooffset.reset",),
    ),
    Key("isolation.level", choice(same("read_committed", "read_uncommitted")),
        "read_committed: records of a transaction once it is committed, and only then",
        "read_uncommitted"),
    Key("session.timeout.ms", number(1000, unit="ms"), "after how long without a sign others take over", "10000"),
    Key("heartbeat.interval.ms", number(100, unit="ms"), "how often it gives a sign; by default three times a session at least",
        "1000"),
    Key("fetch.max.wait.ms", number(0, unit="ms"), "how long a broker may wait for records before it answers", "500",
        old=("fetch.wait.max.ms", "max.fetch.wait.ms")),
    Key("fetch.min.bytes", number(0, unit="bytes"), "how much a broker waits for", "1", old=("min.fetch.bytes",)),
    Key("fetch.max.bytes", number(1024, unit="bytes"), "the most that one answer brings", str(50 << 20)),
    Key(
        "max.partition.fetch.bytes", number(1024, unit="bytes"), "the most that one answer brings of one partition", str(1 << 20),
        old=("fetch.message.max.bytes", "fetch.size"),
    ),
    Key("metadata.max.age.ms", number(1, unit="ms"), "how often new topics are looked for; every 5 s at least", "300000"),
    Key(
        "partition.assignment.strategy", TEXT, "range; how partitions are shared must be the same in the whole group", "range",
        refuse=lambda text: "" if re.search("range|^roundrobin$", text, re.I)
        else "only the range assignor is built; remove the line",
        note=lambda text: "shared by range all the same; there is no group in Kafka that this name comes from"
        if text.lower() == "roundrobin" else "",
    ),
    Key("exclude.internal.topics", FLAG, "true: internal topics are never mirrored", "true",
        refuse=_unless(True, "internal topics belong to their own cluster, and mirroring them would break the target; remove it")),
    Key("mirror.topics.whitelist", TEXT, "topics to mirror, if no option says it", gone=True),
    Key("mirror.topics.blacklist", TEXT, "topics not to mirror, if no option says it", gone=True),
    Key("mirror.consumer.numthreads", number(1), "streams, if --num.streams is not given", gone=True),
    Key(
        "shallow.iterator.enable", FLAG, "true: batches are forwarded as they are", "false",
        old=("shallowiterator.enable", "enable.shallow.iterator"), gone=True,
    ),
    Key("offsets.storage", choice(same("kafka", "zookeeper")),
        "positions are kept in Kafka; zookeeper: their offsets are written there too, every 10 s", gone=True),
    Key("dual.commit.enabled", FLAG, "true: offsets are written to ZooKeeper too, every 10 s", "false", gone=True),
    _idle(
        "enable.auto.commit", FLAG, "positions are committed when the target has the records", "auto.commit.enable",
        "autocommit.enable", "auto.commit.enabled",
        note=_unless(False, "positions are committed only after the target has them"),
    ),
    _idle("auto.commit.interval.ms", MS, "see --offset.commit.interval.ms", "autocommit.interval.ms"),
    _idle(
        "consumer.timeout.ms", MS, "a mirror waits for records for ever", gone=True,
        note=_unless(-1, "not used: a mirror waits for records; --exit.when.caught.up is for one that should end"),
    ),
    _idle("consumer.id", TEXT, "it would be the same in all processes; see group.instance.id", "consumerid", told=True, gone=True),
    _idle(
        "queued.max.message.chunks", ANY_NUMBER, "the producer's buffer.memory bounds what is held", "queued.max.messages",
        "queuedchunks.max", told=True, gone=True,
    ),
    _idle("num.consumer.fetchers", ANY_NUMBER, "see --num.streams", told=True, gone=True),
    _idle("group.protocol", TEXT, "the classic protocol is used", told=True),
    _idle("group.remote.assignor", TEXT, "the classic protocol is used", told=True),
    _idle("rebalance.max.retries", ANY_NUMBER, _IN_GROUP, "rebalance.retries.max", gone=True),
    _idle("rebalance.backoff.ms", MS, _IN_GROUP, gone=True),
    _idle("offsets.channel.backoff.ms", MS, "commits are repeated until they are through", gone=True),
    _idle("offsets.channel.socket.timeout.ms", MS, "see request.timeout.ms", gone=True),
    _idle("offsets.commit.max.retries", ANY_NUMBER, "commits are repeated until they are through", gone=True),
    _idle("key.deserializer", TEXT, _BYTES_AS_THEY_ARE),
    _idle("value.deserializer", TEXT, _BYTES_AS_THEY_ARE),
    _idle("check.crcs", FLAG, "checksums are always checked"),
    _idle("max.poll.interval.ms", MS, "a stream that does not report is replaced anyway"),
    _idle("max.poll.records", ANY_NUMBER, "whole batches are taken"),
    _idle("default.api.timeout.ms", MS, "see request.timeout.ms"),
    _idle("allow.auto.create.topics", FLAG, "nothing is created on a source"),
    _idle("client.rack", TEXT, "leaders are fetched from"),
    _idle("internal.leave.group.on.close", FLAG, "the group is left at the end"),
    _idle("internal.throw.on.fetch.stable.offset.unsupported", FLAG, "it is for Kafka Streams"),
    _idle("share.acknowledgement.mode", TEXT, "it is for share groups"),
    _idle("share.acquire.mode", TEXT, "it is for share groups"),
)  # fmt: skip

BATCH_SIZE = Key(
    "batch.size", number(0, unit="bytes"), "how large batches are made that are packed here", str(512 << 10),
)  # fmt: skip
BATCH_MESSAGES = _idle(
    "batch.num.messages", MESSAGES, "batches are packed by bytes; see batch.size", told=True, gone=True
)

PRODUCER = (
    Key("zookeeper.connect", ZOOKEEPER, "where the brokers are looked up if none are named", old=("zk.connect",), gone=True),
    Key(
        "acks", choice(_ACKS), "all: exactly once; 1: at least once", "all", old=("request.required.acks",),
        note=lambda acks: "treated as acks=1: a mirror must know what arrived" if acks == "0" else "",
    ),
    Key(
        "compression.type", choice(_PACKING),
        "what is not packed so is packed anew; producer or unset: as it came", "producer", old=("compression.codec",),
    ),
    Key(
        "max.in.flight.requests.per.connection", number(1), "requests on their way to one broker", "5",
        note=lambda n: "5 is used: brokers recognise no more duplicates" if n > 5 else "",
    ),
    Key("max.request.size", number(1024, unit="bytes"), "the largest request", str(8 << 20), old=("max.message.size",)),
    Key("buffer.memory", number(1 << 20, unit="bytes"), "what a stream may hold", str(32 << 20)),
    BATCH_SIZE,
    Key("linger.ms", number(0, unit="ms"), "how long small batches wait for others to be packed with", "0",
        old=("queue.buffering.max.ms", "queue.time")),
    Key("partition.by", choice({**same("key", "same"), "": ""}),
        "key: where Java's producer would put the key; same: the same partition number"),
    BATCH_MESSAGES,
    _idle("producer.type", TEXT, "sending is asynchronous, and committed when it has arrived", told=True),
    _idle(
        "queue.buffering.max.messages", MESSAGES, "see buffer.memory, and the option --queue.size", "queue.size", told=True,
        gone=True,
    ),
    _idle(
        "queue.enqueue.timeout.ms", MS, "nothing is dropped: a full buffer waits", "queue.enqueueTimeout.ms", gone=True,
        note=_unless(-1, "nothing is dropped here: a full buffer waits"),
    ),
    _idle("block.on.buffer.full", FLAG, "nothing is dropped: a full buffer waits",
          note=_unless(True, "nothing is dropped here: a full buffer waits")),
    _idle("retries", ANY_NUMBER, "a record is sent again until the target takes or refuses it", "message.send.max.retries",
          "num.retries", note=lambda n: "" if n >= 2**31 - 1 else "a record is sent again until the target takes or refuses it"),
    _idle("enable.idempotence", FLAG, "each record has a number, and brokers take a number once",
          note=_unless(True, "not switched off: numbers are what keeps records from arriving twice")),
    _idle("transactional.id", TEXT, "no transactions are used: what arrives is exact for every reader", told=True),
    _idle("transaction.timeout.ms", MS, "no transactions are used"),
    _idle("transaction.two.phase.commit.enable", FLAG, "no transactions are used"),
    _idle("compressed.topics", TEXT, "all topics are packed alike", told=True, gone=True),
    _idle("compression.gzip.level", ANY_NUMBER, "each codec has its usual level", told=True),
    _idle("compression.lz4.level", ANY_NUMBER, "each codec has its usual level", told=True),
    _idle("compression.zstd.level", ANY_NUMBER, "each codec has its usual level", told=True),
    _idle("partitioner.class", TEXT, f"{_JAVA_CODE}; see partition.by", told=True),
    _idle("partitioner.ignore.keys", FLAG, "see partition.by", told=True),
    _idle("partitioner.adaptive.partitioning.enable", FLAG, "see partition.by"),
    _idle("partitioner.availability.timeout.ms", MS, "see partition.by"),
    _idle("event.handler", TEXT, f"{_JAVA_CODE}; see --message.handler", told=True, gone=True),
    _idle("event.handler.props", TEXT, _JAVA_CODE, gone=True),
    _idle("callback.handler", TEXT, f"{_JAVA_CODE}; see --message.handler", told=True, gone=True),
    _idle("callback.handler.props", TEXT, _JAVA_CODE, gone=True),
    _idle("key.serializer", TEXT, _BYTES_AS_THEY_ARE, "key.serializer.class"),
    _idle("value.serializer", TEXT, _BYTES_AS_THEY_ARE, "serializer.class"),
    _idle("delivery.timeout.ms", MS, "a record is sent again until the target takes or refuses it"),
    _idle("max.block.ms", MS, "a full buffer waits"),
    _idle("metadata.fetch.timeout.ms", MS, "see request.timeout.ms"),
    _idle("timeout.ms", MS, "see request.timeout.ms"),
    _idle("metadata.max.age.ms", MS, "the consumer's counts", "topic.metadata.refresh.interval.ms"),
    _idle("metadata.max.idle.ms", MS, "no topic is forgotten"),
    _idle("reconnect.interval", ANY_NUMBER, "connections stay open", gone=True),
    _idle("zk.read.num.retries", ANY_NUMBER, "see zookeeper.connection.timeout.ms", gone=True),
)  # fmt: skip

SIDES = {"consumer": (*COMMON, *CONSUMER), "producer": (*COMMON, *PRODUCER)}
TABLE = {side: {name: key for key in keys for name in key.names} for side, keys in SIDES.items()}

_SECRET = re.compile(r"pas+w|pass(phrase)?\b|pwd|jaas|secret|token|credential|private|keystore\.key|certificate", re.I)


def is_secret(name: str, value: str) -> bool:
    """Whether a value must not be shown: its name says so, or it holds a password itself."""
    unknown = re.match(r"(ssl|sasl)\.", name) is not None and not any(name in table for table in TABLE.values())
    return unknown or _SECRET.search(name) is not None or re.search(r"(passw\w*|secret)\s*=", value, re.I) is not None


def is_old(name: str, side: str) -> bool:
    """Whether a name tells of a file from the times of Kafka 0.7 or 0.8."""
    key = TABLE[side].get(name)
    return key is not None and (key.gone or name != key.name)
