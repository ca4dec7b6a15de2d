"""`mirrormaker settings`, and the page that is generated from the same table."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.cli import call
from mirrormaker.settings.keys import SIDES
from mirrormaker.settings.options import OPTIONS
from mirrormaker.settings.reference_tables import update_tables

ROOT = Path(__file__).parents[3]
SEEDS = ROOT / "tests" / "compat" / "seeds"


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys: pytest.CaptureFixture[str], *argv: object, code: int = 0) -> str:
    assert call(["settings", *map(str, argv)]) == code
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.startswith((" ", "-"))]  # the others are whole messages
    assert all(len(line) <= 80 for line in lines)
    return " ".join(out.split())


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_each_line_is_shown_with_its_meaning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SEEDS)
    out = shown(capsys, "hdp-consumer.properties", "hdp-producer.properties")
    assert "hdp-consumer.properties: a consumer file, for the source cluster" in out
    assert "hdp-producer.properties: a producer file, for the target cluster" in out
    assert (
        "4 groupid=dp-MirrorMaker-test-datapl = group.id=dp-MirrorMaker-test-datapl The consumer group whose committed offsets"
        in out
    )
    assert "3 compression.codec=0 = compression.type=none" in out
    assert "7 queue.enqueueTimeout.ms=-1 No effect. Records are never dropped" in out
    assert "compressed batches stay compressed" in out
    assert "ERROR" not in out


def test_mistakes_are_shown_where_they_are_and_the_exit_code_is_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = write(
        tmp_path / "c", "bootstrap.servers=a:1\ngroup.id=g\nfetch.size=big\nfavourite.colour=blue\nfetch.siz=1\n"
    )
    out = shown(capsys, file, code=1)
    assert "3 fetch.size=big ERROR: this must be a whole number of bytes from 1024 to 2147483647" in out
    assert "4 favourite.colour=blue is not known" in out
    assert "5 fetch.siz=1 is not known; did you mean fetch.size?" in out
    assert "2 group.id=g The consumer group whose" in out, "the other lines are shown all the same"


def test_what_is_missing_is_shown_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = write(tmp_path / "c", "bootstrap.servers=a:1\n")
    assert "ERROR:" in (out := shown(capsys, "--consumer.config", file, code=1))
    assert "group.id is missing" in out
    assert "no such file or directory" in shown(capsys, tmp_path / "none", "--producer.config", file, code=1)


def test_a_line_that_counts_no_more_is_called_that(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = write(tmp_path / "c", "bootstrap.servers=a:1\ngroup.id=g\ngroup.id=h\n")
    assert "2 group.id=g is given again in line 3, which counts" in shown(capsys, file)


def test_what_two_lines_say_together_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = write(tmp_path / "c", "bootstrap.servers=a:1\ngroup.id=g\nzk.connect=zk:2181\n")
    assert "the brokers of bootstrap.servers are used" in shown(capsys, file)
    file = write(tmp_path / "c", "bootstrap.servers=a:1\ngroup.id=g\ngroupid=h\n")
    assert "group.id=g (line 2) and groupid=h (line 3) are one setting with two values" in shown(capsys, file, code=1)


def test_secrets_are_never_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = write(
        tmp_path / "c",
        "bootstrap.servers=a:1\ngroup.id=g\nssl.keystore.password=hush\nsasl.jaas.config=x required \\\n  password=hush;\n"
        "my.token=hush\nrequired username=u password=hush\n",
    )
    out = shown(capsys, file)
    assert "hush" not in out
    assert out.count("[hidden]") == 4


def test_a_login_that_cannot_be_used_is_a_mistake_and_one_that_can_is_shown_by_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = "bootstrap.servers=a:1\ngroup.id=g\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
    login = "sasl.jaas.config=a.PlainLoginModule required username=ann password=hush;\n"
    assert "ERROR" in shown(capsys, write(tmp_path / "c", text), code=1)
    out = shown(capsys, write(tmp_path / "c", text + login))
    assert "logs in as user ann" in out
    assert "hush" not in out


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("bootstrap.servers=a:1\ngroup.id=g\n", "consumer"),
        ("zk.connect=a:1\ngroupid=g\n", "consumer"),
        ("bootstrap.servers=a:1\n", "producer"),
        ("bootstrap.servers=a:1\nacks=all\n", "producer"),
        ("bootstrap.servers=a:1\nacks=all\nlinger.ms=1\ngroup.id=g\n", "producer"),
    ],
)
def test_the_side_is_found_from_the_keys(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, side: str
) -> None:
    assert f": a {side} file" in shown(capsys, write(tmp_path / "f", text))


def test_defaults_are_shown_when_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = write(tmp_path / "p", "bootstrap.servers=a:1\nlinger.ms=5\n")
    assert "max.request.size" not in shown(capsys, file)
    out = shown(capsys, file, "--all")
    assert "- max.request.size=8388608 The size of the largest request." in out
    assert "linger.ms=0" not in out


def test_without_a_file_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["settings"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("mirrormaker: no file is named; write mirrormaker settings ")
    assert error.endswith(" (see mirrormaker settings --help)\n")


def test_the_page_is_as_the_code_has_it() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert update_tables(page) == page, "run python -m mirrormaker.settings.reference_tables docs/compatibility.md"
    for name in [name for keys in SIDES.values() for key in keys for name in key.names]:
        assert f"`{name}`" in page
    for option in OPTIONS:
        assert all(f"`{name}`" in page for name in option.names)


def test_a_page_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="the page has no place for options"):
        update_tables("nothing")
