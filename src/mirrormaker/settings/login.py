"""SASL logins: from a property file's `sasl.*` settings, or from the JAAS configuration file that Java clients use."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from mirrormaker.errors import LoginError, NotAKeytab, SettingError
from mirrormaker.settings import jaas
from mirrormaker.settings.keytab import principals
from mirrormaker.settings.properties import file_content, is_reference, resolve, without_references
from mirrormaker.settings.property_file import PropertyFile
from mirrormaker.wire.auth.kerberos import gssapi_library
from mirrormaker.wire.credentials import Kerberos, OAuthClient, Password, Sasl

# Kafka's own scripts read the first variable, those of the Hadoop distribution the second.
_VARIABLES = ("KAFKA_OPTS", "KAFKA_CLIENT_KERBEROS_PARAMS")
_JAAS, _KRB5 = "java.security.auth.login.config", "java.security.krb5.conf"
_MODULES = {
    "GSSAPI": "Krb5LoginModule",
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
# The options of each login module that are read here, and those that Java reads and that need no action here.
_OPTIONS = {
    "Krb5LoginModule": (
        "useKeyTab", "keyTab", "principal", "serviceName", "useTicketCache", "ticketCache", "storeKey", "doNotPrompt",
        "renewTGT", "isInitiator", "refreshKrb5Config", "debug",
    ),
    "PlainLoginModule": ("username", "password"),
    "ScramLoginModule": ("username", "password", "tokenauth"),
    "OAuthBearerLoginModule": ("clientId", "clientSecret", "scope"),
}  # fmt: skip
_INLINE = "sasl.jaas.config"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"


@dataclass(frozen=True)
class LoginFile:
    """A file that the command line or the environment names; an empty path means none."""

    path: str = ""
    named_by: str = ""  # the option or variable, for messages
    is_option: bool = False


@dataclass(frozen=True)
class LoginFiles:
    """The JAAS configuration and the krb5.conf, for clusters whose property file has no login of its own."""

    jaas: LoginFile = LoginFile()
    krb5: LoginFile = LoginFile()


NO_FILES = LoginFiles()


def login_files(
    jaas_config: str | None, krb5_config: str | None, properties: Iterable[str], environment: Mapping[str, str]
) -> LoginFiles:
    """Return the files that are named by our own options, else by Java's -D options, else by the environment.

    `properties` are the values of -D options, as NAME=VALUE.
    """
    java_properties = [(text, f"-D{text}", True) for text in properties]
    for variable in _VARIABLES:
        for word in _words(variable, environment):
            if word.startswith("-D"):
                java_properties.append((word[2:], f"{variable}, {word.partition('=')[0]}", False))

    def find(option: str, given: str | None, name: str) -> LoginFile:
        if given:
            return LoginFile(given, option, is_option=True)
        for text, named_by, is_option in java_properties:
            key, _, value = text.partition("=")
            if key == name and value:
                return LoginFile(value.removeprefix("=").removeprefix("file:"), named_by, is_option)
        return LoginFile()

    return LoginFiles(find("--jaas.config", jaas_config, _JAAS), find("--krb5.config", krb5_config, _KRB5))


def from_environment() -> LoginFiles:
    """Return the files that the environment names, for callers without a command line."""
    return login_files(None, None, (), os.environ)


def _words(variable: str, environment: Mapping[str, str]) -> list[str]:
    try:
        return shlex.split(environment.get(variable, ""))
    except ValueError:
        raise SettingError(f"{variable}: a quote is opened and not closed") from None


def sasl(file: PropertyFile, files: LoginFiles) -> Sasl:
    """Return the login of a file. Errors that can be found without a connection are raised here."""
    mechanism = file.text("sasl.mechanism")
    entry = _entry(file, files, mechanism)
    options = _checked_options(entry, file)
    entry = replace(entry, options=options)
    if mechanism == "GSSAPI":
        return Sasl(mechanism, _kerberos(file, files, entry, options), entry.where)
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism, _oauth_client(file, entry, options), entry.where)
    if options.get("tokenauth", "").lower() == "true":
        raise SettingError(
            f"{entry.where}: tokenauth=true: delegation tokens are not supported; log in with a password"
        )
    return Sasl(mechanism, Password(_option(entry, "username"), _option(entry, "password")), entry.where)


def _entry(file: PropertyFile, files: LoginFiles, mechanism: str) -> jaas.Entry:
    """Return the login module of the mechanism: from the property file, else from the JAAS configuration file."""
    entries = _entries(file, files, mechanism)
    required_module = _MODULES[mechanism]
    for entry in entries:
        if entry.module == required_module:
            return entry
    if not entries:
        raise SettingError(f"{file.where(_INLINE)}: {_INLINE} is empty; it needs {required_module}")
    other = entries[0]
    mechanisms = " or ".join(name for name, module in _MODULES.items() if module == other.module)
    solution = f"set sasl.mechanism={mechanisms}" if mechanisms else f"name {required_module} instead"
    raise SettingError(
        f"{other.where}: {other.module} does not fit sasl.mechanism={mechanism} of {file.properties.path}, which needs"
        f" {required_module}: {solution}"
    )


def _entries(file: PropertyFile, files: LoginFiles, mechanism: str) -> list[jaas.Entry]:
    if file.has(_INLINE):
        # A value that a reference stands for is put in after parsing: a quote in a password is a part of it.
        text = file.as_written(_INLINE) if _has_references(file) else file.text(_INLINE)
        return jaas.entries(text, f"{file.where(_INLINE)}: {_INLINE}")
    if files.jaas.path:
        return jaas.read(files.jaas.path, files.jaas.named_by, option=files.jaas.is_option)
    if mechanism == "OAUTHBEARER" and file.has("sasl.oauthbearer.client.credentials.client.id"):
        return [jaas.Entry(_MODULES[mechanism], {}, file.where("sasl.oauthbearer.client.credentials.client.id"))]
    raise SettingError(
        f"{file.where('security.protocol')}: security.protocol={file.text('security.protocol')} needs a login: add"
        f" sasl.jaas.config=… {_MODULES[mechanism]} required …; to the file, or name a JAAS configuration file with"
        " --jaas.config FILE"
    )


def _has_references(file: PropertyFile) -> bool:
    """Return True if values in `sasl.jaas.config` are references; one that stands for all of it is replaced already."""
    written = file.find(_INLINE)
    return written is not None and bool(written.unresolved) and not is_reference(file.as_written(_INLINE))


def _checked_options(entry: jaas.Entry, file: PropertyFile) -> dict[str, str]:
    """Return the options of a login module, with references replaced by the values that they stand for."""
    known = {name.lower(): name for name in _OPTIONS[entry.module]}
    has_references = _has_references(file)
    for name, value in entry.options.items():
        right = known.get(name.lower(), name)
        if right != name:
            raise SettingError(f"{entry.where}: {name} is not known; did you mean {right}?")
        if "${" in (without_references(value) if has_references else value):
            raise SettingError(
                f"{entry.where}: {name}: Java system properties (${{…}}) are not replaced here; write the value itself"
            )
    if not has_references:
        return entry.options
    return {name: resolve(value, f"{entry.where}: {name}") for name, value in entry.options.items()}


def _option(entry: jaas.Entry, name: str) -> str:
    value = entry.options.get(name, "")
    if not value:
        raise SettingError(f'{entry.where}: {entry.module} needs {name}="…"')
    return value


def _is_true(options: dict[str, str], name: str) -> bool:
    return options.get(name, "false").lower() == "true"


def _kerberos(file: PropertyFile, files: LoginFiles, entry: jaas.Entry, options: dict[str, str]) -> Kerberos:
    try:
        gssapi_library()
    except LoginError as error:
        raise SettingError(f"{file.where('security.protocol')}: {error}") from None
    keytab, principal = b"", options.get("principal", "")
    if _is_true(options, "useKeyTab"):
        keytab, principal = _keytab(entry)
    elif not _is_true(options, "useTicketCache"):
        raise SettingError(
            f'{entry.where}: the source of the tickets is missing: add useKeyTab=true keyTab="FILE"'
            ' principal="NAME@REALM",'
            " or useTicketCache=true"
        )
    return Kerberos(
        service=_service(file, entry),
        principal=principal,
        keytab=keytab,
        cache="" if keytab else options.get("ticketCache", ""),
        config_path=files.krb5.path,
        config=_read(files.krb5.path, files.krb5.named_by, option=files.krb5.is_option) if files.krb5.path else b"",
    )


def _service(file: PropertyFile, entry: jaas.Entry) -> str:
    """Return the service name from the login module or the property file; as in Java, both must not differ."""
    key = "sasl.kerberos.service.name"
    from_module, from_file = entry.options.get("serviceName", ""), file.text(key)
    if from_module and from_file and from_module != from_file:
        raise SettingError(
            f"{file.where(key)}: {key}={from_file}, but {entry.where} has serviceName={from_module}: keep one of them"
        )
    if not from_module and not from_file:
        raise SettingError(f"{file.properties.path}: {key} is missing; add a line like {key}=kafka")
    return from_module or from_file


def _keytab(entry: jaas.Entry) -> tuple[bytes, str]:
    """Return the content of the keytab and the principal, whose key the keytab must contain."""
    path = _option(entry, "keyTab").removeprefix("FILE:").removeprefix("file:")
    data = _read(path, f"{entry.where}: keyTab")
    try:
        keytab_principals = principals(data)
    except NotAKeytab:
        raise SettingError(f"{entry.where}: keyTab: {path}: this is not a keytab") from None
    listed = ", ".join(keytab_principals[:5]) or "nobody"
    principal = entry.options.get("principal", "")
    if not principal:
        raise SettingError(f'{entry.where}: principal="…" is missing; {path} has keys of {listed}')
    if principal not in [*keytab_principals, *(name.rpartition("@")[0] for name in keytab_principals)]:
        raise SettingError(f"{entry.where}: principal={principal}: {path} has no key of it, only of {listed}")
    return data, principal


def _oauth_client(file: PropertyFile, entry: jaas.Entry, options: dict[str, str]) -> OAuthClient:
    url = file.required(TOKEN_URL, "https://login.example.com/oauth2/token")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise SettingError(f"{file.where(TOKEN_URL)}: {TOKEN_URL}={url}: this is not a URL") from None
    if parts.scheme not in ("http", "https"):
        raise SettingError(f"{file.where(TOKEN_URL)}: {TOKEN_URL}={url}: this must begin with https:// (or http://)")
    if "@" in parts.netloc:
        raise SettingError(
            f"{file.where(TOKEN_URL)}: {TOKEN_URL}: a URL must not contain a password; use clientId and clientSecret"
        )
    new = "sasl.oauthbearer.client.credentials.client"
    return OAuthClient(
        token_url=url,
        id=file.text(f"{new}.id") or _option(entry, "clientId"),
        secret=file.text(f"{new}.secret") or _option(entry, "clientSecret"),
        scope=file.text("sasl.oauthbearer.scope") or options.get("scope", ""),
        extensions=tuple((n.removeprefix("extension_"), v) for n, v in options.items() if n.startswith("extension_")),
    )


def _read(path: str, named_by: str, *, option: bool = False) -> bytes:
    try:
        return file_content(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SettingError(f"{named_by}: {path}: {reason}", option=option) from None
