"""A class data archive of Spark for the driver's JVM: made once per machine, it takes seconds off every start.

python -m mirrormaker.spark.class_archive      # `make` does it; without it everything works, only later
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import pyspark

from mirrormaker.cache import cache_directory
from mirrormaker.spark import jvm

_WRITTEN_WITHIN = 180.0  # seconds; half a minute is usual on two cores


def path() -> Path:
    """One per Spark, Java and place of installation: the JVM refuses an archive of other jars.

    In the virtual environment, so that it goes when that goes (it has 150 MB); else in the user's cache.
    """
    name = f"spark-{pyspark.__version__}-java-{_java_version()}"
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix, "share", "mirrormaker", f"{name}.jsa")
    return cache_directory() / f"{name}-{zlib.crc32(jvm.classpath().encode()):08x}.jsa"


def _java_version() -> str:
    """From the release file beside the binary: asking Java itself would cost a tenth of a second at every start."""
    found = shutil.which(jvm.java())
    release = Path(found).resolve().parent.parent / "release" if found else None
    match = re.search(r'JAVA_VERSION="([^"]+)"', release.read_text()) if release and release.exists() else None
    return match[1] if match else "unknown"


def options() -> list[str]:
    """What the JVM is told: use the archive if there is one."""
    archive = path()
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive.exists() else []


def make() -> None:
    """Run a small epoch and have the JVM write down which classes it took."""
    from mirrormaker.spark.session import Engine  # which imports us

    archive = path()
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    print("preparing a class data archive for Spark, once (half a minute)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="mirrormaker-") as scratch:
        directory = Path(scratch)
        unfinished = archive.with_suffix(f".{os.getpid()}")
        flag = f"-XX:ArchiveClassesAtExit={unfinished}"
        engine = Engine(None, [], 2, directory, directory / "log", [flag])
        engine.start_jvm()
        session = engine.start_session()
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
