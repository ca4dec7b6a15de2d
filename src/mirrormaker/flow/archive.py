"""A class data archive of Spark for the driver's JVM: made once per machine, it takes seconds off every start.

python -m mirrormaker.flow.archive      # `make` does it; without it everything works, only later
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from mirrormaker.flow import jvm


def path() -> Path:
    """One per Spark, Java and place of installation: the JVM refuses an archive of other jars."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mirrormaker"
    place = f"{abs(hash_of(jvm.classpath())):08x}"
    return cache / f"spark-{pyspark.__version__}-java-{_java_version()}-{place}.jsa"


def hash_of(text: str) -> int:
    import zlib

    return zlib.crc32(text.encode())


def _java_version() -> str:
    """From the release file beside the binary: asking Java itself would cost a tenth of a second at every start."""
    import shutil

    found = shutil.which(jvm.java())
    release = Path(found).resolve().parent.parent / "release" if found else None
    if release is not None and release.exists():
        match = re.search(r'JAVA_VERSION="([^"]+)"', release.read_text())
        if match:
            return match[1]
    return "unknown"


def options() -> list[str]:
    """What the JVM is told: use the archive if there is one."""
    archive = path()
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive.exists() else []


def make() -> None:
    """Run a small epoch and have the JVM write down which classes it took."""
    from mirrormaker.flow import spark

    archive = path()
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    print("preparing a class data archive for Spark, once (half a minute)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="mirrormaker-") as scratch:
        directory = Path(scratch)
        unfinished = archive.with_suffix(f".{os.getpid()}")
        session, process = spark.start(
            None, [], 2, directory, directory / "log", java_options=[f"-XX:ArchiveClassesAtExit={unfinished}"]
        )
        session.range(2).mapInArrow(lambda batches: batches, "id long").toArrow()
        session.stop()
        assert process is not None and process.stdin is not None
        process.stdin.close()
        try:
            process.wait(180)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if unfinished.exists():
            unfinished.replace(archive)


if __name__ == "__main__":
    make()
