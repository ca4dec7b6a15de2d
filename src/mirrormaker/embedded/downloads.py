"""The jars of Kafka's versions and of Hadoop, downloaded once per user."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mirrormaker.cache import cache_directory
from mirrormaker.embedded import child_processes
from mirrormaker.embedded.java_runtime import java
from mirrormaker.embedded.releases import HADOOP, HADOOP_VERSION, Artifact, artifacts
from mirrormaker.errors import EmbeddedError

_MARKER = "complete"

LOG4J = "log4j.properties"
# Servers and tools before Kafka 4 need a file for log4j. They log to stderr, which a cluster redirects to files.
_LOG4J_TEXT = """\
log4j.rootLogger=${mirrormaker.log}, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def jars(version: str) -> Path:
    """Return the directory with the jars of a Kafka version; download them if this user does not have them yet."""
    return _fetch("Kafka", version, artifacts(version))


def hadoop_jars() -> Path:
    """Return the directory with Hadoop's jars; download them if this user does not have them yet."""
    return _fetch("Hadoop", HADOOP_VERSION, HADOOP)


def _fetch(product: str, version: str, wanted: tuple[Artifact, ...]) -> Path:
    recipe = "\n".join(map(str, wanted))
    directory = cache_directory() / f"{product.lower()}-{version}"
    if _is_complete(directory, recipe):
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(directory.with_name(f"{directory.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_complete(directory, recipe):
            _download(f"{product} {version}", recipe, directory)
    return directory


def _is_complete(directory: Path, recipe: str) -> bool:
    """Return True if the download was completed, and with the artifacts that `recipe` lists."""
    try:
        return (directory / _MARKER).read_text() == recipe
    except FileNotFoundError:
        return False


def _download(title: str, recipe: str, directory: Path) -> None:
    part = directory.with_name(f"{directory.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    began = time.monotonic()
    console = Console(stderr=True)
    if not console.is_terminal:  # the live line below is not shown there
        console.print(f"Downloading {title}, once per user; this takes about a minute")

    def progress() -> Text:
        count = sum(1 for _ in part.rglob("*.jar"))
        return Text(f"Downloading {title}: {count} jars, {time.monotonic() - began:.0f} s")

    with Live(get_renderable=progress, console=console, refresh_per_second=4, transient=True):
        problems = _resolve(recipe.split("\n"), part)
    if problems is not None:
        shutil.rmtree(part, ignore_errors=True)
        raise EmbeddedError(
            f"{title} could not be downloaded ({problems}): check that this version exists and that Java "
            "can reach the public Maven repository (behind a proxy: JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=... "
            f"-Dhttps.proxyPort=...'), or copy {directory} from a machine that has it"
        )
    (part / "jars" / LOG4J).write_text(_LOG4J_TEXT)
    (part / "jars" / _MARKER).write_text(recipe)
    shutil.rmtree(directory, ignore_errors=True)
    (part / "jars").rename(directory)
    shutil.rmtree(part, ignore_errors=True)
    count = sum(1 for _ in directory.glob("*.jar"))
    console.print(f"Downloaded {title}: {count} jars in {time.monotonic() - began:.0f} s", highlight=False)


def _resolve(recipe: list[str], part: Path) -> str | None:
    """Run Ivy in a process of its own. Return the problems it had, or None if it had none."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    env["JAVA_HOME"] = str(Path(java()).resolve().parent.parent)
    command = [sys.executable, "-m", "mirrormaker.embedded.ivy", str(part), *recipe]
    process = child_processes.spawn(command, stdout=subprocess.PIPE, env=env)
    try:
        output = process.communicate()[0].decode(errors="replace").strip()
    finally:
        child_processes.end(process, signal.SIGKILL)
    if process.returncode == 0:
        return None
    return "; ".join(output.splitlines()[:3]) or f"Ivy ended with exit code {process.returncode}"
