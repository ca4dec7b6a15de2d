"""A cluster that asks who is there: by Kerberos, by name and password, and by OAuth token."""

from __future__ import annotations

from mirrormaker.embedded import Cluster
from mirrormaker.embedded.kdc import Kdc

PASSWORD = "s3same-0pen"
_KAFKA = "org.apache.kafka.common.security"
PLAIN = f"{_KAFKA}.plain.PlainLoginModule"
SCRAM = f"{_KAFKA}.scram.ScramLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


def secure_cluster(
    name: str, kdc: Kdc, *, reauthentication_ms: int = 0, settings: dict[str, str] | None = None
) -> Cluster:
    """Listener KRB asks for a ticket, WORDS for a password; the plain one is the administrator's."""
    keytab = kdc.directory / "kafka_localhost.keytab"
    if not keytab.exists():
        kdc.add("kafka/localhost")
    login = (
        f'{KERBEROS} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="kafka/localhost@{kdc.realm}";'
    )
    words = "listener.name.words"
    return Cluster(
        name=name,
        listeners={"KRB": "SASL_PLAINTEXT", "WORDS": "SASL_PLAINTEXT"},
        java=[f"-Djava.security.krb5.conf={kdc.config}"],
        settings={
            "auto.create.topics.enable": "false",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.krb.sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.krb.gssapi.sasl.jaas.config": login,
            f"{words}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{words}.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{PASSWORD}";',
            f"{words}.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            f"{words}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            **({"connections.max.reauth.ms": str(reauthentication_ms)} if reauthentication_ms else {}),
            **(settings or {}),
        },
    )  # fmt: skip
