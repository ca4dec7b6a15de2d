"""The class data archives of Spark for the driver's JVM: where they are, and how the JVM is told to use one."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zlib
from pathlib import Path

import pyspark

from mirrormaker.cache import cache_directory
from mirrormaker.spark import jvm


def path() -> Path:
    """Return the archive's file: one per Spark, Java and installation. The JVM refuses an archive of other jars.

    It is in the virtual environment, so that it is deleted together with that; else in the user's cache.
    """
    name = f"spark-{pyspark.__version__}-java-{_java_version()}"
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix, "share", "mirrormaker", f"{name}.jsa")
    return cache_directory() / f"{name}-{zlib.crc32(jvm.classpath().encode()):08x}.jsa"


def _java_version() -> str:
    """Return Java's version from its release file: asking Java itself would take 0.1 s at every start."""
    found = shutil.which(jvm.java())
    release = Path(found).resolve().parent.parent / "release" if found else None
    match = re.search(r'JAVA_VERSION="([^"]+)"', release.read_text()) if release and release.exists() else None
    return match[1] if match else "unknown"


# At another address than it was written for, the JVM adapts every page of the archive: 110 MB of memory that is shared with nobody.
FIXED_ADDRESS = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")


def sql_path(archive: Path) -> Path:
    """Return the archive's larger sibling for jobs that use Spark's SQL engine: the pages of an archive count as memory."""
    return archive.with_stem(f"{archive.stem}-sql")


def options(*, with_sql: bool = False) -> list[str]:
    """Return the JVM's options to use an archive; none if there is no archive."""
    archive = sql_path(path()) if with_sql else path()
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *FIXED_ADDRESS] if archive.exists() else []
