"""Who may ask the status server for what, and what it does with everything else."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from email.message import Message
from email.parser import Parser
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mirrormaker.errors import MirrorError
from mirrormaker.settings.status_options import StatusSettings
from mirrormaker.status import http_server as server_module
from mirrormaker.status.http_server import StatusServer
from mirrormaker.status.metrics import Metrics
from tests.support.made_up_mirror import MadeUpMirror, ServedStatus

TOKEN = "a-token-that-nobody-guesses"


class Answer(NamedTuple):
    status: int
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def send(shown: ServedStatus, request: bytes) -> bytes:
    """Bytes to the server, and all that comes back until it hangs up."""
    with socket.create_connection(("127.0.0.1", shown.port), timeout=10) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            return b""  # it has heard enough already
        parts = []
        try:
            while part := connection.recv(1 << 16):
                parts.append(part)
        except ConnectionResetError:
            pass
        return b"".join(parts)


def get(shown: ServedStatus, path: str, host: str = "localhost", method: str = "GET", **headers: str) -> Answer:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers.items())]
    head, _, body = send(shown, ("\r\n".join(lines) + "\r\n\r\n").encode()).partition(b"\r\n\r\n")
    first, _, rest = head.decode().partition("\r\n")
    return Answer(int(first.split()[1]), Parser().parsestr(rest), body)


def await_connections(shown: ServedStatus, wanted: int) -> None:
    deadline = time.monotonic() + 5
    while shown.server._connections != wanted:
        assert time.monotonic() < deadline, f"{shown.server._connections} connections, not {wanted}"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def shown() -> Iterator[ServedStatus]:
    with ServedStatus(MadeUpMirror(30)) as page:
        yield page


@pytest.fixture(scope="module")
def locked() -> Iterator[ServedStatus]:
    with ServedStatus(MadeUpMirror(30), token=TOKEN, host="0.0.0.0") as page:
        yield page


def test_the_page_runs_nothing_but_its_own_script_and_loads_nothing_from_elsewhere(shown: ServedStatus) -> None:
    page = get(shown, "/")
    policy = page.headers["Content-Security-Policy"]
    assert page.status == 200
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "unsafe" not in policy
    for elsewhere in (b'src="http', b'href="http', b"@import", b"url("):
        assert elsewhere not in page.body
    assert page.headers["X-Content-Type-Options"] == "nosniff"


def test_every_document_is_there(shown: ServedStatus) -> None:
    overview = get(shown, "/api/status").json
    assert overview["guarantee"] == "exactly once, in order"
    assert overview["partitions"] == {"flowing": 30, "waiting": 0, "stopped": 0}
    assert [stream["at_work"] for stream in overview["streams"]] == [True] * 4
    rows = get(shown, "/api/partitions").json["partitions"]
    assert len(rows) == 30
    assert rows[0]["topic"] == "topic-00"
    assert rows[0]["lane"] == "batches and records" or rows[0]["lane"] == "batches"
    p50, p99, p999 = rows[0]["latency_ms"]
    assert 0 < p50 <= p99 <= p999
    groups = get(shown, "/api/groups").json
    assert [(row["source"], row["group"], row["is_ready"]) for row in groups["groups"]] == [
        ("old", "shipping", False),
        ("old", "billing", True),
    ]
    assert groups["groups_total"] == 2
    about = overview["sources"][0]["groups"]
    assert (about["total"], about["ready"], about["read_again"], about["missing"]) == (2, 1, 34, 0)
    assert about["states"] == {"synced": 1, "owned by the target": 1}
    assert get(shown, "/api/history").json["every"] == 5
    assert get(shown, "/api/events").json == {"events": []}
    assert get(shown, "/healthz").body == b"ok\n"
    assert get(shown, "/readyz").body == b"ok\n"
    names = {family.name for family in text_string_to_metric_families(get(shown, "/metrics").body.decode())}
    assert {"mirrormaker_records", "mirrormaker_latency_seconds", "process_cpu_seconds"} <= names


def test_a_mirror_without_groups_says_so() -> None:
    made_up = MadeUpMirror(3)
    made_up.groups = None
    with ServedStatus(made_up) as shown:
        assert get(shown, "/api/groups").json == {"groups": [], "groups_total": 0}
        assert get(shown, "/api/status").json["sources"][0]["groups"] is None
        assert b"mirrormaker_groups{" not in get(shown, "/metrics").body


def test_only_get_is_answered(shown: ServedStatus) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE", "CONNECT"):
        answer = get(shown, "/", method=method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET"), method


def test_what_is_not_there_is_not_found(shown: ServedStatus) -> None:
    for path in ("/nothing", "/api", "/../../etc/passwd", "/%2e%2e/page.html", "//evil.example/", "/page.html"):
        assert get(shown, path).status == 404, path
    assert get(shown, "/api/events?after=x").status == 400
    assert get(shown, "/api/history?after=" + "9" * 99).status == 400


def test_a_name_that_somebody_made_to_point_here_is_refused(shown: ServedStatus, locked: ServedStatus) -> None:
    for host in (
        "evil.example",
        "evil.example:8080",
        "10.0.0.1",
        "127.0.0.1.evil.example",
        "",
        "localhost@evil.example",
    ):
        assert get(shown, "/api/status", host=host).status == 421, host
    for host in ("localhost", "LOCALHOST:80", f"127.0.0.1:{shown.port}", "[::1]:80"):
        assert get(shown, "/api/status", host=host).status == 200, host
    assert get(locked, "/healthz", host="evil.example").status == 421
    assert get(locked, "/healthz", host="192.0.2.7:8080").status == 200, "others reach it under its address"


def test_without_the_token_nothing_is_shown(locked: ServedStatus) -> None:
    for path in ("/api/status", "/api/partitions", "/api/events", "/api/history", "/metrics"):
        assert get(locked, path).status == 401, path
        assert get(locked, path, Authorization="Bearer wrong").status == 401
        assert get(locked, path, Authorization=f"Bearer {TOKEN}").status == 200, path
        assert get(locked, f"{path}?token={TOKEN}").status == 401, "only the page takes it out of the address"
    door = get(locked, "/")
    assert door.status == 401
    assert b"topic" not in door.body
    assert get(locked, "/healthz").status == get(locked, "/readyz").status == 200, "supervisors have no token"


def test_a_token_in_the_address_becomes_a_cookie_that_is_not_the_token(locked: ServedStatus) -> None:
    answer = get(locked, f"/?token={TOKEN}")
    cookie = answer.headers["Set-Cookie"]
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    kept = cookie.split(";")[0]
    page = get(locked, "/", Cookie=f"other=1; {kept}")
    assert page.status == 200
    assert TOKEN.encode() not in page.body
    assert get(locked, "/api/status", Cookie=kept).status == 200
    assert get(locked, "/api/status", Cookie=kept[:-1] + "x").status == 401
    assert get(locked, "/?token=wrong").status == 401
    assert get(locked, f"/?token={TOKEN}", Cookie=kept).status == 303, "it does not stay in the address"


def test_garbage_is_survived(shown: ServedStatus) -> None:
    chance = random.Random(4)
    hello = bytes.fromhex("16030100a5010000a10303") + bytes(chance.randrange(256) for _ in range(150))  # of TLS
    here = b"Host: localhost\r\n"
    garbage = [
        b"", b"\r\n\r\n", b"\0" * 100 + b"\r\n\r\n", hello, hello + b"\r\n\r\n", b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n" + here + b"\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + here + b"Host: evil.example\r\n\r\n", b"GET / HTTP/1.1\r\n: x\r\n" + here + b"\r\n",
        b"GET \xff HTTP/1.1\r\n" + here + b"\r\n", b"GET http://[x HTTP/1.1\r\n" + here + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + here + b"\r\n",
        b"GET / HTTP/1.1\r\n" + here + b"X: y\r\n" * 10_000 + b"\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /?" + b"a=b&" * 50 + b" HTTP/1.1\r\n" + here + b"\r\n",
        b"GET / HTTP/1.1\r\n" + here + b"Cookie: \xff\xfe=\x00; ;;=\r\n\r\n",
    ]  # fmt: skip
    garbage += [bytes(chance.randrange(256) for _ in range(chance.randrange(400))) + b"\r\n\r\n" for _ in range(100)]
    for request in garbage:
        answer = send(shown, request)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200")), request[:80]
    assert get(shown, "/healthz").status == 200


def test_who_is_slow_or_comes_too_often_does_not_keep_others_waiting(
    shown: ServedStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_READ_WITHIN", 0.5)
    monkeypatch.setattr(server_module, "_MAX_CONNECTIONS", 5)
    slow = [socket.create_connection(("127.0.0.1", shown.port), timeout=10) for _ in range(6)]
    try:
        for connection in slow[1:]:
            connection.sendall(b"GET / HT")
        assert slow[0].recv(1000).startswith(b"HTTP/1.1 503"), "the oldest makes room for the latest"
        assert slow[5].recv(1000).startswith(b"HTTP/1.1 408")
    finally:
        for connection in slow:
            connection.close()
    deadline = time.monotonic() + 5
    while get(shown, "/healthz").status != 200:
        assert time.monotonic() < deadline
    assert shown.server._connections <= 1


def test_silent_connections_do_not_make_a_mirror_look_dead(shown: ServedStatus) -> None:
    silent = [socket.create_connection(("127.0.0.1", shown.port), timeout=10) for _ in range(64)]
    try:
        await_connections(shown, 64)
        for _ in range(3):
            assert get(shown, "/healthz").status == 200
    finally:
        for connection in silent:
            connection.close()
    await_connections(shown, 0)


def test_who_comes_while_all_others_are_being_answered_is_refused(
    shown: ServedStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_MAX_CONNECTIONS", 0)
    assert get(shown, "/healthz").status == 503


def test_many_who_ask_for_metrics_at_once_cost_one_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counting(metrics: Metrics, *given: Any) -> bytes:
        made.append(threading.current_thread().name)
        deadline = time.monotonic() + 10
        while len(made) == 1 and (shown.server._connections < 30 or shown.server._silent):
            assert time.monotonic() < deadline, "not everybody has asked"
            time.sleep(0.01)
        return text_of(metrics, *given)

    text_of = Metrics._text
    monkeypatch.setattr(Metrics, "_text", counting)
    with ServedStatus(MadeUpMirror(2000), max_partitions=100) as shown, ThreadPoolExecutor(30) as askers:
        answers = list(askers.map(lambda _: get(shown, "/metrics"), range(30)))
        assert [answer.status for answer in answers] == [200] * 30
        assert len({answer.body for answer in answers}) == len(made) == 1
        assert made[0].startswith("metrics"), "the loop has streams to listen to"
        shown.status._written = (0.0, b"")
        assert get(shown, "/metrics").body != answers[0].body, "what was kept is made anew"


def test_metrics_that_cannot_be_made_are_tried_again(
    shown: ServedStatus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown.status._written = (0.0, b"")
    monkeypatch.setattr(Metrics, "_text", lambda *_: 1 / 0)
    assert get(shown, "/metrics").status == 500
    assert "ZeroDivisionError" in capsys.readouterr().err
    monkeypatch.undo()
    assert get(shown, "/metrics").status == 200


def test_a_connection_that_is_reset_leaves_no_traceback(
    shown: ServedStatus, capsys: pytest.CaptureFixture[str]
) -> None:
    connection = socket.create_connection(("127.0.0.1", shown.port), timeout=10)
    connection.sendall(b"GET / HT")
    await_connections(shown, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() resets it
    connection.close()
    await_connections(shown, 0)
    assert capsys.readouterr().err == ""


def test_a_mirror_that_is_not_ready_says_so_to_supervisors_without_details() -> None:
    made_up = MadeUpMirror(3)
    with ServedStatus(made_up) as shown:
        snapshot = made_up.snapshot()
        away = replace(snapshot.sources[0], trouble="10.1.2.3 is away")
        shown.status.snapshot = replace(snapshot, sources=(away,))
        shown.status._take_snapshot = lambda: shown.status.snapshot
        answer = get(shown, "/readyz")
        assert (answer.status, answer.body) == (503, b"not ready\n")
        assert get(shown, "/healthz").status == 200
        assert get(shown, "/api/status").json["not_ready"] == "10.1.2.3 is away"


def test_supervisors_are_told_that_no_stream_is_at_work() -> None:
    made_up = MadeUpMirror(3)
    with ServedStatus(made_up) as shown:
        assert get(shown, "/readyz").body == b"ok\n"
        for figures in made_up.counts.streams.values():
            figures.left()
        answer = get(shown, "/readyz")
        assert (answer.status, answer.body) == (503, b"not ready: no stream is at work\n")
        assert get(shown, "/api/status").json["standing"] == "no stream is at work"


def test_an_address_that_is_taken_is_named(shown: ServedStatus) -> None:
    taken = StatusServer(StatusSettings("127.0.0.1", shown.port, None, 10), shown.status)
    with pytest.raises(MirrorError, match=rf"--status.address 127.0.0.1:{shown.port}: .*choose another"):
        asyncio.run(taken.open())


def test_a_mistake_of_ours_is_a_500_and_the_page_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up = MadeUpMirror(3)
    with ServedStatus(made_up) as shown:
        monkeypatch.setattr(shown.status, "_overview", lambda: 1 / 0)
        monkeypatch.setattr(shown.status, "_take_snapshot", lambda: 1 / 0)
        shown.status._kept.clear()
        assert get(shown, "/api/status").status == 500
        deadline = time.monotonic() + 5
        while capsys.readouterr().err.count("_take_snapshot") < 1:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        monkeypatch.undo()
        assert get(shown, "/api/status").status == 200
