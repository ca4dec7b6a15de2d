"""The Java that runs the embedded clusters."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator

from mirrormaker.errors import EmbeddedError

OLDEST = 17  # Spark 4, which downloads the jars, and Kafka 4 need it

# With one compiler tier and one collector thread a broker starts a second earlier and uses less CPU, but its
# throughput is lower: these options are not for benchmarks.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@functools.cache
def java() -> str:
    """Return the path of a Java that is new enough: that of JAVA_HOME, else that on the PATH."""
    rejected = []
    for path in _candidates():
        release = _release(path)
        if release >= OLDEST:
            return path
        rejected.append(f"{path} is Java {release}" if release else f"{path} does not run")
    reasons = "; ".join(rejected) or "none is in JAVA_HOME or on the PATH"
    raise EmbeddedError(
        f"Java {OLDEST} or newer is needed ({reasons}): install one, for example the package "
        f"openjdk-{OLDEST}-jre-headless, or set JAVA_HOME"
    )


def _candidates() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield os.path.join(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield on_path


def _release(path: str) -> int:
    """Return the feature release of a java (Java 8 calls itself 1.8), or 0 if it does not run."""
    try:
        output = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    number = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(number[1]) if number else 0
