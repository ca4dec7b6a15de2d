"""Starting the driver's JVM directly, not through `spark-submit`, which starts a second JVM to build a command line.

Measured on 2 cores: the first record arrives 1.3 s earlier. With a class data archive (`class_archive`) it arrives
another 3 s earlier, for half the CPU: most of Spark's start is loading and verifying ten thousand classes.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import pyspark
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.java_gateway import java_import
from pyspark.serializers import UTF8Deserializer, read_int

from mirrormaker.errors import SparkError

_INFO = "gateway"  # the file into which the JVM writes its port
_STARTS_WITHIN = 60.0  # seconds; it usually takes two or three
# The options that spark-submit passes to Java 17 and newer.
_OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
MODULES = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "--add-modules=jdk.incubator.vector",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
)
# No data goes through the driver's JVM, so it needs only a small heap, the quick compiler and one collector thread.
FLAGS = ("-Xmx512m", "-Xms48m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
# The names that PySpark's own `launch_gateway` imports.
_IMPORTS = (
    "org.apache.spark.SparkConf", "org.apache.spark.api.java.*", "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*", "org.apache.spark.mllib.api.python.*", "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders", "org.apache.spark.sql.OnSuccessCall", "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*", "org.apache.spark.sql.api.python.*", "org.apache.spark.sql.hive.*", "scala.Tuple2",
)  # fmt: skip


def java() -> str:
    """Return the Java command: the one in JAVA_HOME, or the first in PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def classpath() -> str:
    """Return all of Spark's jars; a class data archive is valid only for the very list that it was made with."""
    return os.pathsep.join(sorted(map(str, Path(pyspark.__file__).parent.joinpath("jars").glob("*.jar"))))


def launch(options: Sequence[str], directory: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a JVM; it ends when its standard input is closed, so also when this process is killed."""
    environment = {**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(directory / _INFO)}
    environment |= {"SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_PIN_THREAD": "true"}
    command = [
        java(),
        *MODULES,
        *FLAGS,
        *options,
        "-cp",
        classpath(),
        "org.apache.spark.api.python.PythonGatewayServer",
    ]
    # A session of its own: a signal to our process group must not end the JVM before the streams have finished.
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    except OSError as error:
        raise SparkError(
            f"Java was not found ({java()}); Spark needs Java 17 or newer: install it or set JAVA_HOME"
        ) from error


def connect(process: subprocess.Popen[bytes], directory: Path) -> Any:
    """Return the gateway into a JVM, as soon as the JVM answers."""
    info = directory / _INFO
    deadline = time.monotonic() + _STARTS_WITHIN
    while not info.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise SparkError(f"Java did not start ({java()}, exit code {process.wait()}); Spark needs Java 17 or newer")
        time.sleep(0.02)
    with info.open("rb") as stream:
        port, secret = read_int(stream), UTF8Deserializer().loads(stream)
    info.unlink()
    # PySpark's `launch_gateway` takes both from the environment, and a thread must not add anything to that
    # (`session.Engine`).
    gateway = ClientServer(
        java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    for name in _IMPORTS:
        java_import(gateway.jvm, name)
    return gateway


def answers(gateway: Any) -> bool:
    """Return True if the JVM behind a gateway listens; it is on this machine, so that is known at once."""
    place = gateway.gateway_parameters
    try:
        with socket.create_connection((place.address, place.port), timeout=1):
            return True
    except OSError:
        return False


def end(process: subprocess.Popen[bytes], within: float) -> None:
    """Ask a JVM to end, and kill it if it has not ended after so many seconds."""
    if process.stdin is not None:
        process.stdin.close()
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def first_line(error: BaseException) -> str:
    """Return the first line of an exception: Spark's have whole stack traces in their text."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


def last_complaint(log: Path) -> str:
    """Return the last line of a log that names an error, without the stack trace below it; else its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    complaints = [line for line in lines if re.search(r"(Exception|Error)\b", line) and not line.startswith("at ")]
    return (complaints or lines or ["its log is empty"])[-1][:300]
