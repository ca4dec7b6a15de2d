"""The kinds of Spark masters, and the settings that each of them needs for streams that run for days.

Every value here is a default: a setting of the user's own replaces it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from py4j.protocol import Py4JError

from mirrormaker.errors import SettingError

_UNLIMITED = "2147483647"
_SLOTS_WITHIN = 10.0  # seconds for executors that have registered to take tasks; one is usual
_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")  # Spark reads both

# No record passes through an executor's JVM: it needs the quick compiler and one collector thread, as the driver's does.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Executors are small. The first stream waits until all of them are there, or one executor would get all streams.
_CLUSTER = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.executor.heartbeat.maxFailures": "5",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "10s",
}

_YARN = {
    # Without it PySpark itself is missing in the executors: spark-submit would set it, but sessions here start without
    # what spark-submit has set.
    "spark.yarn.isPython": "true",
    # The directory of a container has a longer path than a unix socket may have. Only positions pass through it.
    "spark.python.unix.domain.socket.enabled": "false",
    # By default the third executor that is lost, in all of the application's life, ends the application.
    "spark.executor.maxNumFailures": _UNLIMITED,
    "spark.yarn.am.extraJavaOptions": _QUICK,
    # An ApplicationMaster that dies is replaced, unless the one before it has died within this time.
    "spark.yarn.am.attemptFailuresValidityInterval": "1m",
    # Containers take their time: without waiting, the first executor would get all streams.
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.dynamicAllocation.enabled": "false",
    # YARN removes a container's directory, but not what killed processes leave in the node's own.
    "spark.executorEnv.TMPDIR": "./tmp",
}


@dataclass(frozen=True)
class Master:
    """One master, and what it needs."""

    url: str
    settings: Mapping[str, str] = field(default_factory=dict)
    archives: str = "spark.archives"  # the setting that sends archives to executors

    @property
    def is_local(self) -> bool:
        """Return True if the streams run in processes of this machine."""
        return self.url.startswith("local")

    @property
    def is_yarn(self) -> bool:
        """Return True for Hadoop's YARN."""
        return self.url == "yarn"


def check(url: str | None, environment: Mapping[str, str] = os.environ) -> None:
    """Raise SettingError if the master cannot be found. Nothing is contacted."""
    if url == "yarn" and not is_submitted(environment):
        hadoop_settings(environment)


def is_submitted(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True under spark-submit, which has started the JVM already."""
    return "PYSPARK_GATEWAY_PORT" in environment


def master_for(url: str | None, streams: int, environment: Mapping[str, str] = os.environ) -> Master:
    """Return the master for so many streams; without an address, this machine.

    There are twice as many slots as streams: the successor of a stream starts at once, beside the one that it replaces.
    Raise SettingError if YARN cannot be found.
    """
    slots = 2 * streams
    if url is None:
        return Master(f"local[{slots},{_UNLIMITED}]")
    if url == "yarn":
        return _yarn(streams, environment)
    if url.startswith("local"):
        return Master(url)
    return Master(url, {**_CLUSTER, "spark.cores.max": str(slots)})


def _yarn(streams: int, environment: Mapping[str, str]) -> Master:
    """Return YARN's settings. It ignores spark.cores.max: executors have two slots each, one of them a spare one."""
    settings = {
        **_CLUSTER,
        **_YARN,
        "spark.executor.instances": str(max(2, streams)),
        "spark.executor.cores": "2" if streams > 1 else "1",
    }
    # Under spark-submit the user chooses how Spark's jars get to the nodes.
    if not is_submitted(environment) and _default_file_system(environment).startswith("file:"):
        # Nodes that share this machine's file system find Spark's jars at the same path. Otherwise Spark would pack and
        # copy 400 MB for each application.
        settings["spark.yarn.jars"] = f"local:{_jars()}/*"
    # A node fetches these once and unpacks them once, for all of its executors.
    return Master("yarn", settings, "spark.yarn.dist.archives")


def _default_file_system(environment: Mapping[str, str]) -> str:
    return hadoop_settings(environment).get("fs.defaultFS", "file:///")


def hadoop_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in Hadoop's configuration files; raise SettingError if the files cannot be used."""
    variable = next((name for name in _VARIABLES if environment.get(name)), None)
    if variable is None:
        raise SettingError(
            "--spark.master yarn: HADOOP_CONF_DIR is not set; set it to the directory with the cluster's yarn-site.xml"
            " and core-site.xml, for example /etc/hadoop/conf"
        )
    directory = Path(environment[variable])
    if not (directory / "yarn-site.xml").is_file():
        raise SettingError(
            f"{variable}={directory}: there is no yarn-site.xml; name the directory with the cluster's configuration"
        )
    found: dict[str, str] = {}
    for file in (directory / "core-site.xml", directory / "yarn-site.xml"):
        try:
            root = ElementTree.parse(file).getroot() if file.exists() else ElementTree.Element("configuration")
        except (OSError, ElementTree.ParseError) as error:
            raise SettingError(f"{variable}={directory}: {file.name} cannot be read: {error}") from None
        found |= {row.findtext("name", ""): row.findtext("value", "") for row in root.iter("property")}
    return found


def _jars() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def await_slots(context: Any) -> None:
    """Wait until every executor that has registered offers its slots, or one of them would get all streams.

    Spark itself waits until they have registered, and gives them tasks a second later.
    """
    backend = context._jsc.sc().schedulerBackend()
    deadline = time.monotonic() + _SLOTS_WITHIN
    try:
        executors = backend.getExecutorIds()
        for number in range(executors.size()):
            executor = executors.apply(number)
            # "Some(2)" for instance, or "None" for an executor that is gone again; Py4J cannot pass on a BigDecimal.
            while (slots := backend.getExecutorAvailableCpus(executor).toString()) != "None":
                if float(slots[5:-1]) > 0 or time.monotonic() > deadline:
                    break
                time.sleep(0.05)
    except (Py4JError, ValueError):
        return  # another version of Spark, or a cluster manager that knows no executors
