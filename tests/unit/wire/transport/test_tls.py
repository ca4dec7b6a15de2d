"""TLS on one connection, against Python's own TLS; and the settings that lead there."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import ssl
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrormaker.cli import call
from mirrormaker.embedded.certificates import Authority, Identity
from mirrormaker.errors import AuthenticationFailed, SettingError, TlsFailed
from mirrormaker.settings.clients import TargetSettings, target_settings
from mirrormaker.settings.properties import read
from mirrormaker.wire.auth.keystores import encrypt_private_key, load_private_key, to_pem
from mirrormaker.wire.credentials import Tls
from mirrormaker.wire.transport.connection import Connection
from mirrormaker.wire.transport.tls import openssl_name, ssl_context
from tests.support.peer import Talk, echo, hear, run, serving

RECORD = 16 * 1024


class Made:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.server: Identity = self.authority.issue("server", host="127.0.0.1")
        self.client: Identity = self.authority.issue("client")
        self.tls = Tls(trust=self.authority.pem.read_text())

    @property
    def with_certificate(self) -> Tls:
        own = load_private_key(self.client.pem.read_bytes(), "")
        return replace(
            self.tls,
            chain=to_pem("CERTIFICATE", own.chain),
            key=encrypt_private_key(own.key, "x"),
            password="x",
            subject="CN=client",
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("tls"))


@contextlib.asynccontextmanager
async def connected(made: Made, talk: Talk, tls: Tls, *, asks: bool = False) -> AsyncIterator[Connection]:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(made.server.pem)
    served.load_verify_locations(made.authority.pem)
    served.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
    async with serving(talk, served) as port:
        connection = Connection("127.0.0.1", port, client_id="us", tls=tls)
        await connection.open(5)
        try:
            yield connection
        finally:
            connection.close()
            await asyncio.sleep(0.01)


sizes = st.sampled_from([0, 1, 100, RECORD - 1, RECORD, RECORD + 1, 300_000]) | st.integers(0, 70_000)


@settings(max_examples=15)
@given(requests=st.lists(st.lists(sizes, min_size=1, max_size=4), min_size=1, max_size=6))
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_what_is_sent_in_any_parts_comes_back_as_it_was(made: Made, version: str, requests: list[list[int]]) -> None:
    async def test() -> None:
        async with connected(made, echo, replace(made.tls, protocols=(version,))) as connection:
            sent = [[bytes([n + 1]) * size for n, size in enumerate(parts)] for parts in requests]
            answers = [connection.request(1, 4, False, parts) for parts in sent]
            for parts, answer in zip(sent, answers, strict=True):
                assert bytes(await answer) == b"".join(parts)
            assert connection.is_quiet

    run(test())


def test_large_answers_that_arrive_together_are_all_delivered(made: Made) -> None:
    """More than one turn of the loop reads: what TLS holds back must not wait for the kernel to wake us."""

    async def test() -> None:
        async with connected(made, echo, made.tls) as connection:
            body = bytes(range(256)) * 12_000
            answers = [connection.request(1, 4, False, [body]) for _ in range(6)]
            small = [connection.request(1, 4, False, [b"%d" % n]) for n in range(2000)]
            assert all([bytes(await answer) == body for answer in answers])
            assert [bytes(await answer) for answer in small] == [b"%d" % n for n in range(2000)]

    run(test())


def test_a_client_certificate_is_shown_if_there_is_one(made: Made) -> None:
    async def test() -> None:
        async with connected(made, echo, made.with_certificate, asks=True) as connection:
            assert bytes(await connection.request(1, 4, False, [b"hello"])) == b"hello"
        with pytest.raises(AuthenticationFailed, match=r"it (wants|may want) a client certificate"):
            async with connected(made, echo, made.tls, asks=True) as connection:
                await connection.request(1, 4, False, [b"hello"])

    run(test())


def test_who_hangs_up_without_a_word_may_want_a_certificate(made: Made) -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hear(reader)

    async def test() -> None:
        async with connected(made, rude, made.tls) as connection:
            with pytest.raises(AuthenticationFailed, match="it may want a client certificate"):
                await connection.request(1, 4, False, [b"hello"])

    run(test())


def test_nothing_of_a_key_stays_on_disk(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ssl_context(replace(made.with_certificate, subject="not made before"))
    assert list(tmp_path.iterdir()) == []


def test_a_key_of_another_certificate_is_refused(made: Made) -> None:
    other = load_private_key(made.server.pem.read_bytes(), "")
    with pytest.raises(TlsFailed, match="key values mismatch"):
        ssl_context(replace(made.with_certificate, chain=to_pem("CERTIFICATE", other.chain)))


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
    ],
)
def test_a_cipher_suite_has_another_name_here(java: str, ours: str) -> None:
    assert openssl_name(java) == ours
    found = ssl_context(Tls(trust="", ciphers=(java,), protocols=("TLSv1.2", "TLSv1.3")))
    assert [c["name"] for c in found.get_ciphers() if c["protocol"] != "TLSv1.3"] == [ours]
    assert found.maximum_version == ssl.TLSVersion.TLSv1_2, "Java would not choose TLS 1.3 without a suite for it"


# -- settings


def target(directory: Path, lines: str) -> TargetSettings:
    file = directory / "client.properties"
    file.write_text(f"bootstrap.servers=a:1\n{lines}\n")
    return target_settings(read(str(file), "--producer.config"))


def refusal(directory: Path, lines: str) -> str:
    with pytest.raises(SettingError) as error:
        target(directory, lines)
    return str(error.value)


def test_secrets_are_in_no_repr_and_travel_all_the_same(made: Made, tmp_path: Path) -> None:
    store = made.client.pkcs12("hush-hush")
    found = target(tmp_path, f"security.protocol=SSL\nssl.keystore.location={store}\nssl.keystore.password=hush-hush")
    tls = found.endpoint.security.tls
    assert tls is not None
    for text in (repr(found), repr(read(str(tmp_path / "client.properties"), "x").lines)):
        assert not any(hidden in text for hidden in ("hush", "BEGIN", tls.password))
    assert "hush" not in repr(vars(found))
    assert pickle.loads(pickle.dumps(found.endpoint)) == found.endpoint
    assert found.endpoint.security.principal == "User:CN=client,O=test"


def test_values_come_from_the_environment_and_from_files(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = made.client.pkcs12("hush-hush")
    monkeypatch.setenv("STORE_PASSWORD", "hush-hush")
    (tmp_path / "secrets").write_text("client.name=shy\n")
    found = target(
        tmp_path,
        f"security.protocol=SSL\nssl.keystore.location={store}\nssl.keystore.password=${{env:STORE_PASSWORD}}\n"
        f"config.providers=env,file\nclient.id=a ${{file:{tmp_path}/secrets:client.name}} one",
    )
    assert (found.endpoint.client_id, found.endpoint.security.principal) == ("a shy one", "User:CN=client,O=test")
    assert call(["settings", str(tmp_path / "client.properties")]) == 0
    out = capsys.readouterr().out
    assert "secrets:client.name}one" in "".join(out.split())
    assert "shy" not in out and "hush" not in out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("client.id=${env:NOT_THERE}", "line 2: client.id: ${env:NOT_THERE}: there is no NOT_THERE in the environment"),
        ("client.id=x=${env:NOT_THERE} password=hush hush", "there is no NOT_THERE in the environment"),
        ("client.id=${file:/not/there:key}", "/not/there: no such file or directory"),
        ("client.id=${file:DIR/secrets:other}", "there is no other in DIR/secrets"),
        ("client.id=${file:DIR/secrets}", "this must be ${file:path:key}"),
        ("linger.ms=${file:DIR/secrets:key}", "this must refer to a whole number of ms"),
        ("bootstrap.servers=${file:DIR/secrets:key}", "this must refer to host:port"),
    ],
)
def test_what_cannot_be_looked_up_is_said_without_what_was_found(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "secrets").write_text("key=hush hush\n")
    message = refusal(tmp_path, line.replace("DIR", str(tmp_path)))
    assert said.replace("DIR", str(tmp_path)) in message
    assert "hush" not in message


def test_other_placeholders_stay_as_they_are(tmp_path: Path) -> None:
    assert target(tmp_path, "client.id=${other:x} ${HOME}").endpoint.client_id == "${other:x} ${HOME}"


def test_stores_without_tls_are_not_used_and_a_note_says_so(tmp_path: Path) -> None:
    (note,) = target(tmp_path, "ssl.truststore.location=/not/there.jks").notes
    assert note.endswith("ssl.truststore.location is not used: security.protocol is PLAINTEXT, so nothing is encrypted")


def test_a_key_without_its_certificates_is_refused(made: Made, tmp_path: Path) -> None:
    key = made.client.pem.read_text().partition("-----BEGIN CERT")[0].replace("\n", "")
    assert "ssl.keystore.certificate.chain is missing" in refusal(
        tmp_path, f"security.protocol=SSL\nssl.keystore.key={key}"
    )


def test_a_store_in_two_places_is_refused(made: Made, tmp_path: Path) -> None:
    lines = "security.protocol=SSL\nssl.truststore.location=/x\nssl.truststore.certificates=y"
    assert "are both given; remove one of them" in refusal(tmp_path, lines)


def test_old_protocols_are_left_out_and_named(tmp_path: Path) -> None:
    found = target(tmp_path, "security.protocol=SSL\nssl.enabled.protocols=TLSv1.2,TLSv1.1,TLSv1")
    assert found.endpoint.security.tls is not None
    assert found.endpoint.security.tls.protocols == ("TLSv1.2",)
    assert "TLSv1.1, TLSv1 is not supported" in found.notes[0]


def test_an_empty_identification_algorithm_is_noted(tmp_path: Path) -> None:
    found = target(tmp_path, "security.protocol=SSL\nssl.endpoint.identification.algorithm=")
    assert found.endpoint.security.tls is not None and not found.endpoint.security.tls.checks_host
    assert "every trusted certificate is accepted" in found.notes[0]
