"""Starting Spark: quickly, quietly, and so that a long job stays alive."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

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
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# No data goes through the driver's JVM: a small heap, the quick compiler, and one collector thread are all it needs.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -XX:-UsePerfData"


def start(master: str | None, extra: Iterable[tuple[str, str]], streams: int, directory: Path, log: Path) -> SparkSession:
    """A session whose own noise goes into `log`; `directory` holds what it needs while it runs."""
    conf = SparkConf(loadDefaults=False)
    for key, value in _SETTINGS.items():
        conf.set(key, value)
    conf.setAppName("mirrormaker")
    conf.setMaster(master or f"local[{2 * streams},2147483647]")
    log4j = directory / "log4j2.properties"
    log4j.write_text(_LOG4J.format(log=log))
    conf.set("spark.driver.extraJavaOptions", f"{_JAVA} -Dlog4j2.configurationFile=file:{log4j} -Djava.io.tmpdir={directory}")
    conf.set("spark.driver.memory", "512m")
    conf.set("spark.local.dir", str(directory))
    conf.set("spark.sql.warehouse.dir", str(directory / "warehouse"))
    conf.set("spark.python.unix.domain.socket.dir", str(directory))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master is None or master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        conf.set("spark.driver.host", "127.0.0.1")
        conf.set("spark.driver.bindAddress", "127.0.0.1")
    for key, value in extra:
        conf.set(key, value)
    with log.open("ab") as stderr:
        # A session of its own: a signal to our process group must not end the JVM before the streams have finished.
        gateway = launch_gateway(conf, popen_kwargs={"stderr": stderr, "stdout": stderr, "start_new_session": True})
    return SparkSession(SparkContext(conf=conf, gateway=gateway))
