"""The same load and the same kills through both Java MirrorMakers, and through ours."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from typing import IO

from bench.tools import TOOLS, Job, start_mm2, stop

from faults.case import Row
from faults.play import Play
from faults.stage import Stage, wait_until
from mirrormaker.embedded import child_processes

MIRRORS = {"ours": "ours", "mm1": "Java MirrorMaker 3.9.2", "mm2": "MirrorMaker 2 (4.3.1)"}
RECORDS = 400_000
RATE = 4000
KILLS = 4

_QUIET = 15.0
"""Seconds without a new record after which a mirror is taken to be done."""

_DONE = 240.0
"""Seconds for the last records: a Java MirrorMaker waits 45 until the group has forgotten its killed predecessor."""

# Three brokers of which two must agree: topics of one replica, as the bench has them, would take no record here.
_REPLICATED = {
    f"{name}replication.factor": "3" for name in ("", "offset.storage.", "status.storage.", "config.storage.")
}


def compare(stage: Stage, mirror: str, chance: random.Random, records: int, tell: Callable[[str], None]) -> Row:
    """One process, killed at random moments and started again at once."""
    play = Play(stage, f"java-{mirror}", stage.target, rate=RATE)
    row = Row(MIRRORS[mirror], KILLS)
    began = time.monotonic()
    process: subprocess.Popen[bytes] | None = None
    try:
        with (play.directory / "mirror.log").open("ab") as log:
            play.load.limit = records
            play.load.start()
            play.watch.start()
            process = _start(mirror)(play.job(), log)
            for kill in range(1, KILLS + 1):
                reached = sum(play.watch.target)
                moment = int(records * (kill - 1 + chance.uniform(0.3, 0.9)) / KILLS)
                _wait_for_record(play, moment)
                # A mirror that is killed before it has begun doubles nothing, and proves nothing.
                _wait_until_at_work(play, reached)
                time.sleep(chance.uniform(0, 3))
                tell(f"kill {kill} of {KILLS}")
                child_processes.end(process, signal.SIGKILL)
                process = _start(mirror)(play.job(), log)
            tell("waiting for the last record, and counting")
            play.load.join()
            _wait_until_quiet(play)
            stop(process)
        found = play.count(anywhere=True)
        row.records, row.lost, row.doubled, row.out_of_order = (
            found.records, found.lost, found.doubled, found.out_of_order,
        )  # fmt: skip
        row.holds = found.exact
    except Exception as error:
        play.troubles.append(str(error))
    finally:
        if process is not None:
            child_processes.end(process, signal.SIGKILL)
        play.close()
    row.seconds, row.troubles = time.monotonic() - began, play.troubles
    return row


def _wait_for_record(play: Play, number: int) -> None:
    wait_until(f"record {number} of the load", lambda: play.load.sent >= number, 600)


def _wait_until_at_work(play: Play, reached: int) -> None:
    wait_until("the mirror is at work", lambda: sum(play.watch.target) > reached, _DONE)


def _start(mirror: str) -> Callable[[Job, IO[bytes]], subprocess.Popen[bytes]]:
    if mirror == "mm2":
        return lambda job, log: start_mm2(job, log, _REPLICATED)
    return TOOLS[mirror].start


def _wait_until_quiet(play: Play) -> None:
    """No mirror says when it is done in a way that all of them share: the target tells."""
    last, since = -1, time.monotonic()

    def quiet() -> bool:
        nonlocal last, since
        reached = sum(play.watch.target)
        if reached != last:
            last, since = reached, time.monotonic()
        behind = any(there < here for there, here in zip(play.watch.target, play.watch.source, strict=True))
        return time.monotonic() - since > (_DONE / 2 if behind else _QUIET)

    wait_until("the target's last record", quiet, _DONE)
