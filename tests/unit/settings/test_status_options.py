"""The options of the status server, and JSON lines for programs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from mirrormaker.cli import call
from mirrormaker.console.display import Display
from mirrormaker.errors import SettingError
from mirrormaker.events.partition_events import LostRange, RangeLost
from mirrormaker.events.process_events import StreamBack
from mirrormaker.settings.status_options import status_settings
from mirrormaker.status.figures import Totals

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize("address", ["127.0.0.1:8080", "localhost:0", "[::1]:8080", "127.9.9.9:1"])
def test_loopback_needs_no_token(address: str) -> None:
    found = status_settings(address, None, 10)
    assert found is not None
    assert found.is_loopback


@pytest.mark.parametrize("address", ["0.0.0.0:8080", "[::]:8080", "10.0.0.1:8080", "mirror.example.com:8080"])
def test_any_other_address_needs_one(address: str) -> None:
    with pytest.raises(SettingError, match=r"--status.token is needed"):
        status_settings(address, None, 10)
    found = status_settings(address, TOKEN, 10)
    assert found is not None
    assert TOKEN not in repr(found)


@pytest.mark.parametrize("address", ["8080", "127.0.0.1", "127.0.0.1:99999", ":8080", "http://x:80", "a b:1", "::1:80"])
def test_what_is_no_address_is_named(address: str) -> None:
    with pytest.raises(SettingError, match="must be host:port"):
        status_settings(address, TOKEN, 10)


@pytest.mark.parametrize("token", ["short", "with blanks in the middle", "umlaut-äöü-0123456789"])
def test_a_weak_token_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(SettingError, match="at least 16 characters") as error:
        status_settings("127.0.0.1:80", token, 10)
    assert token not in str(error.value)


def test_a_token_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(SettingError, match="cannot be read"):
        status_settings("127.0.0.1:80", f"@{file}", 10)
    file.write_text(TOKEN + "\n")
    found = status_settings("127.0.0.1:80", f"@{file}", 10)
    assert found is not None
    assert found.token == TOKEN
    with pytest.raises(SettingError, match=r"without --status.address"):
        status_settings(None, f"@{file}", 10)


def test_mistakes_are_lines_for_machines_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "missing.properties")
    options = ["--consumer.config", missing, "--producer.config", missing, "--whitelist", "x"]
    assert call(["run", *options, "--log.format", "json"]) == 1
    line = json.loads(capsys.readouterr().err)
    assert line["kind"] == "error"
    assert missing in line["text"]
    assert call(["run", *options, "--log.format", "xml"]) == 1
    assert "--log.format xml: this must be text or json" in capsys.readouterr().err


def test_json_lines_hold_what_the_text_says_and_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    totals = Totals(records=10, bytes=1000, lag=5, partitions=1, flowing=1, waiting=0, stopped=0)
    display = Display(0.0, lambda: totals, as_json=True)
    display.show("source     here")
    display.report(RangeLost(LostRange("orders", 3, 1, 2, 2, is_exact=True)))
    display.tick()
    display.complain("it failed")
    start, lost, progress, error = map(json.loads, capsys.readouterr().err.splitlines())
    assert (start["kind"], start["text"]) == ("start", "source     here")
    assert (lost["kind"], lost["text"]) == (
        "lost",
        "LOST orders-3: source offsets 1 to 2 were gone before they were mirrored: 2 records",
    )
    assert lost["time"].endswith("Z")
    assert (progress["kind"], progress["lag"], progress["records"]) == ("progress", 5, 10)
    assert (error["kind"], error["text"]) == ("error", "it failed")


def test_progress_is_no_event() -> None:
    totals = Totals(records=10, bytes=1000, lag=5, partitions=1, flowing=1, waiting=0, stopped=0)
    output = io.StringIO()
    display = Display(0.0, lambda: totals, Console(file=output))
    display.tick()
    display.report(StreamBack(1))
    assert "10 records in total" in output.getvalue()
    assert [event.text for event in display.events.after(0)] == ["stream 1 is back"]
