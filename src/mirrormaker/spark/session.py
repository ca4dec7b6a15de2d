"""A Spark session of our own, for jobs that last for days and start quickly."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from mirrormaker.errors import SparkError, SparkGone
from mirrormaker.spark import class_archive, jvm, masters, shipping

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
_STOPS_WITHIN = 30.0  # seconds for a SparkContext whose application was ended; a cluster manager may be slow to answer

# Streams run for days, die and come back, so nothing may end a task because it lasts long, or a job because a task failed.
_SETTINGS = {
    "spark.task.maxFailures": "2147483647",
    "spark.speculation": "false",
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "8s",
    "spark.network.timeoutInterval": "1s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "8s",
    "spark.locality.wait": "0",
    "spark.python.worker.idleTimeoutSeconds": "0",
    # A larger function would be sent to executors as a file, and the clusters' secrets are in it.
    "spark.broadcast.UDFCompressionThreshold": "1g",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "mirrormaker.worker.daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# SparkContext sets these. Their values until then are PySpark's own defaults.
_SET_BY_SPARK = {"SPARK_AUTH_SOCKET_TIMEOUT": "15", "SPARK_BUFFER_SIZE": "65536"}


class Engine:
    """A SparkContext of our own and its JVM, from their start to their end; a session on top of it for those who need SQL."""

    def __init__(
        self,
        master: str | None,
        extra: Iterable[tuple[str, str]],
        streams: int,
        directory: Path,
        log: Path,
        java_options: Sequence[str] | None = None,
    ) -> None:
        """Prepare a session for so many streams; nothing starts yet, except under spark-submit.

        `extra` are the user's settings, which override ours. Spark's own log goes into the file `log`; `directory`
        holds the files that Spark needs while it runs.
        """
        # Spark starts in a thread. A thread that adds a variable to the environment may move all of them, while another
        # one, in C and without Python's lock, reads them: before glibc 2.41 the process dies of that. So they exist now.
        for name, value in _SET_BY_SPARK.items():
            os.environ.setdefault(name, value)
        self.is_submitted = masters.is_submitted()
        self._gateway: Any = launch_gateway() if self.is_submitted else None
        submitted = dict(SparkConf(_jvm=self._gateway.jvm).getAll()) if self._gateway else {}
        self.given = {**submitted, **dict(extra)}
        self._master = masters.master_for(master or submitted.get("spark.master"), streams)
        self.master, self.is_local = self._master.url, self._master.is_local
        self.process: subprocess.Popen[bytes] | None = None
        self.context: SparkContext | None = None
        self.tag = "mirrormaker"
        self._has_started = False  # a SparkContext, at least once
        # A JVM starts in another thread than the one that ends it: none must start after the end.
        self._has_ended = False
        self._launching = threading.Lock()
        self.log = log
        self.directory = directory
        log4j = directory / "log4j2.properties"
        log4j.write_text(_LOG4J.format(log=log))
        self._java = [f"-Dlog4j2.configurationFile=file:{log4j}", f"-Djava.io.tmpdir={directory}"]
        self._settings = {**_SETTINGS, "spark.sql.warehouse.dir": str(directory / "warehouse")}
        self._settings |= self._master.settings
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
        elif not self.is_submitted:
            os.environ.setdefault("SPARK_LOCAL_DIRS", str(directory))  # of the driver, not of executors
        # A user who names a Python has prepared it. Otherwise any Python of our version will do: the rest is shipped.
        self._ships = not self.is_local and not {"PYSPARK_PYTHON", "spark.pyspark.python"} & {*os.environ, *self.given}
        if self._ships:
            os.environ["PYSPARK_PYTHON"] = shipping.PYTHON

    @property
    def is_alive(self) -> bool:
        """Return True while the JVM runs."""
        if self.is_submitted:
            return jvm.answers(self._gateway)
        return self.process is not None and self.process.poll() is None

    @property
    def restarts(self) -> bool:
        """Return True if another JVM can replace one that has died; spark-submit's is its own, and we are its child."""
        return not self.is_submitted

    @property
    def packs_libraries(self) -> bool:
        """Return True if starting takes longer than usual, because it packs the executors' libraries."""
        return self._ships and not shipping.libraries_path().exists()

    def is_stopped(self) -> bool:
        """Return True if the SparkContext has ended although the JVM runs; forget it then, so that another one can start."""
        context: Any = self.context
        if context is None:
            return True
        try:
            if context._jsc is not None and not context._jsc.sc().isStopped():
                return False
            context.stop()
        except (Py4JError, OSError):
            pass
        self._forget_context()
        return True

    def launch_jvm(self) -> None:
        """Start the process of a JVM on this machine, which `start_jvm` then waits for; nothing elsewhere."""
        with self._launching:
            if self._has_ended:
                raise SparkGone("the mirror ends before Spark has started")
            if self.is_local and not self.is_alive:
                self._forget_jvm()
                with self.log.open("ab") as log:
                    self.process = jvm.launch(self._java, self.directory, log)

    def start_jvm(self) -> Any:
        """Start the JVM and return it; it can match regular expressions before there is a SparkContext."""
        if self.is_submitted:
            if not self.is_alive:
                raise SparkGone("the JVM that spark-submit has started has ended, and the mirror ends with it")
            return self._gateway.jvm
        self.launch_jvm()
        if self.is_local:
            assert self.process is not None
            self._gateway = jvm.connect(self.process, self.directory)
        else:
            self._forget_jvm()
            self._submit()
        return self._gateway.jvm

    def _submit(self) -> None:
        """Start the JVM through spark-submit: only that knows how to find a cluster's settings and classes."""
        options = " ".join((*jvm.FLAGS[1:], *self._java))
        conf = self._conf(None).set("spark.driver.extraJavaOptions", options)
        with self.log.open("ab") as log:
            try:
                kwargs = {"stderr": log, "stdout": log, "start_new_session": True}
                self._gateway = launch_gateway(conf, popen_kwargs=kwargs)
            except PySparkRuntimeError as error:
                reason = jvm.last_complaint(self.log)
                raise SparkError(f"spark-submit ended before Spark had started: {reason}") from error
        self.process = self._gateway.proc
        if self._has_ended:
            self.end()

    def start_session(self) -> SparkSession:
        """Start a SparkContext, and a session with its SQL engine."""
        return SparkSession(self.start_context())

    def start_context(self) -> SparkContext:
        """Start the SparkContext in the JVM."""
        if self._has_started and self.given.get("spark.submit.deployMode") == "cluster":
            raise SparkGone("the SparkContext has ended, and a driver in a cluster has only one; the mirror ends")
        self._has_started = True
        conf = self._conf(self._gateway.jvm)
        if self._ships:
            conf.setAll(list(shipping.settings(self.directory, self._master.archives, self.given).items()))
        self._await_end_of_last()
        self.context = SparkContext(conf=conf, gateway=self._gateway)
        if not self.is_local:
            masters.await_slots(self.context)
        return self.context

    def _await_end_of_last(self) -> None:
        """Wait until a SparkContext that is being stopped has gone: a JVM has one at a time."""
        contexts = getattr(getattr(self._gateway.jvm.org.apache.spark, "SparkContext$"), "MODULE$")
        deadline = time.monotonic() + _STOPS_WITHIN
        while contexts.getActive().isDefined() and time.monotonic() < deadline:
            time.sleep(0.1)

    def _forget_jvm(self) -> None:
        """Clear PySpark's memory of a dead JVM; otherwise it would not start another one in this process."""
        self._forget_context()
        context: Any = SparkContext
        context._gateway = context._jvm = None

    def _forget_context(self) -> None:
        self.context = None
        context: Any = SparkContext
        context._active_spark_context = None
        sessions: Any = SparkSession
        sessions._instantiatedSession = sessions._activeSession = None

    def end(self) -> None:
        """Tell a cluster that the application ends, and end the JVM."""
        with self._launching:
            self._has_ended = True
        if self.context is not None:
            context: Any = self.context
            # It would print a stack trace when the JVM closes the connection.
            context._accumulatorServer.shutdown()
            if not self.is_local:
                stopper = threading.Thread(target=context.stop, daemon=True)
                stopper.start()
                stopper.join(_ENDS_WITHIN)
        if self.process is not None:
            jvm.end(self.process, _ENDS_WITHIN)
            self._forget_jvm()

    def _conf(self, java: Any) -> SparkConf:
        """Return our settings, overridden by those of spark-submit, overridden by those of our own command line."""
        conf = SparkConf(loadDefaults=False, _jvm=java).setAppName("mirrormaker")
        return conf.setAll(list({**self._settings, **self.given}.items())).setMaster(self.master)


def new_engine(master: str | None, extra: Iterable[tuple[str, str]], streams: int, log_file: str | None) -> Engine:
    """Return an engine with a new directory, which its owner removes. Raise SettingError if there is no such master."""
    masters.check(master)
    return Engine(master, extra, streams, *new_directory(log_file))


def new_directory(log_file: str | None) -> tuple[Path, Path]:
    """Return a new directory for Spark's files, and the file for its log: the given one, or else one in the directory."""
    directory = Path(tempfile.mkdtemp(prefix="mirrormaker-"))
    return directory, Path(log_file).absolute() if log_file else directory / "spark.log"
