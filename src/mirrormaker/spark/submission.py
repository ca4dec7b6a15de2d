"""The `spark-submit` line that starts a mirror: with its driver in the cluster (YARN), or on this machine (standalone)."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from mirrormaker.errors import SettingError
from mirrormaker.spark import shipping
from mirrormaker.spark.masters import Master

MAIN = "mirrormaker_main.py"
MAIN_TEXT = "from mirrormaker.cli import main\n\nmain()\n"
_SECRET = re.compile(r"secret|password|token|credential|access[.]?key", re.I)  # as Spark's own spark.redaction.regex

# The driver's container holds a JVM and a Python process with pandas.
_DRIVER_ON_YARN = {
    "spark.driver.memory": "512m",
    "spark.driver.memoryOverhead": "640m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.yarn.appMasterEnv.TMPDIR": "./tmp",
    "spark.yarn.appMasterEnv.PYTHONWARNINGS": "ignore::FutureWarning:pyspark",
}


@dataclass(frozen=True)
class Submission:
    """All that one `spark-submit` needs."""

    master: Master
    in_cluster: bool  # the driver runs in the cluster
    name: str
    given: Mapping[str, str]  # the user's settings of Spark
    files: Sequence[Path]  # sent to the driver's working directory
    arguments: Sequence[str]  # of mirrormaker
    directory: Path  # has MAIN, and gets the archive with the code
    waits: bool

    def line(self) -> list[str]:
        """Return the command line. Packs the archives, and writes settings that must not be seen into a file."""
        settings = {**self._settings(), **self.given}
        files = [settings.pop("spark.files")] if "spark.files" in settings else []
        files += [str(file) for file in self.files]
        archives = [settings.pop("spark.archives")] if "spark.archives" in settings else []
        if self._ships:
            archives.append(f"{shipping.code(self.directory)}#{shipping.CODE}")
            archives.append(f"{shipping.libraries(self._libraries)}#{shipping.LIBRARIES}")
        line = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", self.master.url]
        line += ["--deploy-mode", "cluster" if self.in_cluster else "client", "--name", self.name]
        secrets = {key: value for key, value in settings.items() if _SECRET.search(key)}
        if secrets:
            line += ["--properties-file", str(self._hide(secrets)), "--load-spark-defaults"]
        for key, value in sorted(settings.items()):
            line += ["--conf", f"{key}={value}"] if key not in secrets else []
        line += ["--files", ",".join(files)] if files else []
        line += ["--archives", ",".join(archives)] if archives else []
        return [*line, str(self.directory / MAIN), *self.arguments]

    @property
    def environment(self) -> dict[str, str]:
        """The variables for `spark-submit`."""
        return {**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_DRIVER_PYTHON": sys.executable}

    @property
    def packs_libraries(self) -> bool:
        """Return True if `line` takes longer than usual, because it packs libraries."""
        return self._ships and not shipping.libraries_path(self._libraries).exists()

    @property
    def _libraries(self) -> Sequence[str]:
        """The libraries that are sent: those of streams, and those of a driver that runs there too."""
        return shipping.driver_libraries() if self.in_cluster else shipping.STREAM_LIBRARIES

    @property
    def _ships(self) -> bool:
        """Return True unless the user names a Python of the nodes, which then has everything."""
        return not {"PYSPARK_PYTHON", "spark.pyspark.python"} & {*os.environ, *self.given}

    def _settings(self) -> dict[str, str]:
        settings = dict(self.master.settings)
        if self._ships:
            settings |= {"spark.pyspark.python": shipping.PYTHON, "spark.executorEnv.PYTHONPATH": shipping.PYTHONPATH}
        if self.in_cluster:
            settings |= _DRIVER_ON_YARN
            settings["spark.yarn.submit.waitAppCompletion"] = str(self.waits).lower()
            if self._ships:
                settings["spark.yarn.appMasterEnv.PYTHONPATH"] = shipping.PYTHONPATH
        else:
            settings["spark.pyspark.driver.python"] = sys.executable
        return settings

    def _hide(self, secrets: Mapping[str, str]) -> Path:
        """Write settings into a file that only this user can read: everyone can see a process's command line."""
        path = self.directory / "secret.conf"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.writelines(f"{key}={value}\n" for key, value in secrets.items())
        return path


def shown(line: Sequence[str]) -> str:
    """Return a command line for people: an option in a line."""
    text = f"{Path(line[0]).name}"
    for word in line[1:]:
        text += (
            f" \\\n  {shlex.quote(word)}" if word.startswith("--") or word.endswith(MAIN) else f" {shlex.quote(word)}"
        )
    return text


def deploy_mode(master: str, wanted: str | None) -> bool:
    """Return True if the driver runs in the cluster; refuse modes that Spark does not have."""
    if master == "yarn":
        return wanted != "client"
    if not master.startswith("spark://"):
        raise SettingError(
            f"--spark.master {master}: mirrormaker submit knows yarn and spark://HOST:PORT; use mirrormaker run instead",
            option=True,
        )
    if wanted == "cluster":
        raise SettingError(
            f"--deploy.mode cluster: Spark's own cluster manager ({master}) runs no Python driver; keep the driver on a"
            " machine of yours with mirrormaker run --spark.master, for example as a service of systemd",
            option=True,
        )
    return False
