"""Logins and tickets that run out while a mirror is at work: it logs in again on the connections that it has."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.mirror_process import MirrorProcess
from tests.support.secure import kerberos, secure_cluster

from faults.case import Row
from faults.judge import count
from faults.load import PARTITIONS, Load
from faults.stage import wait_until
from faults.watch import Watch
from mirrormaker.embedded import Cluster
from mirrormaker.embedded.kdc import Kdc

TOPIC = GROUP = "secured"
_SESSION_MS = "10000"
"""For how long brokers accept a login."""
_TICKET = "20 seconds"
_RUN = 120.0
"""Seconds under load: a dozen logins on each connection, and half a dozen tickets."""
_LIMIT = 1.5
"""Seconds that a partition may stand still for: a login takes a few hundredths of one."""
_START = 60.0


@dataclass(frozen=True)
class Sides:
    """Two clusters, and a principal for each."""

    kdc: Kdc
    source: Cluster
    target: Cluster
    reader: Path  # keytabs
    writer: Path

    def lines(self, name: str) -> str:
        """The login of `reader` or `writer`, as a file has it."""
        return kerberos(getattr(self, name), f"{name}/localhost@{self.kdc.realm}")

    def mirror(self, directory: Path, *options: str) -> MirrorProcess:
        ends = (self.source.address("KRB"), self.target.address("KRB"))
        options = ("--whitelist", TOPIC, "--num.streams", "2", "--krb5.config", str(self.kdc.config), *options)
        return MirrorProcess(
            directory, *ends, *options, group=GROUP, consumer=self.lines("reader"), producer=self.lines("writer")
        )

    def connections(self) -> set[tuple[int, int]]:
        """Everybody who is logged in by Kerberos, by both ports; only the mirror is."""
        ports = {int(cluster.address("KRB").split(":")[1]) for cluster in (self.source, self.target)}
        found = set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, state, *_ = line.split()
            here, there = (int(address.split(":")[1], 16) for address in (local, remote))
            if state == "01" and there in ports:
                found.add((here, there))
        return found


@contextlib.contextmanager
def sides(settings: dict[str, str] | None = None, listeners: dict[str, str] | None = None) -> Iterator[Sides]:
    """Tickets last for 20 s, and logins for 10."""
    with Kdc() as kdc:
        reader, writer = (kdc.add(f"{name}/localhost", life=_TICKET) for name in ("reader", "writer"))
        all_settings = {"connections.max.reauth.ms": _SESSION_MS, **(settings or {})}
        source = secure_cluster("login-source", kdc, all_settings, listeners)
        target = secure_cluster("login-target", kdc, all_settings, listeners)
        with source, target:
            for cluster in (source, target):
                cluster.create_topic(TOPIC, PARTITIONS)
            yield Sides(kdc, source, target, reader, writer)


def watch_logins(there: Sides, mirror: MirrorProcess, watch: Watch, seconds: float, row: Row) -> None:
    """While the mirror is at work: no connection may be opened anew, and no partition may stand still."""
    mirror.wait_until(lambda: min(watch.target) > 0, _START)
    time.sleep(1)  # streams that begin cut idle polls short, which costs connections
    before, began = there.connections(), time.monotonic()
    time.sleep(seconds)
    lost = before - there.connections()
    row.pause = watch.pause(began, time.monotonic() - _LIMIT)
    row.rounds = int(seconds / 10)
    if not before or lost:
        row.troubles.append(f"{len(lost)} of {len(before)} connections were opened anew")
    if row.pause > _LIMIT:
        row.troubles.append(f"a partition stood still for {row.pause:.1f} s; {_LIMIT:g} s are allowed")


def reauthentication(directory: Path, row: Row) -> None:
    with sides() as there, there.mirror(directory) as mirror:
        load, watch = Load(there.source.bootstrap, TOPIC), Watch(there.source.bootstrap, there.target.bootstrap, TOPIC)
        load.start()
        watch.start()
        try:
            watch_logins(there, mirror, watch, _RUN, row)
            load.stop()
            wait_until("the last record", lambda: sum(watch.target) == sum(watch.source) == load.sent, _START)
        finally:
            load.stop_without_waiting()
            watch.stop()
        if mirror.stop():
            row.troubles.append("the mirror did not stop in order")
        found = count(there.source, there.target, TOPIC)
    row.records, row.lost, row.doubled, row.out_of_order = found.records, found.lost, found.doubled, found.out_of_order
    if not found.exact:
        row.troubles.append("records are not as they must be")
