"""JAAS login configurations: files that documents print, and errors that name file and line and never show a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.errors import NotAKeytab, SettingError
from mirrormaker.settings import jaas, properties
from mirrormaker.settings.clients import source_settings
from mirrormaker.settings.keytab import principals
from mirrormaker.settings.login import LoginFile, LoginFiles, login_files
from mirrormaker.settings.properties import Properties, parse
from mirrormaker.wire.credentials import Kerberos, OAuthClient, Password, Sasl

PRINTED = """KafkaClient {
    com.sun.security.auth.module.Krb5LoginModule required
    useKeyTab=true
    keyTab="/tmp/mirrormaker.keytab"
    storeKey=true
    useTicketCache=false
    serviceName="kafka"
    principal="mirrormaker/HOSTNAME@EXAMPLE.COM";
};
"""
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
HUSH = "h0nest-hush"


def read(tmp_path: Path, text: str) -> list[jaas.Entry]:
    file = tmp_path / "jaas.conf"
    file.write_text(text)
    return jaas.read(str(file), "--jaas.config")


def keytab_of(*names: str) -> bytes:
    """Return a keytab as MIT writes it, with keys of 16 bytes; after each entry there is one that was removed."""
    out = b"\x05\x02"
    for name in names:
        parts, _, realm = name.rpartition("@")
        words = [realm, *parts.split("/")]
        entry = (len(words) - 1).to_bytes(2, "big")
        entry += b"".join(len(word).to_bytes(2, "big") + word.encode() for word in words)
        entry += bytes(4) + bytes(4) + b"\x01" + b"\x00\x11" + b"\x00\x10" + bytes(16)
        out += len(entry).to_bytes(4, "big") + entry + (-8).to_bytes(4, "big", signed=True) + bytes(8)
    return out


# -- the file


def test_the_file_that_documents_print_is_read(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, PRINTED)
    assert entry.module == "Krb5LoginModule"
    assert entry.where.endswith("jaas.conf, line 2")
    assert entry.options == {
        "useKeyTab": "true", "keyTab": "/tmp/mirrormaker.keytab", "storeKey": "true", "useTicketCache": "false",
        "serviceName": "kafka", "principal": "mirrormaker/HOSTNAME@EXAMPLE.COM",
    }  # fmt: skip


def test_other_sections_comments_quotes_and_several_modules(tmp_path: Path) -> None:
    entries = read(
        tmp_path,
        f"""// the broker's
        KafkaServer {{ {PLAIN} required; }};
        /* ours, { {} } */
        KafkaClient {{
          {PLAIN} optional username='a b' password="x\\"y;}}//z";
          {SCRAM} REQUIRED username=plain-words/and@more; }};
        Client {{ }};""",
    )
    assert [entry.module for entry in entries] == ["PlainLoginModule", "ScramLoginModule"]
    assert entries[0].options == {"username": "a b", "password": 'x"y;}//z'}
    assert entries[1].options == {"username": "plain-words/and@more"}


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        (f'KafkaClient {{\n {PLAIN} required\n password="{HUSH};\n}};', 3, "a quote is opened here and not closed"),
        (f"KafkaClient {{\n {PLAIN} required\n password={HUSH}\n}};", 4, "; at the end of the login module is expected here, not"),
        (f"KafkaClient {{\n {PLAIN} required password=a {HUSH}; }};", 2, "= after the name of an option"),
        (f"KafkaClient {{\n {PLAIN} required password=; }};", 2, "a value after ="),
        (f"KafkaClient {{\n {PLAIN} {HUSH}; }};", 2, "one of required, requisite, sufficient, optional"),
        (f"KafkaClient {{\n {PLAIN}; }};", 2, "one of required, requisite, sufficient, optional"),
        (f"KafkaClient {{ {PLAIN} required; }}\n", 2, "; after the } of the section is expected here, but the text ends"),
        (f"KafkaClient {PLAIN} required;", 1, "{ after the name of the section"),
        (f"KafkaClient {{ {PLAIN} required; }};\nKafkaClient {{ }};", 2, "there are two sections KafkaClient"),
        (f"KafkaClient {{ {PLAIN} required;", 1, "a login module"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_file_and_line_and_never_shows_a_value(
    tmp_path: Path, text: str, line: int, expected: str
) -> None:
    with pytest.raises(SettingError) as refused:
        read(tmp_path, text)
    assert f"jaas.conf, line {line}: " in str(refused.value)
    assert expected in str(refused.value)
    assert HUSH not in str(refused.value)


def test_a_file_without_our_section_names_those_it_has(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="has no section KafkaClient; it has KafkaServer, Client: add one"):
        read(tmp_path, "KafkaServer { }; Client { };")


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_named_with_who_named_it(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "jaas.conf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingError, match=f"KAFKA_OPTS: {file}: (no such file|this is not)"):
        jaas.read(str(file), "KAFKA_OPTS")


def test_an_entry_shows_no_option_to_whoever_prints_it(tmp_path: Path) -> None:
    assert HUSH not in repr(read(tmp_path, f"KafkaClient {{ {PLAIN} required password={HUSH}; }};"))


# -- options and variables that name the files


@pytest.mark.parametrize(
    ("option", "java", "environment", "expected"),
    [
        ("ours", ["java.security.auth.login.config=theirs"], {}, LoginFile("ours", "--jaas.config", True)),
        (None, ["x=y", "java.security.auth.login.config=/a"], {"KAFKA_OPTS": "-Djava.security.auth.login.config=/b"},
         LoginFile("/a", "-Djava.security.auth.login.config=/a", True)),
        (None, [], {"KAFKA_OPTS": "-Xmx1g -Djava.security.krb5.conf=/k '-Djava.security.auth.login.config=/a b'"},
         LoginFile("/a b", "KAFKA_OPTS, -Djava.security.auth.login.config")),
        (None, [], {"KAFKA_CLIENT_KERBEROS_PARAMS": "-Djava.security.auth.login.config=file:/etc/jaas.conf"},
         LoginFile("/etc/jaas.conf", "KAFKA_CLIENT_KERBEROS_PARAMS, -Djava.security.auth.login.config")),
        (None, [], {"KAFKA_OPTS": "-Xmx1g"}, LoginFile()),
    ],
)  # fmt: skip
def test_it_is_found_as_people_pass_it_to_java(
    option: str | None, java: list[str], environment: dict[str, str], expected: LoginFile
) -> None:
    assert login_files(option, None, java, environment).jaas == expected


def test_krb5_conf_is_found_the_same_ways() -> None:
    assert login_files(None, "ours", [], {}).krb5 == LoginFile("ours", "--krb5.config", True)
    found = login_files(None, None, [], {"KAFKA_OPTS": "-Djava.security.krb5.conf=/etc/krb5.conf"})
    assert found.krb5.path == "/etc/krb5.conf"


# -- logins of a property file


def login(lines: str, files: LoginFiles = LoginFiles()) -> Sasl:  # noqa: B008
    text = f"bootstrap.servers=a:1\ngroup.id=g\nsecurity.protocol=SASL_PLAINTEXT\n{lines}\n"
    sasl = source_settings(Properties("c.properties", parse(text)), files).endpoint.security.sasl
    assert sasl is not None
    return sasl


def refusal(lines: str, files: LoginFiles = LoginFiles()) -> str:  # noqa: B008
    with pytest.raises(SettingError) as refused:
        login(lines, files)
    assert HUSH not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_name_and_a_password(mechanism: str) -> None:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    found = login(f'sasl.mechanism={mechanism}\nsasl.jaas.config={module} required username="me" password="{HUSH}";')
    assert (found.mechanism, found.login) == (mechanism, Password("me", HUSH))
    assert found.where == "c.properties, line 5: sasl.jaas.config"
    assert HUSH not in repr(found)


def test_an_oauth_client() -> None:
    found = login(
        "sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=https://here/token\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler\n"
        f'sasl.jaas.config={OAUTH} required clientId="me" clientSecret="{HUSH}" scope="all" extension_pool="p-1";'
    )
    assert found.login == OAuthClient("https://here/token", "me", HUSH, "all", (("pool", "p-1"),))
    assert HUSH not in repr(found)


def test_an_oauth_client_as_kafka_4_names_it() -> None:
    found = login(
        "sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=https://here/token\n"
        f"sasl.oauthbearer.client.credentials.client.id=me\nsasl.oauthbearer.client.credentials.client.secret={HUSH}\n"
    )
    assert found.login == OAuthClient("https://here/token", "me", HUSH)


def test_a_keytab_goes_along_as_what_it_holds(tmp_path: Path) -> None:
    pytest.importorskip("gssapi")
    keytab, krb5, config = tmp_path / "a.keytab", tmp_path / "krb5.conf", tmp_path / "jaas.conf"
    keytab.write_bytes(keytab_of("mirrormaker/HOSTNAME@EXAMPLE.COM"))
    krb5.write_text("[libdefaults]\n")
    config.write_text(PRINTED.replace("/tmp/mirrormaker.keytab", str(keytab)))
    found = login("", LoginFiles(LoginFile(str(config), "--jaas.config"), LoginFile(str(krb5), "--krb5.config")))
    assert found == Sasl(
        "GSSAPI",
        Kerberos("kafka", "mirrormaker/HOSTNAME@EXAMPLE.COM", keytab.read_bytes(), "", str(krb5), b"[libdefaults]\n"),
        f"{config}, line 2",
    )
    assert found.login.principal_name == "User:mirrormaker"
    assert str(keytab.read_bytes()) not in repr(found)


ODD = [
    'qu"ote',
    "apo'strophe",
    "semi;colon = {brace}",
    "back\\slash\\",
    "$" + "{HOME}",
    'x" username="admin',
    "two words",
    "ü€",
]


@pytest.mark.parametrize("password", ODD)
@pytest.mark.parametrize("written", ['"${env:PW}"', "'${env:PW}'", "${env:PW}", '"${file:FILE:pw}"'])
def test_a_password_from_elsewhere_is_taken_as_it_is(
    password: str, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", password)
    escaped = "".join(f"\\u{ord(char):04x}" for char in password)
    (tmp_path / "secrets").write_text(f"pw={escaped}\n")
    written = written.replace("FILE", str(tmp_path / "secrets"))
    file = tmp_path / "c.properties"
    file.write_text(
        "bootstrap.servers=a:1\ngroup.id=g\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={PLAIN} required username=me password={written};\n"
    )
    sasl = source_settings(properties.read(str(file)), LoginFiles()).endpoint.security.sasl
    assert sasl is not None
    assert sasl.login == Password("me", password)


def test_a_reference_may_stand_for_the_whole_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", f'{PLAIN} required username="me" password="{HUSH}";')
    file = tmp_path / "c.properties"
    file.write_text(
        "bootstrap.servers=a:1\ngroup.id=g\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=${env:LOGIN}\n"
    )
    sasl = source_settings(properties.read(str(file)), LoginFiles()).endpoint.security.sasl
    assert sasl is not None
    assert sasl.login == Password("me", HUSH)


def test_a_reference_in_a_login_configuration_file_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "jaas.conf"
    config.write_text(f"KafkaClient {{ {PLAIN} required username=me password=${{env:PW}}; }};")
    files = LoginFiles(LoginFile(str(config), "--jaas.config"))
    assert "are not replaced here" in refusal("sasl.mechanism=PLAIN", files)


@pytest.mark.parametrize(
    ("protocol", "mechanism", "module", "expected"),
    [
        ("SASL_PLAINTEXT", "PLAIN", PLAIN, ["c, line 3: security.protocol=SASL_PLAINTEXT sends the password of"
         " sasl.mechanism=PLAIN unencrypted; use SASL_SSL"]),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256", SCRAM, []),
        ("SASL_SSL", "PLAIN", PLAIN, []),
    ],
)  # fmt: skip
def test_a_password_that_everybody_can_read_is_noted(
    protocol: str, mechanism: str, module: str, expected: list[str]
) -> None:
    text = f"bootstrap.servers=a:1\ngroup.id=g\nsecurity.protocol={protocol}\nsasl.mechanism={mechanism}\n"
    text += f"sasl.jaas.config={module} required username=a password={HUSH};\n"
    assert list(source_settings(Properties("c", parse(text))).notes) == expected


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_token_that_everybody_can_read_is_noted(scheme: str) -> None:
    text = "bootstrap.servers=a:1\ngroup.id=g\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
    text += f"sasl.oauthbearer.token.endpoint.url={scheme}://here/token\n"
    text += f"sasl.jaas.config={OAUTH} required clientId=a clientSecret={HUSH};\n"
    notes = list(source_settings(Properties("c", parse(text))).notes)
    expected = [
        "c, line 3: security.protocol=SASL_PLAINTEXT sends the token of sasl.mechanism=OAUTHBEARER unencrypted; use SASL_SSL",
        "c, line 5: sasl.oauthbearer.token.endpoint.url is http: the client's secret is sent unencrypted; use https",
    ]
    assert notes == expected[: 2 if scheme == "http" else 1]


def test_the_hadoop_distributions_word_for_the_protocol() -> None:
    lines = f"sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required username=a password=b;\n"
    text = f"bootstrap.servers=a:1\ngroup.id=g\nsecurity.protocol=PLAINTEXTSASL\n{lines}"
    assert source_settings(Properties("c", parse(text))).endpoint.security.protocol == "SASL_PLAINTEXT"


def test_a_login_in_the_file_counts_more_than_one_for_all() -> None:
    files = LoginFiles(LoginFile("/there/is/none", "--jaas.config"))
    assert login(f"sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required username=a password=b;", files)


def test_a_login_that_is_not_used_is_said() -> None:
    text = f"bootstrap.servers=a:1\ngroup.id=g\nsasl.jaas.config={PLAIN} required username=a password={HUSH};\n"
    (note,) = source_settings(Properties("c", parse(text))).notes
    assert note == "c, line 3: sasl.jaas.config is not used: security.protocol is PLAINTEXT, so there is no login"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", "c.properties, line 3: security.protocol=SASL_PLAINTEXT needs a login: add sasl.jaas.config=… Krb5LoginModule"),
        ("sasl.mechanism=ALOUD", "this must be one of gssapi, plain, scram-sha-256"),
        (f"sasl.jaas.config={PLAIN} required username=a password={HUSH};",
         "does not fit sasl.mechanism=GSSAPI of c.properties, which needs Krb5LoginModule: set sasl.mechanism=PLAIN"),
        (f"sasl.mechanism=PLAIN\nsasl.jaas.config=my.own.Module required password={HUSH};", "name PlainLoginModule instead"),
        ("sasl.mechanism=PLAIN\nsasl.jaas.config=", "sasl.jaas.config is empty; it needs PlainLoginModule"),
        (f"sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required username=a", "c.properties, line 5: sasl.jaas.config: "),
        (f"sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required username=a;", 'PlainLoginModule needs password="…"'),
        (f"sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required userName=a password={HUSH};",
         "userName is not known; did you mean username?"),
        (f'sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required username=a password="${{{HUSH}}}";',
         "password: Java system properties"),
        (f"sasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={SCRAM} required username=a password={HUSH} tokenauth=true;",
         "delegation tokens are not supported"),
        (f"sasl.mechanism=OAUTHBEARER\nsasl.jaas.config={OAUTH} required clientId=a clientSecret={HUSH};",
         "sasl.oauthbearer.token.endpoint.url is missing"),
        (f"sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=file:///x\nsasl.jaas.config={OAUTH} required clientId=a"
         f" clientSecret={HUSH};", "this must begin with https://"),
        (f"sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=http://[\nsasl.jaas.config={OAUTH} required clientId=a"
         f" clientSecret={HUSH};", "this is not a URL"),
        ("sasl.login.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler",
         "Java classes cannot be loaded here"),
    ],
)  # fmt: skip
def test_a_login_that_cannot_work_is_refused_with_the_way_out(lines: str, expected: str) -> None:
    assert expected in refusal(lines)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", "the source of the tickets is missing: add useKeyTab=true"),
        ("useKeyTab=true", 'Krb5LoginModule needs keyTab="…"'),
        ('useKeyTab=true keyTab="{there}/none" principal="me@HERE"', "keyTab: {there}/none: no such file or directory"),
        ('useKeyTab=true keyTab="{there}" principal="me@HERE"', "keyTab: {there}: is a directory"),
        ('useKeyTab=true keyTab="{there}/text" principal="me@HERE"', "{there}/text: this is not a keytab"),
        ('useKeyTab=true keyTab="{there}/keytab"', 'principal="…" is missing; {there}/keytab has keys of me@HERE, you@HERE'),
        ('useKeyTab=true keyTab="{there}/keytab" principal="they@HERE"',
         "principal=they@HERE: {there}/keytab has no key of it, only of me@HERE, you@HERE"),
        ('useKeyTab=true keyTab="{there}/keytab" principal="me@HERE"', "sasl.kerberos.service.name is missing"),
        ("useTicketCache=true serviceName=other\nsasl.kerberos.service.name=kafka", "keep one of them"),
    ],
)  # fmt: skip
def test_kerberos_that_cannot_work_is_refused_with_the_way_out(tmp_path: Path, options: str, expected: str) -> None:
    pytest.importorskip("gssapi")
    (tmp_path / "text").write_text("no keytab")
    (tmp_path / "keytab").write_bytes(keytab_of("me@HERE", "you@HERE"))
    first, *more = options.format(there=tmp_path).split("\n")
    said = refusal("\n".join([f"sasl.jaas.config={KERBEROS} required {first};", *more]))
    assert expected.format(there=tmp_path) in said
    assert "c.properties" in said


def test_without_the_library_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gssapi", None)
    said = refusal(f"sasl.jaas.config={KERBEROS} required useTicketCache=true serviceName=kafka;")
    assert "pip install 'mirrormaker[kerberos]'" in said
    assert "libkrb5-dev" in said


def test_whose_keys_a_keytab_holds() -> None:
    assert principals(keytab_of("a/b@C", "a/b@C", "d@C")) == ["a/b@C", "d@C"]
    assert principals(b"\x05\x02") == []


@pytest.mark.parametrize("data", [b"", b"\x05\x01\x00", b"text", b"\x05\x02\x00\x00\x00\x20\x00\x01"])
def test_what_is_no_keytab_is_not_taken_for_one(data: bytes) -> None:
    with pytest.raises(NotAKeytab):
        principals(data)
