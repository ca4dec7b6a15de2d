"""Two clusters with Kerberos logins, and a mirror between them whose logins and tickets expire all the time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mirrormaker.embedded import Cluster
from mirrormaker.embedded.kdc import Kdc
from tests.support.load import PARTITIONS
from tests.support.mirror_process import MirrorProcess
from tests.support.offset_watch import OffsetWatch
from tests.support.secure_cluster import kerberos_login, secure_cluster

TOPIC = GROUP = "secured"
SESSION = 10  # seconds for which brokers accept a login
_TICKET = "20 seconds"
_LIMIT = 1.5  # seconds for which a partition may stand still; a login takes a few hundredths of one
_START = 60.0  # seconds for the first record of every partition


@dataclass(frozen=True)
class KerberosClusters:
    """A source and a target, and the principal that the mirror uses for each."""

    kdc: Kdc
    source: Cluster
    target: Cluster
    reader: Path  # the keytab for the source
    writer: Path  # the keytab for the target

    def login(self, name: str) -> str:
        """Return the lines of a property file that log in as `reader` or `writer`."""
        return kerberos_login(getattr(self, name), f"{name}/localhost@{self.kdc.realm}")

    def mirror(self, directory: Path, *options: str) -> MirrorProcess:
        """Return a mirror between both clusters; it is not started."""
        addresses = (self.source.address("KRB"), self.target.address("KRB"))
        options = ("--whitelist", TOPIC, "--num.streams", "2", "--krb5.config", str(self.kdc.config), *options)
        return MirrorProcess(
            directory, *addresses, *options, group=GROUP, consumer=self.login("reader"), producer=self.login("writer")
        )

    def connections(self) -> set[tuple[int, int]]:
        """Return all connections to the listeners for Kerberos as pairs of ports; only the mirror uses them."""
        ports = {int(cluster.address("KRB").split(":")[1]) for cluster in (self.source, self.target)}
        established = set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, state, *_ = line.split()
            local_port, remote_port = (int(address.split(":")[1], 16) for address in (local, remote))
            if state == "01" and remote_port in ports:  # 01: established
                established.add((local_port, remote_port))
        return established


@contextlib.contextmanager
def kerberos_clusters(
    settings: dict[str, str] | None = None, listeners: dict[str, str] | None = None
) -> Iterator[KerberosClusters]:
    """Run both clusters and their KDC. Tickets expire after 20 s, logins after 10 s."""
    with Kdc() as kdc:
        reader, writer = (kdc.add(f"{name}/localhost", life=_TICKET) for name in ("reader", "writer"))
        all_settings = {"connections.max.reauth.ms": str(SESSION * 1000), **(settings or {})}
        source = secure_cluster("login-source", kdc, all_settings, listeners)
        target = secure_cluster("login-target", kdc, all_settings, listeners)
        with source, target:
            for cluster in (source, target):
                cluster.create_topic(TOPIC, PARTITIONS)
            yield KerberosClusters(kdc, source, target, reader, writer)


@dataclass(frozen=True)
class LoginReport:
    """The longest pause while logins were renewed, and everything that went wrong."""

    pause: float
    problems: list[str] = field(default_factory=list)


def watch_logins(clusters: KerberosClusters, mirror: MirrorProcess, watch: OffsetWatch, seconds: float) -> LoginReport:
    """Watch a mirror under load: it must renew logins on its open connections, and no partition may stand still."""
    mirror.wait_until(lambda: min(watch.target) > 0, _START)
    time.sleep(1)  # streams that start cut long polls short, which costs connections
    before, began = clusters.connections(), time.monotonic()
    time.sleep(seconds)
    closed = before - clusters.connections()
    report = LoginReport(watch.longest_pause(began, time.monotonic() - _LIMIT))
    if not before or closed:
        report.problems.append(f"{len(closed)} of {len(before)} connections were closed and opened again")
    if report.pause > _LIMIT:
        report.problems.append(f"a partition stood still for {report.pause:.1f} s; {_LIMIT:g} s are allowed")
    return report
