"""Starting Spark: quickly, quietly, and so that a long job stays alive."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from mirrormaker.spark import class_archive, jvm, shipping

_LOG4J = """
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""

_ENDS_WITHIN = 3.0  # seconds for Spark to end by itself

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
    # What is larger would go to executors as a file, and the clusters' secrets are in it.
    "spark.broadcast.UDFCompressionThreshold": "1g",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "mirrormaker.worker.daemon",
    # One tiny plan, run once: compiling it would take longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


# Of a cluster only what the streams need, unless the user says otherwise; all of it before the first stream, so that they spread.
_CLUSTER = {
    "spark.executor.memory": "512m",
    "spark.executor.heartbeat.maxFailures": "5",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "10s",
}


class Engine:
    """The driver's JVM and the Spark session in it, from a first sign of life to a certain end."""

    def __init__(
        self,
        master: str | None,
        extra: Iterable[tuple[str, str]],
        streams: int,
        directory: Path,
        log: Path,
        java_options: Sequence[str] | None = None,
    ) -> None:
        """Spark's own noise goes into `log`; `directory` holds what it needs while it runs."""
        self.is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # by spark-submit: the JVM is there already
        self._gateway: Any = launch_gateway() if self.is_submitted else None
        submitted = dict(SparkConf(_jvm=self._gateway.jvm).getAll()) if self._gateway else {}
        self.given = {**submitted, **dict(extra)}
        # Twice as many slots as streams: a successor starts at once, beside what it replaces.
        slots = 2 * streams
        self.master = master or submitted.get("spark.master") or f"local[{slots},2147483647]"
        self.is_local = self.master.startswith("local")
        self.process: subprocess.Popen[bytes] | None = None
        self.session: SparkSession | None = None
        self.log = log
        self._directory = directory
        log4j = directory / "log4j2.properties"
        log4j.write_text(_LOG4J.format(log=log))
        self._java = [f"-Dlog4j2.configurationFile=file:{log4j}", f"-Djava.io.tmpdir={directory}"]
        self._settings = {**_SETTINGS, "spark.sql.warehouse.dir": str(directory / "warehouse")}
        if self.is_local:
            self._java += class_archive.options() if java_options is None else java_options
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            self._settings |= {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.memory": "512m",
                "spark.local.dir": str(directory),
                "spark.python.unix.domain.socket.dir": str(directory),
            }
        else:
            self._settings |= {**_CLUSTER, "spark.cores.max": str(slots)}
        # Whoever names a Python has prepared it; otherwise it is any of our version, and the rest is sent there.
        self._ships = not self.is_local and not {"PYSPARK_PYTHON", "spark.pyspark.python"} & {*os.environ, *self.given}
        if self._ships:
            os.environ["PYSPARK_PYTHON"] = shipping.PYTHON

    @property
    def is_alive(self) -> bool:
        return self.is_submitted or (self.process is not None and self.process.poll() is None)

    @property
    def packs(self) -> bool:
        """Will starting a session take longer than usual?"""
        return self._ships and not shipping.libraries_path().exists()

    def start_jvm(self) -> Any:
        """A JVM that answers: enough to ask it about regular expressions."""
        if self.is_submitted:
            return self._gateway.jvm
        self._forget()
        with self.log.open("ab") as noise:
            if self.is_local:
                self.process = jvm.launch(self._java, self._directory, noise)
                self._gateway = jvm.connect(self.process, self._directory)
            else:  # a cluster's settings and classes are spark-submit's business
                options = " ".join((*jvm.FLAGS[1:], *self._java))
                conf = self._conf(None).set("spark.driver.extraJavaOptions", options)
                kwargs = {"stderr": noise, "stdout": noise, "start_new_session": True}
                os.environ.setdefault("SPARK_LOCAL_DIRS", str(self._directory))  # the driver's alone
                self._gateway = launch_gateway(conf, popen_kwargs=kwargs)
                self.process = self._gateway.proc
        return self._gateway.jvm

    def start_session(self) -> SparkSession:
        conf = self._conf(self._gateway.jvm)
        if self._ships:
            own = self.given.get("spark.archives", "")
            conf.setAll(list(shipping.settings(self._directory, own).items()))
        self.session = SparkSession(SparkContext(conf=conf, gateway=self._gateway))
        return self.session

    def _forget(self) -> None:
        """PySpark remembers one JVM per process; after its death that memory must go, or no other can be started."""
        self.session = None
        context: Any = SparkContext
        context._active_spark_context = context._gateway = context._jvm = None
        sessions: Any = SparkSession
        sessions._instantiatedSession = sessions._activeSession = None

    def end(self) -> None:
        """Nothing of ours is in it any more: a cluster is told, the JVM is ended."""
        if self.session is not None:
            context: Any = self.session.sparkContext
            context._accumulatorServer.shutdown()  # it would print a stack trace when the JVM hangs up
            if not self.is_local:
                stopper = threading.Thread(target=self.session.stop, daemon=True)
                stopper.start()
                stopper.join(_ENDS_WITHIN)
        if self.process is not None:
            jvm.end(self.process, _ENDS_WITHIN)
            self._forget()

    def _conf(self, java: Any) -> SparkConf:
        """Ours, under what spark-submit was given, under what the mirror was given."""
        conf = SparkConf(loadDefaults=False, _jvm=java).setAppName("mirrormaker")
        return conf.setAll(list({**self._settings, **self.given}.items())).setMaster(self.master)
