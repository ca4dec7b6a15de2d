"""The options of `mirrormaker run`: every option in every spelling, and errors as one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.cli import call
from mirrormaker.errors import SettingError
from mirrormaker.settings.command_line import Option
from mirrormaker.settings.options import OPTIONS, RunOptions, parse

MINIMAL = ["--consumer.config", "c", "--producer.config", "p", "--whitelist", "x"]


def options(*argv: str) -> RunOptions:
    return parse(argv)


def refusal(*argv: str) -> str:
    with pytest.raises(SettingError) as error:
        options(*argv)
    assert "\n" not in str(error.value)
    assert error.value.is_option
    return str(error.value)


# -- spellings


def test_the_least_that_must_be_said() -> None:
    found = options(*MINIMAL)
    assert (found.consumer_config, found.producer_config, found.include, found.exclude) == (("c",), "p", "x", None)
    assert (found.num_streams, found.num_producers, found.queue_size) == (1, 1, None)
    assert (found.commit_interval, found.exit_when_caught_up, found.accept_new_target) == (1.0, False, False)
    assert (found.spark_master, found.spark_conf, found.log_file) == (None, (), None)


@pytest.mark.parametrize("name", ["--whitelist", "--white-list", "--include"])
@pytest.mark.parametrize("joined", [False, True])
def test_every_spelling_of_what_to_mirror(name: str, joined: bool) -> None:
    given = [f"{name}=a,b"] if joined else [name, "a,b"]
    assert options("--consumer.config", "c", "--producer.config", "p", *given).include == "a,b"


@pytest.mark.parametrize("name", ["--blacklist", "--exclude"])
@pytest.mark.parametrize("joined", [False, True])
def test_every_spelling_of_what_not_to_mirror(name: str, joined: bool) -> None:
    given = [f"{name}=a,b"] if joined else [name, "a,b"]
    assert options("--consumer.config", "c", "--producer.config", "p", *given).exclude == "a,b"


@pytest.mark.parametrize(
    ("name", "value", "field", "found"),
    [
        ("--num.streams", "4", "num_streams", 4),
        ("--num.producers", "2", "num_producers", 2),
        ("--queue.size", "10000", "queue_size", 10_000),
        ("--offset.commit.interval.ms", "60000", "commit_interval", 60.0),
        ("--progress.interval.ms", "500", "progress_interval", 0.5),
        ("--spark.master", "spark://host:7077", "spark_master", "spark://host:7077"),
        ("--spark.conf", "spark.a=b=c", "spark_conf", (("spark.a", "b=c"),)),
        ("--log.file", "spark.log", "log_file", "spark.log"),
    ],
)
@pytest.mark.parametrize("joined", [False, True])
def test_every_option_with_a_value(name: str, value: str, field: str, found: object, joined: bool) -> None:
    given = [f"{name}={value}"] if joined else [name, value]
    assert getattr(options(*MINIMAL, *given), field) == found


@pytest.mark.parametrize(
    ("name", "field"), [("--exit.when.caught.up", "exit_when_caught_up"), ("--accept.new.target", "accept_new_target")]
)
def test_every_switch(name: str, field: str) -> None:
    assert getattr(options(*MINIMAL, name), field) is True


def test_several_sources_are_given_one_by_one() -> None:
    assert options(*MINIMAL, "--consumer.config=d", "--consumer.config", "e").consumer_config == ("c", "d", "e")


@pytest.mark.parametrize("name", ["--abort.on.send.failure", "--abort.on.send.fail", "--abortOnSendFail"])
@pytest.mark.parametrize("value", [[], ["true"], ["TRUE"]])
def test_stopping_at_a_refused_record_may_be_said_in_every_way_there_ever_was(name: str, value: list[str]) -> None:
    options(*MINIMAL, name, *value)


@pytest.mark.parametrize("name", ["--new.consumer", "--new.producer"])
def test_switches_of_old_versions_are_accepted(name: str) -> None:
    assert options(*MINIMAL, name) == options(*MINIMAL)


# -- mistakes


def test_nothing_is_guessed_from_the_beginning_of_a_name() -> None:
    assert "--num.str" in refusal(*MINIMAL, "--num.str", "4")


@pytest.mark.parametrize(
    ("argv", "missing"),
    [
        (["--producer.config", "p", "--whitelist", "x"], "--consumer.config FILE is missing"),
        (["--consumer.config", "c", "--whitelist", "x"], "--producer.config FILE is missing"),
        (
            ["--consumer.config", "c", "--producer.config", "p", "--whitelist", " "],
            "--whitelist ' ': this names no topic",
        ),
        (["--consumer.config", "c", "--producer.config", "p", "--exclude="], "--blacklist '': this names no topic"),
        ([], "--consumer.config FILE is missing"),
    ],
)
def test_what_is_missing_is_named(argv: list[str], missing: str) -> None:
    assert refusal(*argv).startswith(missing)


def test_taking_and_leaving_out_at_once_is_a_contradiction() -> None:
    assert "contradict each other" in refusal(*MINIMAL, "--blacklist", "y")
    assert "contradict each other" in refusal(*MINIMAL, "--exclude", "y")


@pytest.mark.parametrize(
    ("name", "value"),
    [("--num.streams", "0"), ("--num.producers", "-1"), ("--queue.size", "0"), ("--offset.commit.interval.ms", "0")],
)
def test_a_number_that_is_too_small_is_named(name: str, value: str) -> None:
    assert refusal(*MINIMAL, f"{name}={value}") == f"{name} {value}: this must be at least 1"


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.type is int], ids=lambda o: o.names[0])
def test_a_number_that_is_none_is_named(option: Option) -> None:
    name = "/".join(option.names)
    assert refusal(*MINIMAL, option.names[0], "many") == f"{name} many: this must be a whole number"


def test_a_value_that_is_missing_is_named() -> None:
    assert refusal(*MINIMAL, "--num.streams") == "--num.streams: a value is missing"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--num-streams", "4"], "--num-streams: there is no such option; did you mean --num.streams?"),
        (["--num-streams=4"], "--num-streams: there is no such option; did you mean --num.streams?"),
        (["--quite.another", "secret"], "--quite.another: there is no such option"),
        (["--quite.another=secret"], "--quite.another: there is no such option"),
        (["orders"], "orders: this belongs to no option"),
    ],
)
def test_an_unknown_option_is_named_with_the_one_that_was_meant(given: list[str], words: str) -> None:
    assert refusal(*MINIMAL, *given) == words


def test_what_happens_to_a_refused_record_is_for_the_user_to_say() -> None:
    assert "must be true or false" in refusal(*MINIMAL, "--abort.on.send.failure=maybe")
    assert "--abort.on.send.failure false" in refusal(*MINIMAL, "--undelivered.file=x")


@pytest.mark.parametrize("option", ["--message.handler", "--rebalance.listener"])
def test_arguments_need_something_that_takes_them(option: str) -> None:
    assert refusal(*MINIMAL, f"{option}.args", "x").startswith(f"{option}.args needs --")


@pytest.mark.parametrize("pair", ["a=b", "spark.a", "=b", ""])
def test_a_spark_setting_that_is_none_is_named(pair: str) -> None:
    assert refusal(*MINIMAL, f"--spark.conf={pair}") == f"--spark.conf {pair}: this must be spark.something=value"


# -- the table


def test_no_name_means_two_things() -> None:
    names = [name for option in OPTIONS for name in option.names]
    assert len(names) == len(set(names))
    assert len({option.attribute for option in OPTIONS}) == len(OPTIONS)


def test_every_option_of_every_version_of_the_original_is_there() -> None:
    """As --help of 0.7.2, 0.8.2.2, 0.9.0.1, 0.10.2.2, 1.0.0, 2.0.1 and 3.9.2 lists them."""
    names = {name for option in OPTIONS for name in option.names}
    assert names >= {
        "--abort.on.send.failure", "--blacklist", "--consumer.config", "--consumer.rebalance.listener", "--include",
        "--message.handler", "--message.handler.args", "--new.consumer", "--new.producer", "--num.producers", "--num.streams",
        "--offset.commit.interval.ms", "--producer.config", "--queue.size", "--rebalance.listener.args", "--whitelist",
    }  # fmt: skip


def test_help_tells_of_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        call(["run", "--help"])
    assert end.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for option in OPTIONS:
        for name in option.names:
            assert name in shown
        assert option.full_help in shown
        if option.default is not None:
            assert f"Default: {option.default}" in option.full_help
    assert "exit codes:" in shown


# -- as the user meets it


def complaint(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Return the one line on stderr, after exit code 1."""
    assert call(list(argv)) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("mirrormaker: ")
    assert shown.err.count("\n") == 1
    assert "Traceback" not in shown.err
    return shown.err.strip()


@pytest.mark.parametrize(
    "argv",
    [
        ["run"],
        ["run", "--bogus"],
        ["run", *MINIMAL, "--num.streams", "x"],
        ["run", *MINIMAL, "--num.streams"],
        ["run", *MINIMAL, "stray"],
        ["run", *MINIMAL, "--message.handler", "x"],
        ["bogus"],
        ["--bogus"],
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    complaint(capsys, *argv)


@pytest.mark.parametrize(
    "more",
    [
        ["--num.streams=0"],
        ["--num.streams=x"],
        ["--num.streams"],
        ["--bogus"],
        ["--blacklist=y"],
        ["--abort.on.send.failure=maybe"],
        ["--undelivered.file=x"],
        ["--message.handler.args=x"],
        ["--message.handler=x"],
        ["--spark.conf=x"],
        ["--consumer.config=nowhere"],
        ["--whitelist=y"],
    ],
)
def test_a_wrong_option_ends_in_where_to_find_help(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more: list[str]
) -> None:
    (tmp_path / "c").write_text("bootstrap.servers=old:9092\ngroup.id=mirror\n")
    (tmp_path / "p").write_text("bootstrap.servers=new:9092\n")
    files = ["--consumer.config", str(tmp_path / "c"), "--producer.config", str(tmp_path / "p"), "--whitelist=x"]
    said = complaint(capsys, "run", *files, *more)
    assert said.endswith(" (see mirrormaker run --help)")
    assert said.count("--help") == 1


def test_topics_are_missing_only_when_the_files_do_not_name_them_either(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "c").write_text("bootstrap.servers=old:9092\ngroup.id=mirror\n")
    (tmp_path / "p").write_text("bootstrap.servers=new:9092\n")
    said = complaint(capsys, "run", "--consumer.config", str(tmp_path / "c"), "--producer.config", str(tmp_path / "p"))
    assert said.startswith("mirrormaker: --whitelist REGEX is missing: name the topics")
    assert said.endswith(" (see mirrormaker run --help)")


def test_files_are_looked_at_before_anything_is_started(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    good, bad, none = tmp_path / "good", tmp_path / "bad", tmp_path / "none"
    good.write_text("bootstrap.servers=old:9092\ngroup.id=mirror\n")
    bad.write_text("\nbootstrap.servers=new-9092\n")
    files = ["--consumer.config", str(good), "--producer.config"]
    assert f"{none}: no such file" in complaint(capsys, "run", *files, str(none), "--whitelist", "x")
    said = complaint(capsys, "run", *files, str(bad), "--whitelist", "x")
    assert said == (
        f"mirrormaker: {bad}, line 2: bootstrap.servers=new-9092: 'new-9092' has a dash where the colon belongs;"
        " write new:9092"
    )


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert call([]) == 1
    assert "mirrormaker demo" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["--version"], ["run", "--version"], ["offsets", "--version"]])
def test_the_version_is_told(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        call(argv)
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("mirrormaker 0.")
