"""Write records with Kafka's own producer."""

from __future__ import annotations

import subprocess
from pathlib import Path

from mirrormaker.embedded import Cluster
from mirrormaker.embedded.downloads import jars
from mirrormaker.embedded.java_runtime import java


def write_with_java(cluster: Cluster, *topics: tuple[str, str, int, str]) -> None:
    """Write to topics with Kafka's own producer: (topic, codec, records, "plain" or "transactions")."""
    program = Path(__file__).with_name("Writer.java")
    line = [java(), "-cp", f"{jars(cluster.version)}/*", str(program), cluster.bootstrap]
    line += [str(argument) for topic in topics for argument in topic]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
