"""Build the class data archive that makes every start of Spark seconds faster: `python -m mirrormaker.spark.archive_builder`.

`make` runs it once. Without the archive everything works, and starts later.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mirrormaker.spark import class_archive
from mirrormaker.spark.session import Engine

_WRITTEN_WITHIN = 180.0  # seconds; it usually takes half a minute on two cores


def make() -> None:
    """Run small Spark jobs, and have the JVM archive the classes that they have loaded."""
    archive = class_archive.path()
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    print("preparing a class data archive for Spark; this takes half a minute, once", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="mirrormaker-") as scratch:
        directory = Path(scratch)
        unfinished = archive.with_suffix(f".{os.getpid()}")
        flag = f"-XX:ArchiveClassesAtExit={unfinished}"
        engine = Engine(None, [], 2, directory, directory / "log", [flag])
        engine.start_jvm()
        session = engine.start_session()
        # A mirror runs an RDD, and a comparison a DataFrame.
        session.sparkContext.parallelize(range(2), 2).mapPartitions(lambda numbers: numbers).collect()
        session.range(2).mapInArrow(lambda batches: batches, "id long").toArrow()
        session.stop()
        assert engine.process is not None and engine.process.stdin is not None
        engine.process.stdin.close()
        try:
            engine.process.wait(_WRITTEN_WITHIN)
        except subprocess.TimeoutExpired:
            engine.end()
        if unfinished.exists():
            unfinished.replace(archive)


if __name__ == "__main__":
    make()
