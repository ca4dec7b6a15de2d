"""The public names: frozen, typed, and light to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mirrormaker
from mirrormaker.errors import SettingError
from mirrormaker.settings.call_arguments import run_settings

SOURCE = {"bootstrap.servers": "old:9092", "group.id": "mirror"}
TARGET = {"bootstrap.servers": "new:9092"}


def test_the_public_names_are_these_and_no_others() -> None:
    assert sorted(mirrormaker.__all__) == [
        "Mirror", "MirrorError", "MirrorStatus", "SettingError", "Settings", "Translation", "Verdict", "__version__", "mirror",
        "offset_map", "read", "translate", "verify",
    ]  # fmt: skip
    public = {name for name in vars(mirrormaker) if not name.startswith("_")}
    modules = {name for name in public if type(getattr(mirrormaker, name)).__name__ == "module"}
    assert public - modules == set(mirrormaker.__all__) - {"__version__"}


def test_importing_the_package_loads_no_spark_and_no_arrow() -> None:
    script = (
        "import sys, mirrormaker\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'pandas', 'kafka', 'rich'} & {name.split('.')[0] for name in sys.modules}\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_users_script_passes_mypy_strict(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "from pathlib import Path\n"
        "\n"
        "import mirrormaker\n"
        "\n"
        "\n"
        "def migrate(topics: list[str]) -> int:\n"
        "    source = {'bootstrap.servers': 'old:9092', 'group.id': 'mirror'}\n"
        "    with mirrormaker.mirror(source, Path('target.properties'), topics, until_caught_up=True) as running:\n"
        "        status: mirrormaker.MirrorStatus = running.wait(timeout=60.0)\n"
        "    verdict = mirrormaker.verify(source, 'target.properties', topics)\n"
        "    places: list[mirrormaker.Translation] = mirrormaker.translate(source, 'target.properties', 'orders', {0: 1234})\n"
        "    assert all(place.is_exact for place in places)\n"
        "    return status.records if verdict.is_same and status.caught_up else verdict.exit_code\n"
        "\n"
        "\n"
        "wrong: int = mirrormaker.mirror('a', 'b', 'c').status().records\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout


def test_a_users_mistake_is_a_type_error_for_mypy(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("import mirrormaker\n\nmirrormaker.mirror('a', 'b', 'c').status().recrods\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "recrods" in done.stdout


def test_arguments_become_the_options_of_run() -> None:
    options, sources, target = run_settings(
        SOURCE, TARGET, ["orders", "clicks"], 3, True, None, {"offset.commit.interval.ms": "250"}
    )
    assert (options.include, options.num_streams, options.exit_when_caught_up) == ("orders|clicks", 3, True)
    assert options.commit_interval == 0.25
    assert [source.group_id for source in sources] == ["mirror"]
    assert str(target.endpoint) == "new:9092"


def test_a_function_may_be_the_handler() -> None:
    def shout(record: object) -> object:
        return record

    options, _, _ = run_settings(SOURCE, TARGET, "orders", 2, False, shout, {})
    assert options.handler_object is shout
    assert options.message_handler == (f"{__name__}:test_a_function_may_be_the_handler.<locals>.shout", None)


@pytest.mark.parametrize(
    ("source", "target", "more", "words"),
    [
        ({"group.id": "mirror"}, TARGET, {}, "bootstrap.servers"),
        (SOURCE, {**TARGET, "acks": "7"}, {}, "acks"),
        (SOURCE, TARGET, {"no.such.option": "1"}, "no.such.option"),
        ("no-such-file", TARGET, {}, "no-such-file"),
    ],
)
def test_a_mistake_is_a_setting_error_that_names_it(
    source: mirrormaker.Settings, target: mirrormaker.Settings, more: dict[str, str], words: str
) -> None:
    with pytest.raises(SettingError, match=words):
        mirrormaker.mirror(source, target, "orders", options=more)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "either offsets or group"),
        ({"offsets": {0: 1}, "group": "billing"}, "either offsets or group"),
        ({"offsets": [(0, 5), (1, -1)]}, "partition 1, offset -1: these must not be negative"),
        ({"offsets": {0: 2**63}}, "offset 9223372036854775808: these must not be negative, nor above"),
        ({"offsets": {"a": 1}}, r"\('a', 1\) in offsets: these must be partitions and offsets, for example {0: 1234}"),
        ({"offsets": [(0, 1, 2)]}, "these must be partitions and offsets"),
        ({"offsets": "0:1"}, "these must be partitions and offsets"),
        ({"offsets": 5}, "offsets=5: these must be partitions and offsets"),
    ],
)
def test_translate_wants_offsets_or_a_group(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        mirrormaker.translate(SOURCE, TARGET, "orders", **arguments)
