"""Build the class data archive that makes every start of Spark seconds faster: `python -m mirrormaker.spark.archive_builder`.

`make` runs it once, and so does the first mirror that has none (`archive_process`). Without the archive everything works, and
starts later.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from mirrormaker.spark import class_archive
from mirrormaker.spark.session import Engine

_WRITTEN_WITHIN = 180.0  # seconds; it usually takes half a minute on two cores


def make(archive: Path) -> None:
    """Run small Spark jobs, and have the JVM archive the classes that they have loaded."""
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    print("preparing a class data archive for Spark; this takes half a minute, once", file=sys.stderr, flush=True)
    with open(archive.with_suffix(".lock"), "w") as lock, tempfile.TemporaryDirectory(prefix="mirrormaker-") as scratch:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another process builds it
        unfinished = archive.with_suffix(f".{os.getpid()}")
        engine = Engine(None, [], 2, Path(scratch), Path(scratch, "log"), [f"-XX:ArchiveClassesAtExit={unfinished}"])
        try:
            _load_classes(engine)
            _write(engine)
            if unfinished.exists():
                unfinished.replace(archive)
        finally:
            if engine.process is not None:
                engine.process.kill()
            unfinished.unlink(missing_ok=True)


def _load_classes(engine: Engine) -> None:
    engine.start_jvm()
    session = engine.start_session()
    # A mirror runs an RDD, and a comparison a DataFrame.
    session.sparkContext.parallelize(range(2), 2).mapPartitions(lambda numbers: numbers).collect()
    session.range(2).mapInArrow(lambda batches: batches, "id long").toArrow()
    session.stop()


def _write(engine: Engine) -> None:
    """End the JVM, which writes the archive then."""
    assert engine.process is not None and engine.process.stdin is not None
    engine.process.stdin.close()
    try:
        engine.process.wait(_WRITTEN_WITHIN)
    except subprocess.TimeoutExpired:
        engine.end()


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # the JVM ends on the way out


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else class_archive.path())
