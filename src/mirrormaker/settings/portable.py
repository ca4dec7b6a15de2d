"""Property files for another machine: copies in one directory, with bare names instead of paths.

A driver in a cluster finds the files that are sent along in its working directory. So stores, keytabs, JAAS and krb5
configurations and the files of `${file:...}` references are copied beside the property files, which then name the copies.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mirrormaker.errors import SettingError
from mirrormaker.settings import properties
from mirrormaker.settings.login import LoginFile
from mirrormaker.settings.properties import Property, file_content

_PATHS = ("ssl.truststore.location", "ssl.keystore.location")
_LOGIN = "sasl.jaas.config"
_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
_KEYTAB = re.compile(r"""(\bkeyTab\s*=\s*)("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s;]+)""")
_TICKET_CACHE = re.compile(r"""\buseTicketCache\s*=\s*["']?true""", re.I)
_USES_KEYTAB = re.compile(r"""\buseKeyTab\s*=\s*["']?true""", re.I)


class Bundle:
    """A directory with files to send along. Only this user can read them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._names: dict[str, str] = {}  # path -> name of the copy

    @property
    def files(self) -> list[Path]:
        """Every file of the bundle."""
        return sorted(self.directory.iterdir())

    def write(self, name: str, content: bytes) -> str:
        """Write a file; return its name, which has a number in front if it was taken."""
        free = next(n for n in (name, *(f"{i}-{name}" for i in range(2, 1000))) if not (self.directory / n).exists())
        with open(os.open(self.directory / free, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        return free

    def copy(self, path: str, where: str) -> str:
        """Copy a file, once; return the copy's name. `where` says who names the file, for errors."""
        path = path.removeprefix("FILE:").removeprefix("file:")
        if path not in self._names:
            try:
                content = file_content(path)
            except OSError as error:
                raise SettingError(f"{where}: {path}: {(error.strerror or str(error)).lower()}") from None
            self._names[path] = self.write(_safe(Path(path).name), content)
        return self._names[path]

    def property_file(self, path: str, option: str) -> str:
        """Copy a property file with all files that it names; return the copy's name."""
        lines = properties.read(path, option).lines
        text = "".join(f"{_escaped(line.key, key=True)}={_escaped(self._value(line, path))}\n" for line in lines)
        return self.write(_safe(Path(path).name), text.encode("latin-1"))

    def login_file(self, file: LoginFile) -> str:
        """Copy a JAAS configuration with its keytabs; return the copy's name."""
        try:
            text = file_content(file.path).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"{file.named_by}: {file.path}: {error}", option=file.is_option) from None
        return self.write(_safe(Path(file.path).name), self._login(text, file.path).encode())

    def _value(self, line: Property, path: str) -> str:
        where = f"{path}, line {line.line}: {line.key}"
        if line.key in _PATHS:
            return self.copy(line.value, where)
        text = _REFERENCE.sub(lambda match: self._reference(match, where), line.as_written)
        return self._login(text, where) if line.key == _LOGIN else text

    def _reference(self, match: re.Match[str], where: str) -> str:
        if match[1] == "env":
            raise SettingError(
                f"{where}: {match[0]}: the cluster has not this machine's environment; use ${{file:path:key}} instead"
            )
        path, _, key = match[2].rpartition(":")
        return f"${{file:{self.copy(path, where)}:{key}}}"

    def _login(self, text: str, where: str) -> str:
        """Return a login configuration with the keytabs' bare names; refuse one that needs this machine's tickets."""
        if _TICKET_CACHE.search(text) and not _USES_KEYTAB.search(text):
            raise SettingError(
                f"{where}: useTicketCache=true: the cluster has not this user's Kerberos tickets; use useKeyTab=true"
                ' keyTab="FILE" principal="NAME@REALM"'
            )
        return _KEYTAB.sub(lambda match: f'{match[1]}"{self.copy(match[2].strip(chr(34) + chr(39)), where)}"', text)


def _safe(name: str) -> str:
    """Return a name that Spark's lists of files can hold."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.A)


def _escaped(text: str, *, key: bool = False) -> str:
    """Return a key or a value as Java's properties files write it."""
    text = (
        text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\f", "\\f")
    )
    text = re.sub(r"([=:#! ])", r"\\\1", text) if key else re.sub(r"^ ", r"\\ ", text)
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(chr(code) if code < 256 else f"\\u{code:04x}" for code in codes)
