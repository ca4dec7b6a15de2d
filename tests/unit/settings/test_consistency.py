"""Settings that depend on the command line and several files."""

from __future__ import annotations

import pytest

from mirrormaker.errors import SettingError
from mirrormaker.settings.clients import SourceSettings, TargetSettings, source_settings, target_settings
from mirrormaker.settings.consistency import combine
from mirrormaker.settings.options import RunOptions, parse
from mirrormaker.settings.properties import Properties
from mirrormaker.settings.properties import parse as lines


def options(*more: str) -> RunOptions:
    return parse(["--consumer.config", "c", "--producer.config", "p", *more])


def source(more: str = "", path: str = "c") -> SourceSettings:
    return source_settings(Properties(path, lines(f"bootstrap.servers=old:9092\ngroup.id=mirror\n{more}")))


def target(more: str = "") -> TargetSettings:
    return target_settings(Properties("p", lines(f"bootstrap.servers=new:9092\n{more}")))


def refusal(sources: list[SourceSettings], producer: TargetSettings, *argv: str) -> str:
    with pytest.raises(SettingError) as error:
        combine(options(*argv), sources, producer)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_groups_are_excluded_only_from_a_choice_of_groups() -> None:
    words = refusal([source()], target(), "--whitelist", "a", "--groups.exclude", "b")
    assert words.startswith("--groups.exclude needs --groups, or groups in a consumer file")
    excluding = options("--whitelist", "a", "--groups.exclude", "b")
    assert combine(excluding, [source(), source("groups=c")], target())[0].groups_exclude == "b"


def test_topics_of_the_file_count_where_no_option_names_any() -> None:
    combined, (found,), _ = combine(options(), [source("mirror.topics.whitelist=a,b")], target())
    assert (combined.include, combined.exclude) == ("a,b", None)
    assert found.notes == ()
    combined, _, _ = combine(options(), [source("mirror.topics.blacklist=a")], target())
    assert (combined.include, combined.exclude) == (None, "a")


@pytest.mark.parametrize("option", ["--whitelist", "--blacklist"])
def test_an_option_wins_over_the_file_and_a_note_says_so(option: str) -> None:
    combined, (found,), _ = combine(options(option, "x"), [source("mirror.topics.whitelist=a")], target())
    assert (combined.include or combined.exclude) == "x"
    assert found.notes == ("c: mirror.topics (a) is not used: --whitelist or --blacklist is given",)


def test_topics_must_be_named_somewhere() -> None:
    assert refusal([source()], target()).startswith("--whitelist REGEX is missing: name the topics")


def test_sources_must_agree_on_their_topics() -> None:
    one, two = source("mirror.topics.whitelist=a", "one"), source("mirror.topics.whitelist=b", "two")
    assert refusal([one, two], target()).startswith("one and two have different values of mirror.topics: ")
    assert "have different values" in refusal([one, source(path="two")], target())
    combined, _, _ = combine(options(), [one, source("mirror.topics.whitelist=a", "two")], target())
    assert combined.include == "a"
    combined, _, _ = combine(options("--include", "x"), [one, two], target())
    assert combined.include == "x"


def test_streams_of_the_file_count_where_no_option_says_how_many() -> None:
    file = source("mirror.consumer.numthreads=3")
    assert combine(options("--whitelist=x"), [file], target())[0].num_streams == 3
    combined, (found,), _ = combine(options("--whitelist=x", "--num.streams=1"), [file], target())
    assert combined.num_streams == 1
    assert found.notes == ("c: mirror.consumer.numthreads (3) is not used: --num.streams is given",)
    assert combine(options("--whitelist=x"), [source()], target())[0].num_streams == 1


@pytest.mark.parametrize("line", ["compression.codec=0", "compression.type=none"])
def test_shallow_wins_over_no_compression(line: str) -> None:
    shallow = source("shallow.iterator.enable=true")
    _, _, combined = combine(options("--whitelist=x"), [shallow], target(line))
    assert combined.codec is None
    assert combined.notes == (
        "c: shallow.iterator.enable=true forwards batches unchanged: compressed batches stay compressed, although p asks for"
        " no compression",
    )
    assert combine(options("--whitelist=x"), [source()], target(line))[2].codec == 0
    assert combine(options("--whitelist=x"), [shallow], target())[2] == target()


def test_shallow_batches_do_not_wait_for_others() -> None:
    _, _, combined = combine(
        options("--whitelist=x"), [source("shallow.iterator.enable=true")], target("queue.time=1000")
    )
    assert combined.linger == 0
    assert combined.notes == (
        "c: shallow.iterator.enable=true forwards batches unchanged: they do not wait for others, although p has linger.ms",
    )
    assert combine(options("--whitelist=x"), [source()], target("queue.time=1000"))[2].linger == 1.0


def test_shallow_and_another_codec_contradict_each_other() -> None:
    said = refusal([source("shallow.iterator.enable=true")], target("compression.codec=1"), "--whitelist=x")
    assert said.endswith("but p asks for gzip: remove shallow.iterator.enable or compression.type")


def test_one_of_two_sources_cannot_be_shallow_if_the_target_unpacks() -> None:
    sources = [source("shallow.iterator.enable=true", "one"), source(path="two")]
    assert "two does not have it" in refusal(sources, target("compression.type=none"), "--whitelist=x")
    combine(options("--whitelist=x"), sources, target())


PLAIN = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=a.PlainLoginModule required username=a password=b;"
ON_ITS_WAY = (
    "--spark.master spark://m:7077: passwords and keys go to the executors over Spark's connections, which are not encrypted by"
    " default; set spark.authenticate and spark.network.crypto.enabled"
)


@pytest.mark.parametrize(
    ("argv", "login", "expected"),
    [
        (["--spark.master", "spark://m:7077"], PLAIN, [ON_ITS_WAY]),
        (["--spark.master", "spark://m:7077"], "", []),
        (["--spark.master", "local[4]"], PLAIN, []),
        ([], PLAIN, []),
        (["--spark.master", "spark://m:7077", "--spark.conf", "spark.network.crypto.enabled=true"], PLAIN, []),
        (["--spark.master", "spark://m:7077", "--spark.conf", "spark.ssl.rpc.enabled=true"], PLAIN, []),
        (
            ["--spark.master", "spark://m:7077", "--spark.conf", "spark.network.crypto.enabled=false"],
            PLAIN,
            [ON_ITS_WAY],
        ),
    ],
)
def test_secrets_that_go_to_a_spark_cluster_unencrypted_are_noted(
    argv: list[str], login: str, expected: list[str]
) -> None:
    for one, other in ((login, ""), ("", login)):
        _, _, found = combine(options("--whitelist", "x", *argv), [source(one)], target(other))
        assert list(found.notes) == expected
