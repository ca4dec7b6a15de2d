"""The Java that runs the embedded Kafka."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator

from mirrormaker.errors import EmbeddedError

OLDEST = 17
"""What Spark 4 (which fetches the jars) and Kafka 4 servers ask for."""

# One compiler tier and one collector thread: a broker is up a second earlier and leaves the cores to the others,
# at the price of throughput. Not for measurements.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@functools.cache
def java() -> str:
    """The path of a Java that is new enough: the one of JAVA_HOME, else the one on the PATH."""
    seen = []
    for path in _candidates():
        release = _release(path)
        if release >= OLDEST:
            return path
        seen.append(f"{path} is Java {release}" if release else f"{path} does not run")
    found = "; ".join(seen) or "none is in JAVA_HOME or on the PATH"
    raise EmbeddedError(
        f"Java {OLDEST} or newer is needed ({found}): install one, for example the package "
        f"openjdk-{OLDEST}-jre-headless, or point JAVA_HOME at it"
    )


def _candidates() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield os.path.join(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield on_path


def _release(path: str) -> int:
    """The feature release a java names itself (8 calls itself 1.8), 0 if it does not run."""
    try:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    number = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(number[1]) if number else 0
