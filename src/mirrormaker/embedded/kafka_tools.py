"""Kafka's own Java tools."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from mirrormaker.embedded import child_processes
from mirrormaker.embedded.downloads import LOG4J, jars
from mirrormaker.embedded.java_runtime import java
from mirrormaker.embedded.releases import parse
from mirrormaker.errors import EmbeddedError


def command(version: str, main_class: str, *args: str, jvm: Sequence[str] = (), log_level: str = "INFO") -> list[str]:
    """Return the command line of a Java program of a Kafka version. The program logs to stderr."""
    directory = jars(version)
    if parse(version) >= (4,):
        log = [
            f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level.lower()}",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
        ]
    else:
        log = [f"-Dlog4j.configuration={(directory / LOG4J).as_uri()}", f"-Dmirrormaker.log={log_level}"]
    return [java(), *log, *jvm, "-cp", f"{directory}/*", main_class, *args]


@dataclass(frozen=True)
class KafkaTools:
    """All tools of one Kafka version, among them the Java MirrorMaker (up to 3.9.2) and MirrorMaker 2."""

    version: str

    def start(
        self,
        main_class: str,
        *args: str,
        stdin: child_processes.Stream = subprocess.DEVNULL,
        stdout: child_processes.Stream = subprocess.DEVNULL,
        stderr: child_processes.Stream = subprocess.DEVNULL,
        jvm: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a tool. It is killed when this process ends. It logs to stderr, from WARN on."""
        line = command(self.version, main_class, *args, jvm=jvm, log_level="WARN")
        return child_processes.spawn(line, stdin=stdin, stdout=stdout, stderr=stderr)

    def run(
        self, main_class: str, *args: str, stdin: bytes = b"", timeout: float = 60, jvm: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool and wait for its end; stop it with an error after `timeout` seconds."""
        pipe = subprocess.PIPE
        process = self.start(main_class, *args, stdin=pipe, stdout=pipe, stderr=pipe, jvm=jvm)
        try:
            output, errors = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            raise EmbeddedError(f"{main_class} did not end within {timeout:g} s and was stopped") from None
        finally:
            child_processes.end(process, signal.SIGKILL)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        text = (output.decode(errors="replace"), errors.decode(errors="replace"))
        return subprocess.CompletedProcess([main_class, *args], process.returncode, *text)
