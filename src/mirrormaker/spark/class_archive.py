"""A class data archive of Spark for the driver's JVM: made once per machine, it makes every start seconds faster.

python -m mirrormaker.spark.class_archive      # `make` runs this; without the archive everything works, but starts
later
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

from mirrormaker.spark import jvm

_WRITTEN_WITHIN = 180.0  # seconds; it usually takes half a minute on two cores


def path() -> Path:
    """Return the archive's file: one per Spark, Java and installation. The JVM refuses an archive of other jars.

    It is in the virtual environment, so that it is deleted together with that (it has 150 MB); else in the user's
    cache.
    """
    name = f"spark-{pyspark.__version__}-java-{_java_version()}"
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix, "share", "mirrormaker", f"{name}.jsa")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mirrormaker"
    return cache / f"{name}-{zlib.crc32(jvm.classpath().encode()):08x}.jsa"


def _java_version() -> str:
    """Return Java's version from its release file: asking Java itself would take 0.1 s at every start."""
    found = shutil.which(jvm.java())
    release = Path(found).resolve().parent.parent / "release" if found else None
    match = re.search(r'JAVA_VERSION="([^"]+)"', release.read_text()) if release and release.exists() else None
    return match[1] if match else "unknown"


def options() -> list[str]:
    """Return the JVM's options to use the archive; none if there is no archive."""
    archive = path()
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive.exists() else []


def make() -> None:
    """Run a small Spark job, and have the JVM archive the classes that it has loaded."""
    from mirrormaker.spark.session import Engine  # which imports this module

    archive = path()
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
