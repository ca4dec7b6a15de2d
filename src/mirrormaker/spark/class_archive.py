"""The class data archive of Spark for the driver's JVM: where it is, and how the JVM is told to use it."""

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

    It is in the virtual environment, so that it is deleted together with that (it has 150 MB); else in the user's
    cache.
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


def options() -> list[str]:
    """Return the JVM's options to use the archive; none if there is no archive."""
    archive = path()
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive.exists() else []
