"""A Spark cluster on this machine: a standalone master and workers, run from the jars of PySpark."""

from __future__ import annotations

import atexit
import os
from pathlib import Path

import pyspark

from mirrormaker.embedded import child_processes
from mirrormaker.embedded.java_runtime import QUICK, java
from mirrormaker.embedded.ports import free_port
from mirrormaker.embedded.process_tree import command, parents
from mirrormaker.embedded.server_process import Server
from mirrormaker.errors import EmbeddedError

_START = 60.0  # seconds for the workers to register with the master; a few are usual

# Without the first option the master accepts programs to run on port 6066, without a password.
_MASTER = ("-Dspark.master.rest.enabled=false", "-Dspark.worker.timeout=10", "-Dspark.deploy.maxExecutorRetries=-1")
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_REGISTERED = "Registering worker "


class SparkCluster:
    """A Spark master and its workers. They run from `start` to `stop`, or inside `with`.

    The driver chooses the Python of the executors (`PYSPARK_PYTHON`); here it is at the same path for both.
    """

    def __init__(self, workers: int = 2, cores: int = 3, memory: str = "1g") -> None:
        """Describe a cluster. Nothing runs before `start`. `cores` are task slots, not the machine's cores."""
        self.workers: list[Server] = []
        self._count, self._cores, self._memory = workers, cores, memory
        self._port = 0
        self.page = 0  # the port of the master's web page
        self._server: Server | None = None
        self._directory: Path | None = None
        self._owner = os.getpid()

    @property
    def master(self) -> str:
        """The master's address, as the value of spark.master."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which Spark's driver stays on loopback."""
        return {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}

    @property
    def options(self) -> list[str]:
        """The options of `mirrormaker run` for this cluster."""
        return ["--spark.master", self.master]

    @property
    def directory(self) -> Path:
        """The directory with the servers' logs and the executors' output."""
        if self._directory is None:
            raise EmbeddedError("the Spark cluster does not run")
        return self._directory

    def executors(self) -> list[int]:
        """Return the process ids of all executors."""
        workers = {worker.pid for worker in self.workers}
        return [pid for pid, parent in parents().items() if parent in workers and _EXECUTOR in command(pid)]

    def start(self) -> SparkCluster:
        """Start the master and the workers, and wait until every worker has registered."""
        if self._directory is not None:
            return self
        self._directory = child_processes.new_directory("spark")
        atexit.register(self._stop_at_exit)
        self._port, self.page = free_port(), free_port()
        address = ("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self.page))
        master = self._server = self._prepare("master", "master.Master", *address)
        self.workers = [self._worker(number) for number in range(1, self._count + 1)]
        try:
            for server in (master, *self.workers):
                server.launch()
            master.wait_until(lambda: master.logged().count(_REGISTERED) >= self._count, _START)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all servers with their executors, and remove their directory."""
        servers = [*self.workers, *([self._server] if self._server is not None else [])]
        for server in servers:
            server.ask_to_stop()
        for server in servers:
            server.stop()
        self.workers, self._server = [], None
        if self._directory is not None:
            child_processes.remove_directory(self._directory)
        self._directory = None
        atexit.unregister(self._stop_at_exit)

    def __enter__(self) -> SparkCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _worker(self, number: int) -> Server:
        work = self.directory / f"worker-{number}"
        address = ("--host", "127.0.0.1", "--port", str(free_port()), "--webui-port", str(free_port()))
        size = ("--cores", str(self._cores), "--memory", self._memory, "--work-dir", str(work))
        return self._prepare(f"worker {number}", "worker.Worker", *address, *size, self.master)

    def _prepare(self, name: str, main_class: str, *args: str) -> Server:
        home = Path(pyspark.__file__).parent
        temporary = f"-Djava.io.tmpdir={self.directory}"  # the executors' scratch space is there too
        flags = ("-Xmx256m", *QUICK, "-XX:-UsePerfData", temporary, *_MASTER)
        line = [java(), *flags, "-cp", f"{home}/jars/*", f"org.apache.spark.deploy.{main_class}", *args]
        # Without these the servers and their web pages listen on every network interface of the machine.
        (core,) = home.glob("jars/spark-core_*.jar")
        # Spark's start scripts set this too: without it a worker looks for a source tree and starts no executor.
        scala = core.name.removeprefix("spark-core_").partition("-")[0]
        spark = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala}
        return Server(name, line, self.directory, {**os.environ, **self.environment, **spark})

    def _stop_at_exit(self) -> None:
        if os.getpid() == self._owner:  # a fork inherits the exit handler, but must not stop the cluster
            self.stop()
