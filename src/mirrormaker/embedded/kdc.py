"""A Kerberos realm on this machine: Debian's krb5-kdc as a child process, with a temporary database."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

from mirrormaker.embedded import child_processes
from mirrormaker.embedded.ports import free_port
from mirrormaker.embedded.server_process import Server
from mirrormaker.errors import EmbeddedError

_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"  # Debian installs them there; only root has it in the PATH
_START = 10.0  # seconds for the KDC to listen; a tenth of one is usual

# DNS lookups are off, so that neither the network nor the machine's own realm matters. TCP fails at once, UDP does not.
_CLIENT = """[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
[domain_realm]
  localhost = {realm}
"""
_SERVER = """[kdcdefaults]
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {directory}/principal
    key_stash_file = {directory}/stash
    acl_file = {directory}/kadm5.acl
    max_life = 24h
    max_renewable_life = 7d
  }}
[logging]
  kdc = FILE:{directory}/requests.log
"""


def missing() -> str:
    """Return a sentence on the programs that are not installed, or "" if all are."""
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    return f"{', '.join(absent)} not found: install Debian's packages krb5-kdc and krb5-admin-server" if absent else ""


class Kdc:
    """One realm. Its KDC runs from `start` to `stop`, or inside `with`."""

    def __init__(self, realm: str = "EXAMPLE.COM") -> None:
        self.realm = realm
        self._directory: Path | None = None
        self._port = 0
        self._server: Server | None = None

    @property
    def directory(self) -> Path:
        """A directory for keytabs. It is removed when the KDC stops."""
        if self._directory is None:
            raise EmbeddedError(f"the KDC of {self.realm} does not run")
        return self._directory

    @property
    def config(self) -> Path:
        """The krb5.conf for clients and brokers."""
        return self.directory / "krb5.conf"

    @property
    def requests(self) -> str:
        """The KDC's log, with one line for each request of a ticket."""
        return (self.directory / "requests.log").read_text(errors="replace")

    def start(self) -> Kdc:
        """Make an empty realm and wait until its KDC listens."""
        if problem := missing():
            raise EmbeddedError(problem)
        self._directory = child_processes.new_directory("kdc")
        self._port = free_port()
        names = {"realm": self.realm, "port": self._port, "directory": self._directory}
        self.config.write_text(_CLIENT.format(**names))
        (self._directory / "kdc.conf").write_text(_SERVER.format(**names))
        (self._directory / "kadm5.acl").touch()
        self._run("kdb5_util", "create", "-s", "-r", self.realm, "-P", secrets.token_hex(16))
        command = [_program("krb5kdc"), "-n", "-r", self.realm]  # -n: do not detach from this process
        self._server = Server("kdc", command, self._directory, self._environment)
        self.resume()
        return self

    def resume(self) -> None:
        """Start the KDC again after `pause`."""
        assert self._server is not None
        self._server.launch()
        self._server.wait_until(self._listens, _START)

    def pause(self) -> None:
        """Stop the KDC: nobody gets a ticket until `resume`."""
        if self._server is not None:
            self._server.stop()

    def stop(self) -> None:
        """Stop the KDC and remove its directory."""
        self.pause()
        if self._directory is not None:
            child_processes.remove_directory(self._directory)
        self._directory = None

    def __enter__(self) -> Kdc:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def add(self, principal: str, *, life: str = "") -> Path:
        """Add a principal and return its keytab. `life` limits the life of its tickets, for example "20 seconds"."""
        keytab = self.directory / f"{principal.replace('/', '_')}.keytab"
        # Without preauthentication, which every real realm requires, the KDC does not compare clocks.
        options = ["-randkey", "+requires_preauth", *(["-maxlife", life] if life else [])]
        self._admin("addprinc", *options, f"{principal}@{self.realm}")
        self._admin("ktadd", "-k", str(keytab), f"{principal}@{self.realm}")
        return keytab

    def remove(self, principal: str) -> None:
        """Remove a principal from the KDC; keytabs still hold its key."""
        self._admin("delprinc", "-force", f"{principal}@{self.realm}")

    def change_key(self, principal: str) -> None:
        """Change a principal's key, so that older keytabs are no longer valid."""
        self._admin("cpw", "-randkey", f"{principal}@{self.realm}")

    def _admin(self, *words: str) -> None:
        query = " ".join(f'"{word}"' if " " in word else word for word in words)
        errors = self._run("kadmin.local", "-r", self.realm, "-q", query)
        if "while" in errors:  # kadmin.local exits with 0 even if it fails, and then says "... while doing ..."
            raise EmbeddedError(f"kadmin.local {query}: {errors}")

    def _run(self, program: str, *args: str) -> str:
        """Run a program to its end and return its stderr."""
        done = subprocess.run(
            [_program(program), *args], env=self._environment, capture_output=True, text=True, timeout=30
        )
        if done.returncode:
            raise EmbeddedError(f"{program} failed: {done.stdout}{done.stderr}")
        return done.stderr

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf")}

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


def _program(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    assert found is not None
    return found
