"""Property files for another machine: everything they name is copied, and named without its directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.errors import SettingError
from mirrormaker.settings import properties
from mirrormaker.settings.login import LoginFile
from mirrormaker.settings.portable import Bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    directory = tmp_path / "bundle"
    directory.mkdir()
    return Bundle(directory)


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "source.properties"
    path.write_text(text, encoding="latin-1")
    return str(path)


def values(bundle: Bundle, name: str) -> dict[str, str]:
    text = (bundle.directory / name).read_text(encoding="latin-1")
    return {line.key: line.value for line in properties.parse(text)}


def test_stores_are_copied_and_named_without_their_directory(tmp_path: Path, bundle: Bundle) -> None:
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "store.jks").write_text(side)
    path = written(
        tmp_path,
        f"ssl.truststore.location={tmp_path}/a/store.jks\nssl.keystore.location={tmp_path}/b/store.jks\n"
        "ssl.keystore.password=a b\\\\c\n",
    )
    found = values(bundle, bundle.property_file(path, "--consumer.config"))
    assert (bundle.directory / found["ssl.truststore.location"]).read_text() == "a"
    assert (bundle.directory / found["ssl.keystore.location"]).read_text() == "b"
    assert "/" not in found["ssl.truststore.location"] + found["ssl.keystore.location"]
    assert found["ssl.keystore.password"] == "a b\\c"
    assert {file.stat().st_mode & 0o777 for file in bundle.files} == {0o600}


def test_every_value_comes_back_as_it_was(tmp_path: Path, bundle: Bundle) -> None:
    text = "a\\ key\\=x=\\  blank, \\u20ac, tab\\t, line\\nend\nlatin=\xe9\npair=\\ud83d\\ude00\nempty=\n"
    path = written(tmp_path, text)
    wanted = {line.key: line.value for line in properties.read(path).lines}
    assert values(bundle, bundle.property_file(path, "")) == wanted
    assert wanted["a key=x"].startswith("  blank, €") or wanted["a key=x"].startswith(" ")


def test_keytabs_in_a_login_are_copied(tmp_path: Path, bundle: Bundle) -> None:
    keytab = tmp_path / "my client.keytab"
    keytab.write_bytes(b"\x05\x02key")
    login = f'M required useKeyTab=true keyTab="{keytab}" principal="me@REALM";'
    found = values(bundle, bundle.property_file(written(tmp_path, f"sasl.jaas.config={login}\n"), ""))
    assert found["sasl.jaas.config"] == 'M required useKeyTab=true keyTab="my_client.keytab" principal="me@REALM";'
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(f"KafkaClient {{\n {login}\n}};\n")
    copy = bundle.login_file(LoginFile(str(jaas), "--jaas.config"))
    assert 'keyTab="my_client.keytab"' in (bundle.directory / copy).read_text()
    assert (bundle.directory / "my_client.keytab").read_bytes() == b"\x05\x02key"


def test_files_of_references_are_copied_and_their_values_stay_out(tmp_path: Path, bundle: Bundle) -> None:
    (tmp_path / "secrets.properties").write_text("pw=geheim\n")
    path = written(tmp_path, f"ssl.key.password=${{file:{tmp_path}/secrets.properties:pw}}\n")
    name = bundle.property_file(path, "")
    assert values(bundle, name) == {"ssl.key.password": "${file:secrets.properties:pw}"}
    assert "geheim" not in (bundle.directory / name).read_text()


def test_the_environment_and_tickets_of_this_machine_are_refused(
    tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", "geheim")
    with pytest.raises(SettingError, match=r"line 1: ssl.key.password: \$\{env:PW\}: .*environment") as refusal:
        bundle.property_file(written(tmp_path, "ssl.key.password=${env:PW}\n"), "")
    assert "geheim" not in str(refusal.value)
    with pytest.raises(SettingError, match="useTicketCache=true: the cluster has not this user's Kerberos tickets"):
        bundle.property_file(written(tmp_path, "sasl.jaas.config=M required useTicketCache=true;\n"), "")


def test_a_file_that_is_missing_is_named(tmp_path: Path, bundle: Bundle) -> None:
    with pytest.raises(SettingError, match=r"line 1: ssl.truststore.location: .*/none.jks: no such file"):
        bundle.property_file(written(tmp_path, f"ssl.truststore.location={tmp_path}/none.jks\n"), "")
