"""Hadoop's YARN on this machine: a ResourceManager and a NodeManager, run from Hadoop's published jars."""

from __future__ import annotations

import atexit
import contextlib
import getpass
import json
import os
import signal
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from mirrormaker.embedded import child_processes
from mirrormaker.embedded.downloads import LOG4J, hadoop_jars
from mirrormaker.embedded.java_runtime import QUICK, java
from mirrormaker.embedded.ports import free_port
from mirrormaker.embedded.process_tree import command, parents
from mirrormaker.embedded.server_process import Server
from mirrormaker.errors import EmbeddedError

_START = 90.0  # seconds for both servers; ten are usual
_SERVER = "org.apache.hadoop.yarn.server"
_EXECUTOR = "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend"
# The ApplicationMaster of client mode, and that of cluster mode, in which the driver runs.
_MASTERS = ("org.apache.spark.deploy.yarn.ExecutorLauncher", "org.apache.spark.deploy.yarn.ApplicationMaster")
_LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}


@dataclass(frozen=True)
class Application:
    """An application as the ResourceManager shows it."""

    id: str
    name: str
    state: str  # ACCEPTED, RUNNING, FINISHED, FAILED, KILLED ...
    final_status: str  # UNDEFINED until it has ended
    attempt: int  # the number of the ApplicationMaster, from 1 on


class YarnCluster:
    """A ResourceManager with one node, on loopback only. They run from `start` to `stop`, or inside `with`.

    A mirror finds the cluster by the variables in `environment`.
    """

    master = "yarn"

    def __init__(self, memory: int = 8192, settings: Mapping[str, str] | None = None) -> None:
        """Describe a cluster. Nothing runs before `start`. `memory` is what the node offers to containers, in MB.

        `settings` are further lines of yarn-site.xml.
        """
        self._memory, self._extra = memory, dict(settings or {})
        self._page = 0  # the port of the ResourceManager's web services
        self._manager: Server | None = None
        self.node: Server | None = None
        self._directory: Path | None = None
        self._owner = os.getpid()

    @property
    def directory(self) -> Path:
        """The directory with the servers' logs, the containers and their output."""
        if self._directory is None:
            raise EmbeddedError("YARN does not run")
        return self._directory

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which Spark finds this cluster, and stays on loopback."""
        return {"HADOOP_CONF_DIR": str(self.directory / "conf"), **_LOOPBACK}

    @property
    def spark_settings(self) -> dict[str, str]:
        """Settings that keep Spark's files out of the user's home directory."""
        return {"spark.yarn.stagingDir": (self.directory / "staging").as_uri()}

    @property
    def options(self) -> list[str]:
        """The options of `mirrormaker run` for this cluster."""
        settings = [word for key, value in self.spark_settings.items() for word in ("--spark.conf", f"{key}={value}")]
        return ["--spark.master", self.master, *settings]

    # -- what runs

    def executors(self) -> list[int]:
        """Return the process ids of all executors."""
        return self._containers(_EXECUTOR)

    def application_masters(self) -> list[int]:
        """Return the process ids of all ApplicationMasters."""
        return self._containers(*_MASTERS)

    def processes(self) -> dict[int, str]:
        """Return every process that the node has started: process id -> command line."""
        node = self.node.pid if self.node is not None else None
        if node is None:
            return {}
        parent_of, family = parents(), {node}
        while new := {pid for pid, parent in parent_of.items() if parent in family} - family:
            family |= new
        return {pid: command(pid) for pid in family - {node}}

    def applications(self) -> list[Application]:
        """Return all applications, the newest last."""
        found = (self._ask("apps").get("apps") or {}).get("app", [])
        listed = [
            Application(app["id"], app["name"], app["state"], app["finalStatus"], self._attempts(app["id"]))
            for app in found
        ]
        return sorted(listed, key=lambda app: app.id)

    def kill_application(self, application: Application) -> None:
        """Kill an application, as `yarn application -kill` does."""
        self._ask(f"apps/{application.id}/state?user.name={getpass.getuser()}", {"state": "KILLED"})

    def _attempts(self, application: str) -> int:
        return len(self._ask(f"apps/{application}/appattempts")["appAttempts"]["appAttempt"])

    def _ask(self, path: str, change: dict[str, str] | None = None) -> Any:
        """Call the ResourceManager's web services: GET, or PUT with a change."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._page}/ws/v1/cluster/{path}",
            json.dumps(change).encode() if change else None,
            {"Content-Type": "application/json", "Accept": "application/json"},
            method="PUT" if change else "GET",
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def _containers(self, *main_classes: str) -> list[int]:
        """Return the Java processes of containers. The shells around them have the same words in their commands."""
        return sorted(
            pid
            for pid, line in self.processes().items()
            if line.partition(" ")[0].endswith("/java") and any(f" {name} " in line for name in main_classes)
        )

    # -- start and stop

    def start(self) -> YarnCluster:
        """Start both servers, and wait until the node has registered."""
        if self._directory is not None:
            return self
        jars = hadoop_jars()
        self._directory = child_processes.new_directory("yarn")
        atexit.register(self._stop_at_exit)
        self._configure()
        manager = self._manager = self._prepare(jars, "resource manager", "resourcemanager.ResourceManager")
        node = self.node = self._prepare(jars, "node manager", "nodemanager.NodeManager")
        try:
            for server in (manager, node):
                server.launch()
            manager.wait_until(lambda: "Transitioned to active state" in manager.logged(), _START)
            node.wait_until(lambda: "Registered with ResourceManager" in node.logged(), _START)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End both servers with all containers, and remove their directory.

        They are killed: a NodeManager that is asked to stop waits for 17 s, and nothing of theirs is needed again.
        """
        if self.node is not None and self.node.pid is not None:
            self.node.pause()  # so that it starts no container meanwhile
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for server in (self.node, self._manager):
            if server is not None:
                server.kill()
        self.node = self._manager = None
        if self._directory is not None:
            child_processes.remove_directory(self._directory)
        self._directory = None
        atexit.unregister(self._stop_at_exit)

    def __enter__(self) -> YarnCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _configure(self) -> None:
        """Write Hadoop's configuration files. Every address is on loopback, with a free port."""
        home = self.directory / "conf"
        home.mkdir()
        self._page = free_port()
        manager, node = "yarn.resourcemanager", "yarn.nodemanager"
        _write(
            home / "core-site.xml",
            {
                "fs.defaultFS": "file:///",
                "hadoop.tmp.dir": str(self.directory / "tmp"),
                "hadoop.http.staticuser.user": getpass.getuser(),
            },
        )
        _write(
            home / "capacity-scheduler.xml",
            {
                "yarn.scheduler.capacity.root.queues": "default",
                "yarn.scheduler.capacity.root.default.capacity": "100",
                "yarn.scheduler.capacity.maximum-am-resource-percent": "0.5",
            },
        )
        names = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        settings = {f"{manager}.{name}": _address() for name in names}
        settings |= {f"{node}.{name}": _address() for name in ("address", "localizer.address", "webapp.address")}
        settings |= {
            f"{manager}.hostname": "127.0.0.1",
            f"{manager}.webapp.address": f"127.0.0.1:{self._page}",
            f"{manager}.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.capacity.CapacityScheduler",
            # If this process is killed, an ApplicationMaster that is left ends soon, and not after a quarter of an hour.
            f"{manager}.connect.max-wait.ms": "10000",
            f"{manager}.connect.retry-interval.ms": "1000",
            f"{node}.hostname": "127.0.0.1",
            f"{node}.local-dirs": str(self.directory / "local"),
            f"{node}.log-dirs": str(self.directory / "containers"),
            f"{node}.disk-health-checker.enable": "false",
            # Without the last two, containers listen on every network interface of the machine.
            f"{node}.env-whitelist": ",".join(("JAVA_HOME", "PATH", "LANG", *_LOOPBACK)),
            f"{node}.resource.memory-mb": str(self._memory),
            f"{node}.resource.cpu-vcores": "32",
            # By default Hadoop 3.5 leaves the check of memory to Linux' control groups, which are not used here.
            f"{node}.resource.memory.enforced": "false",
            f"{node}.pmem-check-enabled": "true",
            f"{node}.vmem-check-enabled": "false",
            f"{node}.container-monitor.interval-ms": "500",
            "yarn.scheduler.minimum-allocation-mb": "128",
        }
        _write(home / "yarn-site.xml", {**settings, **self._extra})

    def _prepare(self, jars: Path, name: str, main_class: str) -> Server:
        flags = ("-Xmx256m", *QUICK, "-XX:-UsePerfData", f"-Djava.io.tmpdir={self.directory}")
        log = (f"-Dlog4j.configuration=file:{jars / LOG4J}", "-Dmirrormaker.log=INFO")
        classes = f"{self.directory / 'conf'}:{jars}/*"
        line = [java(), *flags, *log, f"-Dhadoop.log.dir={self.directory}", "-cp", classes, f"{_SERVER}.{main_class}"]
        # Containers start Java from JAVA_HOME.
        home = str(Path(java()).resolve().parent.parent)
        return Server(name, line, self.directory, {**os.environ, **_LOOPBACK, "JAVA_HOME": home})

    def _stop_at_exit(self) -> None:
        if os.getpid() == self._owner:  # a fork inherits the exit handler, but must not stop the cluster
            self.stop()


def _address() -> str:
    return f"127.0.0.1:{free_port()}"


def _write(path: Path, settings: Mapping[str, str]) -> None:
    rows = (f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in settings.items())
    path.write_text("<configuration>\n" + "\n".join(rows) + "\n</configuration>\n")
