"""A cluster whose clients must log in: with Kerberos, with a password, or with an OAuth token."""

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
    """Skip the test if no KDC or no Python package for Kerberos is installed."""
    if problem := kdc.missing():
        pytest.skip(problem)
    pytest.importorskip("gssapi", reason="the Python package gssapi is not installed: scripts/kerberos.sh")


def secure_cluster(
    name: str, realm: kdc.Kdc, settings: dict[str, str], listeners: dict[str, str] | None = None
) -> Cluster:
    """Return a cluster with a listener for Kerberos (KRB) and one for passwords and tokens (WORDS).

    Clients of the plain listener need no login.
    """
    keytab = realm.directory / "kafka_localhost.keytab"
    if not keytab.exists():
        realm.add("kafka/localhost")
    broker_login = keytab_login_module(keytab, f"kafka/localhost@{realm.realm}")
    passwords = "listener.name.words"
    return Cluster(
        name=name,
        listeners={"KRB": "SASL_PLAINTEXT", "WORDS": "SASL_PLAINTEXT", **(listeners or {})},
        java=[f"-Djava.security.krb5.conf={realm.config}"],
        settings={
            "auto.create.topics.enable": "false",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.krb.sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.krb.gssapi.sasl.jaas.config": f"{broker_login} storeKey=true;",
            f"{passwords}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            f"{passwords}.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{PASSWORD}";',
            f"{passwords}.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            f"{passwords}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            f"{passwords}.oauthbearer.sasl.jaas.config": f'{OAUTH} required unsecuredLoginStringClaim_sub="admin";',
            **settings,
        },
    )  # fmt: skip


def keytab_login_module(keytab: Path, principal: str) -> str:
    """Return the JAAS login module for a keytab, without the semicolon, so that further options can follow."""
    return f'{KERBEROS} required useKeyTab=true keyTab="{keytab}" principal="{principal}"'


def kerberos_login(keytab: Path, principal: str) -> str:
    """Return the lines of a client's property file for a login with Kerberos."""
    login = f"{keytab_login_module(keytab, principal)} serviceName=kafka;"
    return f"security.protocol=SASL_PLAINTEXT\nsasl.jaas.config={login}\n"


def password_login(mechanism: str, user: str = "alice", password: str = PASSWORD) -> str:
    """Return the lines of a client's property file for a login with a password."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    login = f'{module} required username="{user}" password="{password}";'
    return f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\n"


def add_scram_user(cluster: Cluster, user: str, mechanism: str = "SCRAM-SHA-256", password: str = PASSWORD) -> None:
    """Add a user for SCRAM."""
    from kafka.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialUpsertion

    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        kind = ScramMechanism[mechanism.replace("-", "_")]
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, kind, password)])
    finally:
        admin.close()
