"""What the command line and several files say together."""

from __future__ import annotations

import pytest

from mirrormaker.errors import SettingError
from mirrormaker.settings.clients import SourceSettings, TargetSettings, source_settings, target_settings
from mirrormaker.settings.consistency import settle
from mirrormaker.settings.options import Parser, RunOptions, add_options, parse
from mirrormaker.settings.properties import Properties
from mirrormaker.settings.properties import parse as lines


def options(*more: str) -> RunOptions:
    parser = Parser(prog="mirrormaker run", allow_abbrev=False)
    add_options(parser)
    return parse(parser, ["--consumer.config", "c", "--producer.config", "p", *more])


def source(more: str = "", path: str = "c") -> SourceSettings:
    return source_settings(Properties(path, lines(f"bootstrap.servers=old:9092\ngroup.id=mirror\n{more}")))


def target(more: str = "") -> TargetSettings:
    return target_settings(Properties("p", lines(f"bootstrap.servers=new:9092\n{more}")))


def refusal(sources: list[SourceSettings], producer: TargetSettings, *argv: str) -> str:
    with pytest.raises(SettingError) as error:
        settle(options(*argv), sources, producer)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_topics_of_the_file_count_where_no_option_names_any() -> None:
    settled, (found,), _ = settle(options(), [source("mirror.topics.whitelist=a,b")], target())
    assert (settled.include, settled.exclude) == ("a,b", None)
    assert found.notes == ()
    settled, _, _ = settle(options(), [source("mirror.topics.blacklist=a")], target())
    assert (settled.include, settled.exclude) == (None, "a")


@pytest.mark.parametrize("option", ["--whitelist", "--blacklist"])
def test_an_option_wins_over_the_file_and_a_note_says_so(option: str) -> None:
    settled, (found,), _ = settle(options(option, "x"), [source("mirror.topics.whitelist=a")], target())
    assert (settled.include or settled.exclude) == "x"
    assert found.notes == ("c: mirror.topics (a) is not used: --whitelist or --blacklist is given",)


def test_topics_must_be_named_somewhere() -> None:
    assert refusal([source()], target()).startswith("--whitelist REGEX is missing: which topics?")


def test_sources_must_agree_on_their_topics() -> None:
    one, two = source("mirror.topics.whitelist=a", "one"), source("mirror.topics.whitelist=b", "two")
    assert refusal([one, two], target()).startswith("one and two do not say the same in mirror.topics: ")
    assert "do not say the same" in refusal([one, source(path="two")], target())
    settled, _, _ = settle(options(), [one, source("mirror.topics.whitelist=a", "two")], target())
    assert settled.include == "a"
    settled, _, _ = settle(options("--include", "x"), [one, two], target())
    assert settled.include == "x"


def test_streams_of_the_file_count_where_no_option_says_how_many() -> None:
    file = source("mirror.consumer.numthreads=3")
    assert settle(options("--whitelist=x"), [file], target())[0].num_streams == 3
    settled, (found,), _ = settle(options("--whitelist=x", "--num.streams=1"), [file], target())
    assert settled.num_streams == 1
    assert found.notes == ("c: mirror.consumer.numthreads (3) is not used: --num.streams is given",)
    assert settle(options("--whitelist=x"), [source()], target())[0].num_streams == 1


@pytest.mark.parametrize("line", ["compression.codec=0", "compression.type=none"])
def test_shallow_wins_over_no_compression(line: str) -> None:
    shallow = source("shallow.iterator.enable=true")
    _, _, settled = settle(options("--whitelist=x"), [shallow], target(line))
    assert settled.codec is None
    assert settled.notes == (
        "c: shallow.iterator.enable=true forwards batches as they are: compressed ones stay compressed, though p says none",
    )
    assert settle(options("--whitelist=x"), [source()], target(line))[2].codec == 0
    assert settle(options("--whitelist=x"), [shallow], target())[2] == target()


def test_shallow_batches_do_not_wait_for_others() -> None:
    _, _, settled = settle(
        options("--whitelist=x"), [source("shallow.iterator.enable=true")], target("queue.time=1000")
    )
    assert settled.linger == 0
    assert settled.notes == (
        "c: shallow.iterator.enable=true forwards batches as they are: they do not wait for others, though p has linger.ms",
    )
    assert settle(options("--whitelist=x"), [source()], target("queue.time=1000"))[2].linger == 1.0


def test_shallow_and_another_codec_contradict_each_other() -> None:
    said = refusal([source("shallow.iterator.enable=true")], target("compression.codec=1"), "--whitelist=x")
    assert said.endswith("and p asks for gzip: remove shallow.iterator.enable or compression.type")


def test_one_of_two_sources_cannot_be_shallow_if_the_target_unpacks() -> None:
    sources = [source("shallow.iterator.enable=true", "one"), source(path="two")]
    assert "two does not say it" in refusal(sources, target("compression.type=none"), "--whitelist=x")
    settle(options("--whitelist=x"), sources, target())
