"""The end of a Spark session in the process of the tests."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession


def end_session(session: SparkSession) -> None:
    """Stop a session and its JVM, which PySpark keeps for the next session of the process."""
    session.stop()
    context: Any = SparkContext
    gateway = context._gateway
    context._gateway = context._jvm = None
    if gateway is not None and gateway.proc is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
