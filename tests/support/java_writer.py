"""Write records with Kafka's own producer."""

from __future__ import annotations

import subprocess
from pathlib import Path

from mirrormaker.embedded import Cluster
from mirrormaker.embedded.downloads import jars
from mirrormaker.embedded.java_runtime import java


def write_with_java(cluster: Cluster, *topics: tuple[str, str, int, str]) -> None:
    """Write to topics with Kafka's own producer: (topic, codec, records, "plain", "transactions" or "streams")."""
    program = Path(__file__).with_name("Writer.java")
    # The newest client that speaks to brokers before 2.1 is of version 3.
    version = cluster.version if int(cluster.version.split(".")[0]) > 2 else "3.9.2"
    line = [java(), "-cp", f"{jars(version)}/*", str(program), cluster.bootstrap]
    line += [str(argument) for topic in topics for argument in topic]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
