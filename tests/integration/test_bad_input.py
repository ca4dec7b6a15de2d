"""Mistakes of users: one clear line on stderr, exit code 1, no stack trace, no process left."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from mirrormaker.embedded import Cluster
from mirrormaker.embedded.ports import free_port


def run(*options: str, timeout: float = 60) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "mirrormaker.cli", "run", *options],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stderr


def assert_refused(result: tuple[int, str], *words: str) -> None:
    code, text = result
    assert code == 1, text
    assert "Traceback" not in text
    last = text.strip().splitlines()[-1]
    assert last.startswith("mirrormaker: "), text
    for word in words:
        assert word in last, text


@pytest.fixture
def files(tmp_path: Path, source: Cluster, target: Cluster) -> list[str]:
    """The options for two valid property files."""
    (tmp_path / "source.properties").write_text(f"bootstrap.servers={source.bootstrap}\ngroup.id=bad\n")
    (tmp_path / "target.properties").write_text(f"bootstrap.servers={target.bootstrap}\n")
    return [
        "--consumer.config",
        str(tmp_path / "source.properties"),
        "--producer.config",
        str(tmp_path / "target.properties"),
    ]


def test_no_such_file(files: list[str]) -> None:
    result = run("--consumer.config", "nowhere.properties", *files[2:], "--whitelist", "x")
    assert_refused(result, "--consumer.config nowhere.properties", "no such file")


def test_a_file_that_is_not_properties(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    assert_refused(
        run("--consumer.config", str(tmp_path / "picture.png"), *files[2:], "--whitelist", "x"),
        "picture.png",
        "not a properties file",
    )
    (tmp_path / "empty.properties").write_text("# nothing\n")
    assert_refused(
        run("--consumer.config", str(tmp_path / "empty.properties"), *files[2:], "--whitelist", "x"), "no setting"
    )
    assert_refused(run("--consumer.config", str(tmp_path), *files[2:], "--whitelist", "x"), "is a directory")


def test_both_filters_and_neither(files: list[str]) -> None:
    assert_refused(run(*files, "--whitelist", "a", "--blacklist", "b"), "--whitelist", "--blacklist", "contradict")
    assert_refused(run(*files), "--whitelist", "missing")


def test_an_invalid_regex(files: list[str]) -> None:
    assert_refused(run(*files, "--whitelist", "*"), "* is not a Java regular expression", "Dangling meta character")


def test_an_address_with_a_dash(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "dash.properties").write_text("group.id=g\nbootstrap.servers=server3-6667\n")
    result = run("--consumer.config", str(tmp_path / "dash.properties"), *files[2:], "--whitelist", "x")
    assert_refused(result, "dash.properties, line 2", "server3-6667", "server3:6667")


def test_no_broker_listening(files: list[str], tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "gone.properties").write_text(f"group.id=g\nbootstrap.servers=127.0.0.1:{port}\n")
    started = time.monotonic()
    result = run("--consumer.config", str(tmp_path / "gone.properties"), *files[2:], "--whitelist", "x")
    assert_refused(result, "the source cluster cannot be reached", f"127.0.0.1:{port}", "refused", "gone.properties")
    assert time.monotonic() - started < 10
    result = run(*files[:2], "--producer.config", str(tmp_path / "gone.properties"), "--whitelist", "x")
    assert_refused(result, "the target cluster cannot be reached", f"127.0.0.1:{port}")


def test_a_port_where_something_else_listens(files: list[str], tmp_path: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), h.BaseHTTPRequestHandler);"
         "print(s.server_port, flush=True); s.serve_forever()"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert server.stdout is not None
    try:
        port = server.stdout.readline().strip()
        (tmp_path / "http.properties").write_text(
            f"group.id=g\nbootstrap.servers=127.0.0.1:{port}\nrequest.timeout.ms=2000\n"
        )
        result = run("--consumer.config", str(tmp_path / "http.properties"), *files[2:], "--whitelist", "x")
        assert_refused(result, "the source cluster cannot be reached", f"127.0.0.1:{port}")
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_a_topic_that_does_not_exist(files: list[str]) -> None:
    assert_refused(
        run(*files, "--whitelist", "no-such-topic", "--exit.when.caught.up"), "no topic matches no-such-topic"
    )


def test_user_code_that_is_not_there_is_refused_by_name(files: list[str]) -> None:
    for option in ("--message.handler", "--consumer.rebalance.listener"):
        assert_refused(run(*files, "--whitelist", "x", option, "y"), option, "must be package.module:name")
        assert_refused(
            run(*files, "--whitelist", "x", option, "no_such:thing"), option, "is its directory in PYTHONPATH?"
        )


def test_a_file_for_undelivered_records_needs_the_option_that_fills_it(files: list[str]) -> None:
    assert_refused(run(*files, "--whitelist", "x", "--undelivered.file", "y"), "--abort.on.send.failure false")


def test_help_shows_examples_and_exits_0() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mirrormaker.cli", "run", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "examples:" in done.stdout and "--exit.when.caught.up" in done.stdout
