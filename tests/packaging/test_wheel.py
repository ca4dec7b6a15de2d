"""The wheel and the source distribution: what is in them, and a mirror that runs from the installed wheel alone."""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka import KafkaProducer

import mirrormaker
from mirrormaker.console.compare import compare
from mirrormaker.embedded import child_processes

ROOT = Path(__file__).parents[2]
TOPIC, PARTITIONS, RECORDS = "packaged", 3, 3000
# The clusters come from the wheel too. They end with the pipe that they read from.
CLUSTERS = f"""
import sys
import mirrormaker
from mirrormaker.embedded import Cluster

with Cluster(name="source") as source, Cluster(name="target") as target:
    source.create_topic({TOPIC!r}, partitions={PARTITIONS})
    print(mirrormaker.__file__, source.bootstrap, target.bootstrap, flush=True)
    sys.stdin.read()
"""

# pip may have to download half a gigabyte; from its cache all of this takes about a minute.
pytestmark = pytest.mark.timeout(900)


class Distributions(NamedTuple):
    """The two files that are published."""

    wheel: Path
    source: Path


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Build from a copy: the working tree may hold what earlier builds left behind, and setuptools would pack it."""
    copy = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    run([sys.executable, "-m", "build", "--outdir", str(copy / "dist"), str(copy)])
    (wheel,) = (copy / "dist").glob("*.whl")
    (source,) = (copy / "dist").glob("*.tar.gz")
    return Distributions(wheel, source)


@pytest.fixture(scope="module")
def installed(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and its dependencies into an empty virtual environment; return its directory of programs."""
    environment = tmp_path_factory.mktemp("installed")
    run([sys.executable, "-m", "venv", str(environment)])
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "--no-compile", str(distributions.wheel)])
    run([*pip, "check"])
    return environment / "bin"


@pytest.fixture
def clusters(installed: Path, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Run two clusters out of the wheel; yield their addresses."""
    with (tmp_path / "clusters.log").open("wb") as log:
        command = [str(installed / "python"), "-c", CLUSTERS]
        process = child_processes.spawn(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=tmp_path, env=outside()
        )
    assert process.stdin is not None and process.stdout is not None
    with process, process.stdin, process.stdout:
        words = process.stdout.readline().decode().split()
        assert len(words) == 3, (tmp_path / "clusters.log").read_text()
        package, source, target = words
        assert Path(package).is_relative_to(installed.parent)
        yield source, target


def outside() -> dict[str, str]:
    """Return an environment in which this repository cannot be imported by accident."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def run(command: list[str]) -> str:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd="/", env=outside()
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}"
    return done.stdout


def test_both_distributions_hold_every_file_of_the_package(distributions: Distributions) -> None:
    files = (file for file in (ROOT / "src" / "mirrormaker").rglob("*") if file.suffix in (".py", ".html", ".typed"))
    wanted = {file.relative_to(ROOT / "src").as_posix() for file in files}
    assert "mirrormaker/py.typed" in wanted
    with zipfile.ZipFile(distributions.wheel) as wheel:
        names = wheel.namelist()
        metadata = email.message_from_bytes(wheel.read(next(name for name in names if name.endswith("/METADATA"))))
    assert {name for name in names if ".dist-info/" not in name} == wanted
    assert metadata["Version"] == mirrormaker.__version__
    with tarfile.open(distributions.source) as source:
        packed = {name.partition("/src/")[2] for name in source.getnames() if "/src/mirrormaker/" in name}
    assert wanted <= packed


def test_every_command_of_the_wheel_starts(installed: Path) -> None:
    assert mirrormaker.__version__ in run([str(installed / "mirrormaker"), "--version"])
    for command in ("mirrormaker", "kafka-mirror-maker", "kafka-consumer-offset-checker"):
        assert "--help" in run([str(installed / command), "--help"])


def test_the_installed_wheel_mirrors_every_record(installed: Path, clusters: tuple[str, str], tmp_path: Path) -> None:
    source, target = clusters
    producer = KafkaProducer(bootstrap_servers=source.split(","), compression_type="gzip", linger_ms=5)
    for number in range(RECORDS):
        producer.send(TOPIC, b"value-%d" % number, b"key-%d" % (number % 31), partition=number % PARTITIONS)
    producer.flush()
    producer.close()
    (tmp_path / "source.properties").write_text(f"bootstrap.servers={source}\ngroup.id=packaged\n")
    (tmp_path / "target.properties").write_text(f"bootstrap.servers={target}\n")
    command = [str(installed / "mirrormaker"), "run", "--include", TOPIC, "--exit.when.caught.up"]
    command += ["--consumer.config", str(tmp_path / "source.properties")]
    command += ["--producer.config", str(tmp_path / "target.properties")]
    output = run([*command, "--log.file", str(tmp_path / "spark.log")])
    verdict = compare(source, target, [TOPIC])
    assert verdict.same, "\n".join([*verdict.differences, output])
    assert verdict.records == RECORDS
