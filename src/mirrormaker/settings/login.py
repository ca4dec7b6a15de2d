"""Who a mirror is to a cluster: a file's sasl settings, and the login configuration of Java that they may leave it to."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mirrormaker.errors import LoginError, NotAKeytab, SettingError
from mirrormaker.settings import jaas
from mirrormaker.settings.keytab import principals
from mirrormaker.settings.property_file import File
from mirrormaker.wire.auth.kerberos import gssapi_library
from mirrormaker.wire.credentials import Kerberos, OAuthClient, Password, Sasl

# As in Kafka's own scripts, and in those of the Hadoop distribution.
_VARIABLES = ("KAFKA_OPTS", "KAFKA_CLIENT_KERBEROS_PARAMS")
_JAAS, _KRB5 = "java.security.auth.login.config", "java.security.krb5.conf"
_MODULES = {
    "GSSAPI": "Krb5LoginModule",
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
_OPTIONS = {
    "Krb5LoginModule": (
        "useKeyTab", "keyTab", "principal", "serviceName", "useTicketCache", "ticketCache", "storeKey", "doNotPrompt",
        "renewTGT", "isInitiator", "refreshKrb5Config", "debug",
    ),
    "PlainLoginModule": ("username", "password"),
    "ScramLoginModule": ("username", "password", "tokenauth"),
    "OAuthBearerLoginModule": ("clientId", "clientSecret", "scope"),
}  # fmt: skip
_URL = "sasl.oauthbearer.token.endpoint.url"


@dataclass(frozen=True)
class Named:
    """A file that the command line or the environment names, and how."""

    path: str = ""
    by: str = ""


@dataclass(frozen=True)
class LoginFiles:
    """What Java reads its logins from: for all files whose clusters are not given one of their own."""

    jaas: Named = Named()
    krb5: Named = Named()


NO_FILES = LoginFiles()


def login_files(
    jaas_config: str | None, krb5_config: str | None, properties: Iterable[str], environment: Mapping[str, str]
) -> LoginFiles:
    """Our own options count first, then Java's properties on the command line, then those in the environment."""
    said = [(f"-D{text}", text) for text in properties]
    for variable in _VARIABLES:
        said += [(variable, word[2:]) for word in _words(variable, environment) if word.startswith("-D")]

    def find(option: str, given: str | None, name: str) -> Named:
        if given:
            return Named(given, option)
        for by, text in said:
            key, _, value = text.partition("=")
            if key == name and value:
                return Named(
                    value.removeprefix("=").removeprefix("file:"), by if by.startswith("-D") else f"{by}, -D{name}"
                )
        return Named()

    return LoginFiles(find("--jaas.config", jaas_config, _JAAS), find("--krb5.config", krb5_config, _KRB5))


def from_environment() -> LoginFiles:
    """For commands that have no options of their own for it."""
    return login_files(None, None, (), os.environ)


def _words(variable: str, environment: Mapping[str, str]) -> list[str]:
    try:
        return shlex.split(environment.get(variable, ""))
    except ValueError:
        raise SettingError(f"{variable}: a quote is opened and not closed") from None


def sasl(file: File, files: LoginFiles) -> Sasl:
    """Refuses what cannot work before anything is asked of a cluster."""
    mechanism = file.text("sasl.mechanism")
    entry = _entry(file, files, mechanism)
    options = _checked(entry)
    if mechanism == "GSSAPI":
        return Sasl(mechanism, _kerberos(file, files, entry, options), entry.where)
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism, _client(file, entry, options), entry.where)
    if options.get("tokenauth", "").lower() == "true":
        raise SettingError(f"{entry.where}: tokenauth=true: delegation tokens are not built; log in with a password")
    return Sasl(mechanism, Password(_option(entry, "username"), _option(entry, "password")), entry.where)


def _entry(file: File, files: LoginFiles, mechanism: str) -> jaas.Entry:
    """The login module that fits the mechanism: from the file itself, else from the login configuration."""
    found = _entries(file, files, mechanism)
    wanted = _MODULES[mechanism]
    for entry in found:
        if entry.module == wanted:
            return entry
    if not found:
        raise SettingError(f"{file.where('sasl.jaas.config')}: sasl.jaas.config is empty; it needs {wanted}")
    there = found[0]
    fits = " or ".join(name for name, module in _MODULES.items() if module == there.module)
    way_out = f"set sasl.mechanism={fits}" if fits else f"name {wanted} instead"
    raise SettingError(
        f"{there.where}: {there.module} does not go with sasl.mechanism={mechanism} of {file.properties.path}, which takes"
        f" {wanted}: {way_out}"
    )


def _entries(file: File, files: LoginFiles, mechanism: str) -> list[jaas.Entry]:
    if file.has("sasl.jaas.config"):
        return jaas.entries(file.text("sasl.jaas.config"), f"{file.where('sasl.jaas.config')}: sasl.jaas.config")
    if files.jaas.path:
        return jaas.read(files.jaas.path, files.jaas.by)
    if mechanism == "OAUTHBEARER" and file.has("sasl.oauthbearer.client.credentials.client.id"):
        return [jaas.Entry(_MODULES[mechanism], {}, file.where("sasl.oauthbearer.client.credentials.client.id"))]
    raise SettingError(
        f"{file.where('security.protocol')}: security.protocol={file.text('security.protocol')} needs a login: add"
        f" sasl.jaas.config=… {_MODULES[mechanism]} required …; to the file, or name a login configuration with --jaas.config FILE"
    )


def _checked(entry: jaas.Entry) -> dict[str, str]:
    known = {name.lower(): name for name in _OPTIONS[entry.module]}
    for name, value in entry.options.items():
        right = known.get(name.lower(), name)
        if right != name:
            raise SettingError(f"{entry.where}: {name} is not known; did you mean {right}?")
        if "${" in value:
            raise SettingError(
                f"{entry.where}: {name}: Java's properties (${{…}}) are not known here; write the value itself"
            )
    return entry.options


def _option(entry: jaas.Entry, name: str) -> str:
    value = entry.options.get(name, "")
    if not value:
        raise SettingError(f'{entry.where}: {entry.module} needs {name}="…"')
    return value


def _is(options: dict[str, str], name: str) -> bool:
    return options.get(name, "false").lower() == "true"


def _kerberos(file: File, files: LoginFiles, entry: jaas.Entry, options: dict[str, str]) -> Kerberos:
    try:
        gssapi_library()
    except LoginError as error:
        raise SettingError(f"{file.where('security.protocol')}: {error}") from None
    keytab, principal = b"", options.get("principal", "")
    if _is(options, "useKeyTab"):
        keytab, principal = _keytab(entry)
    elif not _is(options, "useTicketCache"):
        raise SettingError(
            f'{entry.where}: where do tickets come from? Add useKeyTab=true keyTab="FILE" principal="NAME@REALM", or'
            " useTicketCache=true"
        )
    return Kerberos(
        service=_service(file, entry),
        principal=principal,
        keytab=keytab,
        cache="" if keytab else options.get("ticketCache", ""),
        config_path=files.krb5.path,
        config=_read(files.krb5.path, files.krb5.by) if files.krb5.path else b"",
    )


def _service(file: File, entry: jaas.Entry) -> str:
    """Either place may name it, as in Java; two names are a mistake."""
    named, said = entry.options.get("serviceName", ""), file.text("sasl.kerberos.service.name")
    if named and said and named != said:
        raise SettingError(
            f"{file.where('sasl.kerberos.service.name')}: sasl.kerberos.service.name={said}, but {entry.where} says"
            f" serviceName={named}: keep one of them"
        )
    if not named and not said:
        raise SettingError(
            f"{file.properties.path}: sasl.kerberos.service.name is missing; add a line like sasl.kerberos.service.name=kafka"
        )
    return named or said


def _keytab(entry: jaas.Entry) -> tuple[bytes, str]:
    """What is in the keytab, and the principal whose key it must hold."""
    path = _option(entry, "keyTab").removeprefix("FILE:").removeprefix("file:")
    data = _read(path, f"{entry.where}: keyTab")
    try:
        held = principals(data)
    except NotAKeytab:
        raise SettingError(f"{entry.where}: keyTab: {path}: this is not a keytab") from None
    there = ", ".join(held[:5]) or "nobody"
    principal = entry.options.get("principal", "")
    if not principal:
        raise SettingError(f'{entry.where}: principal="…" is missing; {path} holds keys of {there}')
    if principal not in held and principal not in [name.rpartition("@")[0] for name in held]:
        raise SettingError(f"{entry.where}: principal={principal}: {path} holds no key of it, only of {there}")
    return data, principal


def _client(file: File, entry: jaas.Entry, options: dict[str, str]) -> OAuthClient:
    url = file.required(_URL, "https://login.example.com/oauth2/token")
    if urlsplit(url).scheme not in ("http", "https"):
        raise SettingError(f"{file.where(_URL)}: {_URL}={url}: this must begin with https:// (or http://)")
    if "@" in urlsplit(url).netloc:
        raise SettingError(
            f"{file.where(_URL)}: {_URL}: no password belongs into an address: use clientId and clientSecret"
        )
    new = "sasl.oauthbearer.client.credentials.client"
    return OAuthClient(
        token_url=url,
        id=file.text(f"{new}.id") or _option(entry, "clientId"),
        secret=file.text(f"{new}.secret") or _option(entry, "clientSecret"),
        scope=file.text("sasl.oauthbearer.scope") or options.get("scope", ""),
        extensions=tuple((n.removeprefix("extension_"), v) for n, v in options.items() if n.startswith("extension_")),
    )


def _read(path: str, named_by: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingError(f"{named_by}: {path}: {(error.strerror or str(error)).lower()}") from None
