"""Logins to real brokers with every mechanism: mistakes are named at once, and expiring logins are renewed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest

from mirrormaker.embedded import Cluster
from mirrormaker.embedded.kdc import Kdc
from mirrormaker.errors import ConnectionLost, SettingError
from mirrormaker.settings.clients import target_settings
from mirrormaker.settings.login import LoginFile, LoginFiles
from mirrormaker.settings.properties import Properties, parse
from mirrormaker.wire.client.cluster import Cluster as Client
from tests.support.secure_cluster import (
    KERBEROS,
    OAUTH,
    PASSWORD,
    PLAIN,
    add_scram_user,
    kerberos_login,
    keytab_login_module,
    needs_kerberos,
    password_login,
    secure_cluster,
)

SESSION = 2.0  # seconds for which brokers accept a login
AT_ONCE = 5.0  # seconds within which a mistake must be reported


@dataclass(frozen=True)
class SaslCluster:
    """A cluster, its KDC, and a principal of the mirror."""

    kdc: Kdc
    cluster: Cluster
    keytab: Path
    principal: str

    def client(self, lines: str, address: str, krb5: Path | None = None) -> Client:
        """Return a client as `mirrormaker run` makes it from these lines of a property file."""
        text = f"bootstrap.servers={address}\n{lines}"
        files = LoginFiles(krb5=LoginFile(str(krb5 or self.kdc.config), "--krb5.config"))
        return Client(target_settings(Properties("target.properties", parse(text)), files).endpoint)

    @property
    def mirror_login(self) -> str:
        """The lines of a property file that log in as the mirror."""
        return kerberos_login(self.keytab, self.principal)


@pytest.fixture(scope="module")
def sasl() -> Iterator[SaslCluster]:
    needs_kerberos()
    with Kdc() as kdc:
        keytab = kdc.add("mirrormaker/localhost", life="4 seconds")
        settings = {"connections.max.reauth.ms": str(int(SESSION * 1000))}
        with secure_cluster("sasl", kdc, settings) as cluster:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                add_scram_user(cluster, "alice", mechanism)
            yield SaslCluster(kdc, cluster, keytab, f"mirrormaker/localhost@{kdc.realm}")


async def _refreshed(client: Client) -> str:
    try:
        await client.refresh()
        return client.id
    finally:
        client.close()


def refusal(client: Client) -> str:
    """Return the error of a refused login. It must come at once and hold no secret."""
    began = time.monotonic()
    with pytest.raises(ConnectionLost) as refused:
        asyncio.run(_refreshed(client))
    assert time.monotonic() - began < AT_ONCE
    assert PASSWORD not in str(refused.value)
    return str(refused.value)


# -- each mechanism


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_lets_us_in(sasl: SaslCluster, mechanism: str) -> None:
    assert asyncio.run(_refreshed(sasl.client(password_login(mechanism), sasl.cluster.address("WORDS"))))


def test_a_keytab_lets_us_in_also_by_address_and_without_files(sasl: SaslCluster, tmp_path: Path) -> None:
    """Remove the files before the login, because executors have none; an address is resolved to a name, as in Java."""
    krb5 = tmp_path / "krb5.conf"
    krb5.write_bytes(sasl.kdc.config.read_bytes())
    keytab = tmp_path / "keytab"
    keytab.write_bytes(sasl.keytab.read_bytes())
    address = sasl.cluster.address("KRB").replace("localhost", "127.0.0.1")
    client = sasl.client(kerberos_login(keytab, sasl.principal), address, krb5)
    krb5.unlink()
    keytab.unlink()
    assert asyncio.run(_refreshed(client))


def test_two_principals_in_one_process(sasl: SaslCluster) -> None:
    other = sasl.kdc.add("second/localhost")
    clients = [
        sasl.client(sasl.mirror_login, sasl.cluster.address("KRB")),
        sasl.client(kerberos_login(other, f"second/localhost@{sasl.kdc.realm}"), sasl.cluster.address("KRB")),
    ]

    async def both() -> None:
        for _ in range(3):
            await asyncio.gather(*(client.refresh() for client in clients))
        for client in clients:
            client.close()

    asyncio.run(both())
    log = sasl.cluster.brokers[0].logged()
    for name in ("mirrormaker", "second"):
        assert f"authenticationID={name}/localhost@{sasl.kdc.realm}" in log


def test_a_token_lets_us_in_and_one_of_nobody_does_not(sasl: SaslCluster) -> None:
    """Use tokens without a signature; the broker checks the rest of them."""
    with _token_server() as url:
        lines = (
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url={url}/{{}}\n"
            f"sasl.jaas.config={OAUTH} required clientId=me clientSecret={PASSWORD};\n"
        )
        address = sasl.cluster.address("WORDS")
        assert asyncio.run(_refreshed(sasl.client(lines.format("alice"), address)))
        assert "it refuses client me: " in refusal(sasl.client(lines.format(""), address))


@contextlib.contextmanager
def _token_server() -> Iterator[str]:
    class Tokens(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            claims = {"sub": self.path[1:], "iat": int(time.time()) - 5, "exp": int(time.time()) + 60}
            token = ".".join(_part(part) for part in ({"alg": "none"}, claims)) + "."
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"access_token": token, "expires_in": 60}).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Tokens)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _part(part: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


# -- mistakes


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_named_with_its_user_and_its_place(sasl: SaslCluster, mechanism: str) -> None:
    said = refusal(sasl.client(password_login(mechanism, password="guessed"), sasl.cluster.address("WORDS")))
    assert "it refuses user alice: Authentication failed" in said
    assert "(target.properties, line 4: sasl.jaas.config)" in said
    assert "guessed" not in said


def test_a_mechanism_that_is_not_enabled_is_named_with_those_that_are(sasl: SaslCluster) -> None:
    said = refusal(sasl.client(password_login("PLAIN"), sasl.cluster.address("KRB")))
    assert "sasl.mechanism=PLAIN is not enabled there; it offers GSSAPI" in said


def test_a_login_where_nobody_logs_in(sasl: SaslCluster) -> None:
    assert "this port takes no logins" in refusal(sasl.client(password_login("PLAIN"), sasl.cluster.bootstrap))


def test_no_login_where_everybody_logs_in(sasl: SaslCluster) -> None:
    said = refusal(sasl.client("security.protocol=PLAINTEXT\n", sasl.cluster.address("KRB")))
    assert "if it asks for a login, security.protocol must be SASL_PLAINTEXT or SASL_SSL" in said


def test_a_principal_that_the_kdc_does_not_know(sasl: SaslCluster) -> None:
    keytab = sasl.kdc.add("leaver")
    sasl.kdc.remove("leaver")
    said = refusal(sasl.client(kerberos_login(keytab, f"leaver@{sasl.kdc.realm}"), sasl.cluster.address("KRB")))
    assert f"Client 'leaver@{sasl.kdc.realm}' not found in Kerberos database" in said


def test_a_keytab_that_is_older_than_the_key(sasl: SaslCluster) -> None:
    keytab = sasl.kdc.add("renewed")
    sasl.kdc.change_key("renewed")
    said = refusal(sasl.client(kerberos_login(keytab, f"renewed@{sasl.kdc.realm}"), sasl.cluster.address("KRB")))
    assert "write the keytab anew" in said


def test_a_service_that_the_kdc_does_not_know(sasl: SaslCluster) -> None:
    lines = sasl.mirror_login.replace("serviceName=kafka", "serviceName=kafkaesque")
    said = refusal(sasl.client(lines, sasl.cluster.address("KRB")))
    assert f"Server kafkaesque/localhost@{sasl.kdc.realm} not found" in said
    assert "sasl.kerberos.service.name" in said


def test_a_realm_that_krb5_conf_does_not_know(sasl: SaslCluster, tmp_path: Path) -> None:
    krb5 = tmp_path / "krb5.conf"
    krb5.write_text(sasl.kdc.config.read_text().replace(sasl.kdc.realm, "ELSEWHERE.COM"))
    said = refusal(sasl.client(sasl.mirror_login, sasl.cluster.address("KRB"), krb5))
    assert "krb5.conf names no KDC for this realm" in said


def _other_kdc(sasl: SaslCluster, tmp_path: Path, port: int) -> Path:
    krb5 = tmp_path / "krb5.conf"
    lines = sasl.kdc.config.read_text().splitlines()
    krb5.write_text("\n".join(f"    kdc = 127.0.0.1:{port}" if "kdc =" in line else line for line in lines))
    return krb5


def test_a_kdc_that_is_not_there_and_one_that_is_silent(sasl: SaslCluster, tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        krb5 = _other_kdc(sasl, tmp_path, silent.getsockname()[1])
        assert "Cannot contact any KDC" in refusal(sasl.client(sasl.mirror_login, sasl.cluster.address("KRB"), krb5))
        silent.listen()
        krb5.write_text(f"{krb5.read_text()}\n")  # a file with other content gets another ticket cache
        said = refusal(sasl.client(sasl.mirror_login, sasl.cluster.address("KRB"), krb5))
        assert "no KDC answers" in said


def test_clocks_that_differ(sasl: SaslCluster, tmp_path: Path) -> None:
    """Configure the KDC with a negative clock skew, so that every clock differs too much."""
    krb5 = tmp_path / "krb5.conf"
    text = sasl.kdc.config.read_text()
    krb5.write_text(text)
    login = kerberos_login(sasl.kdc.add("early"), f"early@{sasl.kdc.realm}")
    sasl.kdc.pause()
    try:
        sasl.kdc.config.write_text(text.replace("[libdefaults]", "[libdefaults]\n  clockskew = -1"))
        sasl.kdc.resume()
        said = refusal(sasl.client(login, sasl.cluster.address("KRB"), krb5))
    finally:
        sasl.kdc.pause()
        sasl.kdc.config.write_text(text)
        sasl.kdc.resume()
    assert "this machine's clock and the KDC's differ" in said


def test_a_ticket_cache_lets_us_in_until_its_ticket_expires(sasl: SaslCluster, tmp_path: Path) -> None:
    import gssapi

    cache = f"FILE:{tmp_path}/cache"
    # The first login lets libkrb5 know the KDC.
    asyncio.run(_refreshed(sasl.client(sasl.mirror_login, sasl.cluster.address("KRB"))))
    name = gssapi.Name(sasl.principal, gssapi.NameType.kerberos_principal)
    gssapi.Credentials(name=name, usage="initiate", store={"client_keytab": f"FILE:{sasl.keytab}", "ccache": cache})
    login = f'{KERBEROS} required useTicketCache=true ticketCache="{cache}" serviceName=kafka;'
    lines = f"security.protocol=SASL_PLAINTEXT\nsasl.jaas.config={login}\n"
    assert asyncio.run(_refreshed(sasl.client(lines, sasl.cluster.address("KRB"))))
    none = lines.replace(cache, f"{cache}-none")
    assert "there is no valid ticket: run kinit" in refusal(sasl.client(none, sasl.cluster.address("KRB")))
    deadline = time.monotonic() + 20
    said = ""
    while "expired" not in said:
        assert time.monotonic() < deadline, "the ticket does not expire"
        with contextlib.suppress(pytest.fail.Exception):
            said = refusal(sasl.client(lines, sasl.cluster.address("KRB")))
        time.sleep(0.2)
    assert "run kinit, or better use a keytab" in said


def test_a_keytab_that_cannot_be_read_is_named_before_anything_is_asked(sasl: SaslCluster, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=f"keyTab: {tmp_path}/none: no such file or directory"):
        sasl.client(kerberos_login(tmp_path / "none", sasl.principal), sasl.cluster.address("KRB"))


def test_logins_that_fail_back_off(sasl: SaslCluster) -> None:
    """Ask many times at once, as the parts of a mirror do; only few attempts reach the broker."""
    failed = "Failed authentication with"
    before = sasl.cluster.brokers[0].logged().count(failed)

    async def insist() -> None:
        client = sasl.client(password_login("PLAIN", password="guessed"), sasl.cluster.address("WORDS"))
        until = time.monotonic() + 3

        async def ask() -> None:
            while time.monotonic() < until:
                with contextlib.suppress(ConnectionLost, asyncio.TimeoutError):
                    await asyncio.wait_for(client.refresh(), until - time.monotonic())

        await asyncio.gather(*(ask() for _ in range(20)))
        client.close()

    asyncio.run(insist())
    assert 1 <= sasl.cluster.brokers[0].logged().count(failed) - before <= 4


# -- expiring logins


def test_busy_connections_stay_and_lose_no_answer(sasl: SaslCluster) -> None:
    """Keep several requests in flight for three sessions; with Kerberos, this takes more than one ticket."""

    async def ask(listener: str, lines: str) -> int:
        client = sasl.client(lines, sasl.cluster.address(listener))
        await client.refresh()
        connection = await client.connection(1)
        until, answers = time.monotonic() + 3 * SESSION, 0
        while time.monotonic() < until:
            found = await asyncio.gather(*(client.ask(MetadataRequest(topics=[]), 1) for _ in range(5)))
            answers += len(found)
        assert await client.connection(1) is connection, f"{listener}: the connection was opened again"
        client.close()
        return answers

    async def both() -> tuple[int, int]:
        return await asyncio.gather(ask("KRB", sasl.mirror_login), ask("WORDS", password_login("SCRAM-SHA-256")))

    logins = "Successfully authenticated client"
    before = sasl.cluster.brokers[0].logged().count(logins)
    assert min(asyncio.run(both())) > 100
    assert sasl.cluster.brokers[0].logged().count(logins) - before >= 4  # the broker logs only those with Kerberos


def test_a_kdc_that_is_away_for_a_moment_is_not_missed(sasl: SaslCluster) -> None:
    """Pause the KDC for less than the life of a ticket, but longer than that of a login."""

    async def ask() -> None:
        client = sasl.client(sasl.mirror_login, sasl.cluster.address("KRB"))
        await client.refresh()
        connection = await client.connection(1)
        sasl.kdc.pause()
        try:
            await asyncio.sleep(SESSION)
            await client.refresh()
        finally:
            sasl.kdc.resume()
        assert await client.connection(1) is connection
        client.close()

    asyncio.run(ask())


# -- brokers before 1.0, which take tokens without a Kafka request around them


@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.2.2"])
def test_old_brokers_let_us_in(sasl: SaslCluster, version: str, tmp_path: Path) -> None:
    """Log in to brokers of 0.10 and of 0.9, which supports only Kerberos and has no handshake."""
    is_oldest = version == "0.9.0.1"
    keytab, jaas = sasl.kdc.directory / "kafka_localhost.keytab", tmp_path / "jaas.conf"
    server = f"{keytab_login_module(keytab, f'kafka/localhost@{sasl.kdc.realm}')} storeKey=true;"
    also = "" if is_oldest else f'{PLAIN} required user_alice="{PASSWORD}";'
    jaas.write_text(f"KafkaServer {{ {server} {also} }};")
    settings = {"sasl.kerberos.service.name": "kafka"}
    java = [f"-Djava.security.krb5.conf={sasl.kdc.config}", f"-Djava.security.auth.login.config={jaas}"]
    if not is_oldest:
        settings["sasl.enabled.mechanisms"] = "GSSAPI,PLAIN"
    listeners = {"SASL_PLAINTEXT": "SASL_PLAINTEXT"}
    with Cluster(version, name="old", listeners=listeners, java=java, settings=settings) as cluster:
        address = cluster.address("SASL_PLAINTEXT")
        told = "broker.version=0.9\n" if is_oldest else ""
        asyncio.run(_refreshed(sasl.client(sasl.mirror_login + told, address)))
        if is_oldest:
            assert "set broker.version=0.9" in refusal(sasl.client(sasl.mirror_login, address))
            assert "it is too old for sasl.mechanism=PLAIN" in refusal(
                sasl.client(password_login("PLAIN") + told, address)
            )
        else:
            asyncio.run(_refreshed(sasl.client(password_login("PLAIN"), address)))
            said = refusal(sasl.client(password_login("PLAIN", password="guessed"), address))
            assert "it hung up on user alice: brokers before 1.0 do not say why" in said
