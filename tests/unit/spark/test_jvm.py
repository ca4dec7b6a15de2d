"""The way to the driver's JVM, and what Spark's start leaves alone: the environment, which other threads read."""

from __future__ import annotations

import inspect
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import write_int

from mirrormaker.spark import jvm, session
from mirrormaker.spark.session import Engine

SECRET = "secret"


class Java:
    """As much of py4j's server as imports need."""

    def __init__(self) -> None:
        self.secrets: list[str] = []
        self.imports: list[str] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rw") as stream:
            while command := stream.readline().strip():
                if command == "A":
                    self.secrets.append(stream.readline().strip())
                else:
                    self.imports.append([line.strip() for line in iter(stream.readline, "e\n")][-1])
                stream.write("!yv\n")
                stream.flush()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def java() -> Iterator[Java]:
    server = Java()
    yield server
    server.close()


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The variables that were added to the environment of the process, or removed from it."""
    names: list[bytes] = []
    put, take = os.putenv, os.unsetenv

    def note_new(name: bytes, value: bytes) -> None:
        if os.fsdecode(name) not in os.environ:
            names.append(name)
        put(name, value)

    def note_gone(name: bytes) -> None:
        names.append(name)
        take(name)

    monkeypatch.setattr(os, "putenv", note_new)
    monkeypatch.setattr(os, "unsetenv", note_gone)
    return names


def test_the_way_to_the_jvm_is_that_of_pyspark_without_the_environment(
    tmp_path: Path, java: Java, monkeypatch: pytest.MonkeyPatch, added: list[bytes]
) -> None:
    """A thread makes it, and another one may be in C and read the environment."""
    with (tmp_path / "gateway").open("wb") as stream:
        write_int(java.port, stream)
        write_int(len(SECRET), stream)
        stream.write(SECRET.encode())
    process: Any = SimpleNamespace()
    gateway = jvm.connect(process, tmp_path)
    assert not added
    ours, java.imports = java.imports, []
    assert (set(java.secrets), gateway.gateway_parameters.auto_convert) == ({SECRET}, True)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", str(java.port))
    monkeypatch.setenv("PYSPARK_GATEWAY_SECRET", SECRET)
    theirs = launch_gateway()
    assert type(gateway) is type(theirs)
    assert ours == java.imports != []


def test_a_spark_context_finds_the_variables_that_it_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    initialize: Any = SparkContext
    names = re.findall(r'os\.environ\["(\w+)"\] = ', inspect.getsource(initialize._do_init))
    assert names
    for name in names:
        monkeypatch.delenv(name, raising=False)
    Engine(None, [], 1, tmp_path, tmp_path / "spark.log", [])
    assert set(names) <= os.environ.keys()


def test_spark_submit_is_started_without_a_new_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, added: list[bytes]
) -> None:
    for name in ("SPARK_LOCAL_DIRS", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    engine = Engine("spark://127.0.0.1:7077", [], 1, tmp_path, tmp_path / "spark.log", [])
    assert os.environ["SPARK_LOCAL_DIRS"] == str(tmp_path)
    monkeypatch.setattr(session, "launch_gateway", lambda *_, **__: SimpleNamespace(proc=None, jvm="the JVM"))
    added.clear()
    assert engine.start_jvm() == "the JVM"
    assert not added
