"""Starting Spark: quickly, quietly, and so that a long job stays alive."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from mirrormaker.flow import archive, jvm

_LOG4J = """
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""

# Streams run for days, die and come back; nothing here may end a task because it is long, or a job because one task failed.
_SETTINGS = {
    "spark.task.maxFailures": "2147483647",
    "spark.speculation": "false",
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "0",
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "8s",
    "spark.network.timeoutInterval": "1s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "8s",
    "spark.locality.wait": "0",
    # One Arrow batch, one task, no shuffle: see facts on Spark in docs/design.md.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2147483647",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "mirrormaker.stream.daemon",
    # One tiny plan, run once: compiling it would take longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def start(
    master: str | None,
    extra: Iterable[tuple[str, str]],
    streams: int,
    directory: Path,
    log: Path,
    java_options: Sequence[str] | None = None,
) -> tuple[SparkSession, subprocess.Popen[bytes] | None]:
    """A session whose own noise goes into `log`, and its JVM; `directory` holds what both need while they run."""
    log4j = directory / "log4j2.properties"
    log4j.write_text(_LOG4J.format(log=log))
    options = [f"-Dlog4j2.configurationFile=file:{log4j}", f"-Djava.io.tmpdir={directory}"]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = dict(_SETTINGS)
    settings["spark.local.dir"] = settings["spark.python.unix.domain.socket.dir"] = str(directory)
    settings["spark.sql.warehouse.dir"] = str(directory / "warehouse")
    settings["spark.driver.memory"] = "512m"
    is_local = master is None or master.startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= dict(extra)
    with log.open("ab") as noise:
        if is_local:
            options += archive.options() if java_options is None else java_options
            gateway, process = jvm.start(options, directory, noise)
        else:
            settings["spark.driver.extraJavaOptions"] = " ".join((*jvm.FLAGS[1:], *options))
            conf = _conf(settings, master, streams, None)
            gateway = launch_gateway(conf, popen_kwargs={"stderr": noise, "stdout": noise, "start_new_session": True})
            process = gateway.proc
    conf = _conf(settings, master, streams, gateway.jvm)
    return SparkSession(SparkContext(conf=conf, gateway=gateway)), process


def _conf(settings: dict[str, str], master: str | None, streams: int, java: Any) -> SparkConf:
    conf = SparkConf(loadDefaults=False, _jvm=java)
    # Twice as many slots as streams: a successor starts at once, beside what it replaces.
    conf.setAppName("mirrormaker").setMaster(master or f"local[{2 * streams},2147483647]")
    return conf.setAll(list(settings.items()))
