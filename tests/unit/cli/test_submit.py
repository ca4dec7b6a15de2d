"""`mirrormaker submit` up to the spark-submit line: nothing is started here."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path

import pytest

from mirrormaker.cli import call

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for name in ("core-site.xml", "yarn-site.xml"):
        (tmp_path / name).write_text("<configuration/>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    # Packing the real libraries takes seconds.
    (tmp_path / "libraries.tar.gz").touch()
    monkeypatch.setattr("mirrormaker.spark.shipping.libraries_path", lambda names: tmp_path / "libraries.tar.gz")
    (tmp_path / "source.properties").write_text("bootstrap.servers=a:9092\ngroup.id=g\n")
    (tmp_path / "target.properties").write_text("bootstrap.servers=b:9092\n")
    monkeypatch.chdir(tmp_path)
    return ["--consumer.config", "source.properties", "--producer.config", "target.properties", "--whitelist", "a b|c"]


def dry_run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    code = call(["submit", "--dry.run", "sent", *arguments])
    output = capsys.readouterr()
    assert code == 0, output.err
    return shlex.split(output.out.replace("\\\n", " "))


def test_on_yarn_the_line_has_bare_names_and_no_secret(
    files: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = dry_run(
        capsys, "--spark.master", "yarn", *files, "--num.streams", "3", "--exit.when.caught.up",
        "--status.address", "0.0.0.0:8080", "--status.token", TOKEN, "--spark.conf", "spark.yarn.queue=q",
        "--spark.conf", "spark.authenticate.secret=geheim", "--spark.conf", "spark.executor.instances=7",
    )  # fmt: skip
    assert line[:5] == ["spark-submit", "--master", "yarn", "--deploy-mode", "cluster"]
    settings = dict(word.split("=", 1) for before, word in itertools.pairwise(line) if before == "--conf")
    assert settings["spark.yarn.queue"] == "q"
    assert settings["spark.executor.instances"] == "7", "the user's own value counts"
    assert settings["spark.yarn.submit.waitAppCompletion"] == "false"
    main = next(number for number, word in enumerate(line) if word.endswith("mirrormaker_main.py"))
    assert line[main + 1 :] == [
        "run", "--consumer.config", "source.properties", "--producer.config", "target.properties", "--status.token",
        "@status-token", "--whitelist", "a b|c", "--exit.when.caught.up", "--num.streams", "3",
        "--status.address", "0.0.0.0:8080",
    ]  # fmt: skip
    assert not {TOKEN, "geheim"} & set(shlex.split(" ".join(line).replace("=", " ")))
    sent = tmp_path / "sent"
    assert "spark.authenticate.secret=geheim" in Path(line[line.index("--properties-file") + 1]).read_text()
    assert (sent / "secret.conf").stat().st_mode & 0o777 == 0o600
    assert (sent / "files" / "status-token").read_text() == TOKEN
    assert sent.stat().st_mode & 0o777 == 0o700


def test_a_standalone_master_keeps_the_driver_here(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    line = dry_run(capsys, "--spark.master", "spark://host:7077", *files)
    assert line[:5] == ["spark-submit", "--master", "spark://host:7077", "--deploy-mode", "client"]
    assert "--files" not in line
    assert Path(line[line.index("--consumer.config") + 1]).is_absolute()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--spark.master", "spark://h:1", "--deploy.mode", "cluster"], "runs no Python driver; keep the driver on"),
        (["--spark.master", "local[2]"], "use mirrormaker run instead"),
        ([], "--spark.master is missing"),
        (["--spark.master", "yarn", "--deploy.mode", "x"], "must be cluster or client"),
        (["--spark.master", "yarn", "--log.file", "x"], "yarn logs"),
        (["--spark.master", "yarn", "--abort.on.send.failure", "false"], "absolute path"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(
    files: list[str], capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert call(["submit", *arguments, *files]) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_without_hadoops_configuration_nothing_is_submitted(
    files: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR")
    for command in ("submit", "run"):
        assert call([command, "--spark.master", "yarn", *files]) == 1
        error = capsys.readouterr().err
        assert "HADOOP_CONF_DIR is not set" in error
        assert error.count("\n") == 1
