"""A cluster that asks who is there: by Kerberos, by name and password, and by OAuth token."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.embedded import Cluster, kdc

PASSWORD = "s3same-0pen-you"
_KAFKA = "org.apache.kafka.common.security"
PLAIN = f"{_KAFKA}.plain.PlainLoginModule"
SCRAM = f"{_KAFKA}.scram.ScramLoginModule"
OAUTH = f"{_KAFKA}.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


def needs_kerberos() -> None:
    """Skip where there is no KDC, or no library to talk to one."""
    if words := kdc.missing():
        pytest.skip(words)
    pytest.importorskip("gssapi", reason="the Python package gssapi is not installed: scripts/kerberos.sh")


def secure_cluster(
    name: str, realm: kdc.Kdc, settings: dict[str, str], listeners: dict[str, str] | None = None
) -> Cluster:
    """Listener KRB asks for a ticket, WORDS for a password or a token; whoever comes through the plain one may do all."""
    keytab = realm.directory / "kafka_localhost.keytab"
    if not keytab.exists():
        realm.add("kafka/localhost")
    words = "listener.name.words"
    return Cluster(
        name=name,
        listeners={"KRB": "SASL_PLAINTEXT", "WORDS": "SASL_PLAINTEXT", **(listeners or {})},
        java=[f"-Djava.security.krb5.conf={realm.config}"],
        settings={
            "auto.create.topics.enable": "false",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.krb.sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.krb.gssapi.sasl.jaas.config": f"{ticket(keytab, f'kafka/localhost@{realm.realm}')} storeKey=true;",
            f"{words}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            f"{words}.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{PASSWORD}";',
            f"{words}.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            f"{words}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            f"{words}.oauthbearer.sasl.jaas.config": f'{OAUTH} required unsecuredLoginStringClaim_sub="admin";',
            **settings,
        },
    )  # fmt: skip


def ticket(keytab: Path, principal: str) -> str:
    """The login module for a keytab, up to where further options may follow."""
    return f'{KERBEROS} required useKeyTab=true keyTab="{keytab}" principal="{principal}"'


def kerberos(keytab: Path, principal: str) -> str:
    """The lines of a client's file."""
    return f"security.protocol=SASL_PLAINTEXT\nsasl.jaas.config={ticket(keytab, principal)} serviceName=kafka;\n"


def words(mechanism: str, user: str = "alice", password: str = PASSWORD) -> str:
    """The lines of a client's file."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    login = f'{module} required username="{user}" password="{password}";'
    return f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\n"


def add_scram_user(cluster: Cluster, user: str, mechanism: str = "SCRAM-SHA-256", password: str = PASSWORD) -> None:
    from kafka.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialUpsertion

    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        kind = ScramMechanism[mechanism.replace("-", "_")]
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, kind, password)])
    finally:
        admin.close()
