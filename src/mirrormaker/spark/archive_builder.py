"""Build the class data archives that make every start of Spark seconds faster: `python -m mirrormaker.spark.archive_builder`.

`make` runs it once, and so does the first mirror that has none (`archive_process`). Without the archives everything works, and
starts later. There is one for mirrors and one for comparisons, which use Spark's SQL engine.
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

from pyspark.sql import SparkSession

from mirrormaker.spark import class_archive
from mirrormaker.spark.session import Engine

_WRITTEN_WITHIN = 180.0  # seconds; it usually takes half a minute on two cores


def make(archive: Path, *, with_sql: bool) -> None:
    """Run a small Spark job, and have the JVM archive the classes that it has loaded."""
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    kind = "comparisons" if with_sql else "mirrors"
    print(
        f"preparing a class data archive of Spark for {kind}; this takes 15 s or so, once", file=sys.stderr, flush=True
    )
    with open(archive.with_suffix(".lock"), "w") as lock, tempfile.TemporaryDirectory(prefix="mirrormaker-") as scratch:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another process builds it
        unfinished = archive.with_suffix(f".{os.getpid()}")
        options = [f"-XX:ArchiveClassesAtExit={unfinished}", *class_archive.FIXED_ADDRESS]
        engine = Engine(None, [], 2, Path(scratch), Path(scratch, "log"), options)
        try:
            _load_classes(engine, with_sql)
            _write(engine)
            if unfinished.exists():
                unfinished.replace(archive)
        finally:
            if engine.process is not None:
                engine.process.kill()
            unfinished.unlink(missing_ok=True)


def _load_classes(engine: Engine, with_sql: bool) -> None:
    engine.start_jvm()
    context = engine.start_context()
    # A mirror runs an RDD, and a comparison a DataFrame.
    context.parallelize(range(2), 2).mapPartitions(lambda numbers: numbers).collect()
    if with_sql:
        SparkSession(context).range(2).mapInArrow(lambda batches: batches, "id long").toArrow()
    context.stop()


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
    for_mirrors = Path(sys.argv[1]) if len(sys.argv) > 1 else class_archive.path()
    make(for_mirrors, with_sql=False)
    make(class_archive.sql_path(for_mirrors), with_sql=True)
