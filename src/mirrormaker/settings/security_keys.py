"""The TLS and SASL settings of a consumer or producer file, as rows of the table in `keys`."""

from __future__ import annotations

from typing import Any

from mirrormaker.settings.value_types import ANY_NUMBER, LIST, MS, TEXT, Key, ValueType, choice
from mirrormaker.wire.credentials import TLS_VERSIONS

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
JAVA_CLASS = "Java classes cannot be loaded here"


def ignored(name: str, type: ValueType, meaning: str, *old_names: str, announced: bool = False, **more: Any) -> Key:
    """Return a setting that is accepted and has no effect; `meaning` is one or more sentences that say why."""
    return Key(name, type, meaning, old_names=old_names, has_effect=False, is_announced=announced, **more)


TLS = (
    Key(
        "security.protocol", choice({p.lower(): p for p in PROTOCOLS} | {"plaintextsasl": "SASL_PLAINTEXT"}),
        "The protocol of the connections to the brokers.", "PLAINTEXT",
    ),
    Key(
        "ssl.truststore.location", TEXT,
        "The file with the certificates to trust: JKS, PKCS12 or PEM. Without it, the system's certificates are used.",
    ),
    Key("ssl.truststore.password", TEXT, "The password of the trust store."),
    Key("ssl.truststore.certificates", TEXT, "The certificates to trust, in PEM format, instead of a file."),
    Key(
        "ssl.keystore.location", TEXT,
        "The file with this client's private key and certificates: JKS, PKCS12 or PEM.",
    ),
    Key("ssl.keystore.password", TEXT, "The password of the key store."),
    Key("ssl.keystore.key", TEXT, "This client's private key, in PEM format, instead of a file."),
    Key("ssl.keystore.certificate.chain", TEXT, "This client's certificates, in PEM format, instead of a file."),
    Key("ssl.key.password", TEXT, "The password of the private key. Without it, the key store's password is used."),
    Key(
        "ssl.endpoint.identification.algorithm", choice({"https": "https", "": ""}),
        "https: a broker's certificate must be issued for its host name. Empty: every trusted certificate is accepted.",
        "https",
        note=lambda value: "" if value == "https"
        else "host names are not checked; every trusted certificate is accepted",
    ),
    Key(
        "ssl.enabled.protocols", LIST, "The TLS versions that may be used. Versions before TLSv1.2 are not supported.",
        ",".join(TLS_VERSIONS),
        refusal=lambda names: "" if {*TLS_VERSIONS} & {*names}
        else f"only {' and '.join(TLS_VERSIONS)} are supported; name one of them",
        note=lambda names: f"{', '.join(old)} is not supported and not used"
        if (old := [name for name in names if name not in TLS_VERSIONS]) else "",
    ),
    Key(
        "ssl.cipher.suites", LIST,
        "The cipher suites that may be used, under Java's names. Those of TLS 1.3 are used all together or not at all.",
    ),
    Key(
        "ssl.engine.factory.class", TEXT, f"Refused: {JAVA_CLASS}.",
        refusal=lambda name: f"{JAVA_CLASS}; name the stores with ssl.truststore.location and ssl.keystore.location"
        if name else "",
    ),
    ignored("ssl.truststore.type", TEXT, "The type of a store is recognised from its content."),
    ignored("ssl.keystore.type", TEXT, "The type of a store is recognised from its content."),
    ignored("ssl.protocol", TEXT, "Use ssl.enabled.protocols."),
    ignored("ssl.provider", TEXT, f"{JAVA_CLASS}."),
    ignored("ssl.secure.random.implementation", TEXT, f"{JAVA_CLASS}."),
    ignored("ssl.keymanager.algorithm", TEXT, f"{JAVA_CLASS}."),
    ignored("ssl.trustmanager.algorithm", TEXT, f"{JAVA_CLASS}."),
    ignored("security.providers", TEXT, f"{JAVA_CLASS}."),
)  # fmt: skip

_TICKETS = "Each login gets a new ticket, without running a program."
_TOKENS = "A token is replaced after four fifths of its lifetime."
_TOKEN_TIMEOUT = "The timeout for a token is 4 s."
_LOGIN_RETRY = "A failed login is repeated after 1 to 10 s."

SASL = (
    Key(
        "sasl.mechanism", choice({mechanism.lower(): mechanism for mechanism in _MECHANISMS}),
        "The login mechanism for SASL_PLAINTEXT and SASL_SSL. GSSAPI is Kerberos.", "GSSAPI",
    ),
    Key(
        "sasl.jaas.config", TEXT,
        "The login module with its options. Without it, the login configuration file (--jaas.config) is used.",
    ),
    Key(
        "sasl.kerberos.service.name", TEXT,
        "The first part of the brokers' principals, usually kafka. The login module's serviceName means the same.",
    ),
    Key("sasl.oauthbearer.token.endpoint.url", TEXT, "The URL where the OAuth server issues tokens."),
    Key(
        "sasl.oauthbearer.client.credentials.client.id", TEXT,
        "The OAuth client id. The login module's clientId means the same.",
    ),
    Key(
        "sasl.oauthbearer.client.credentials.client.secret", TEXT,
        "The OAuth client secret. The login module's clientSecret means the same.",
    ),
    Key("sasl.oauthbearer.scope", TEXT, "The scope that the OAuth token is requested for."),
    Key(
        "sasl.login.callback.handler.class", TEXT,
        f"Only Kafka's own OAuthBearerLoginCallbackHandler is accepted. {JAVA_CLASS}.",
        refusal=lambda name: "" if not name or name.endswith(".OAuthBearerLoginCallbackHandler")
        else f"{JAVA_CLASS}; configure the login with sasl.mechanism and sasl.jaas.config",
    ),
    Key(
        "sasl.client.callback.handler.class", TEXT, f"Refused: {JAVA_CLASS}.",
        refusal=lambda name: f"{JAVA_CLASS}; configure the login with sasl.jaas.config" if name else "",
    ),
    ignored("sasl.login.class", TEXT, f"{JAVA_CLASS}.", announced=True),
    ignored("sasl.kerberos.kinit.cmd", TEXT, _TICKETS),
    ignored("sasl.kerberos.min.time.before.relogin", MS, _TICKETS),
    ignored("sasl.kerberos.ticket.renew.jitter", TEXT, _TICKETS),
    ignored("sasl.kerberos.ticket.renew.window.factor", TEXT, _TICKETS),
    ignored("sasl.login.refresh.buffer.seconds", ANY_NUMBER, _TOKENS),
    ignored("sasl.login.refresh.min.period.seconds", ANY_NUMBER, _TOKENS),
    ignored("sasl.login.refresh.window.factor", TEXT, _TOKENS),
    ignored("sasl.login.refresh.window.jitter", TEXT, _TOKENS),
    ignored("sasl.login.connect.timeout.ms", MS, _TOKEN_TIMEOUT),
    ignored("sasl.login.read.timeout.ms", MS, _TOKEN_TIMEOUT),
    ignored("sasl.login.retry.backoff.ms", MS, _LOGIN_RETRY),
    ignored("sasl.login.retry.backoff.max.ms", MS, _LOGIN_RETRY),
    *(
        ignored(f"sasl.oauthbearer.{name}", TEXT, "Brokers check tokens; clients do not.")
        for name in (
            "clock.skew.seconds", "expected.audience", "expected.issuer", "jwks.endpoint.url",
            "jwks.endpoint.refresh.ms", "jwks.endpoint.retry.backoff.ms",
            "jwks.endpoint.retry.backoff.max.ms", "jwt.validator.class",
            "scope.claim.name", "sub.claim.name",
        )
    ),
    *(
        ignored(f"sasl.oauthbearer.{name}", TEXT, "Only OAuth's client credentials grant is supported.", announced=True)
        for name in (
            "assertion.algorithm", "assertion.claim.aud", "assertion.claim.exp.seconds", "assertion.claim.iss",
            "assertion.claim.jti.include", "assertion.claim.nbf.seconds", "assertion.claim.sub", "assertion.file",
            "assertion.private.key.file", "assertion.private.key.passphrase", "assertion.template.file",
            "header.urlencode", "jwt.retriever.class",
        )
    ),
)  # fmt: skip
