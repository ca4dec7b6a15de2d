"""The user's choice of groups: the command line, the consumer file, and mistakes in both."""

from __future__ import annotations

import pytest

from mirrormaker.errors import SettingError
from mirrormaker.groups.choice import GroupChoice
from mirrormaker.settings.group_settings import GroupSettings

NAMES = ("billing", "connect-sink", "console-consumer-1", "__internal")


@pytest.mark.parametrize(
    ("include", "exclude", "file", "chosen"),
    [
        (".*", None, GroupSettings(), ["billing"]),
        (".*", "", GroupSettings(), list(NAMES)),
        (".*", "", GroupSettings(exclude="billing"), list(NAMES)),
        (".*", None, GroupSettings(exclude=""), list(NAMES)),
        (".*", "billing, __.*", GroupSettings(), ["connect-sink", "console-consumer-1"]),
        (None, None, GroupSettings(include="b.*,c"), ["billing"]),
        ("connect-.*", None, GroupSettings(exclude="x"), ["connect-sink"]),
    ],
)
def test_an_option_replaces_the_file_and_an_empty_exclusion_leaves_out_none(
    include: str | None, exclude: str | None, file: GroupSettings, chosen: list[str]
) -> None:
    choice = GroupChoice.from_settings(include, exclude, file)
    assert choice is not None
    assert [name for name in NAMES if choice(name)] == chosen


def test_without_a_choice_there_are_no_groups() -> None:
    assert GroupChoice.from_settings(None, None, GroupSettings()) is None


@pytest.mark.parametrize(
    ("include", "exclude", "file", "words"),
    [
        ("b(c", None, GroupSettings(), "--groups 'b(c': "),
        ("b", "[x", GroupSettings(), "--groups.exclude '[x': "),
        (None, None, GroupSettings(include="a)(b", path="c.properties"), "c.properties: groups=a)(b: "),
        ("a", None, GroupSettings(exclude="*", path="c.properties"), "c.properties: groups.exclude=*: "),
    ],
)
def test_a_mistake_is_named_with_its_place_and_no_position(
    include: str | None, exclude: str | None, file: GroupSettings, words: str
) -> None:
    with pytest.raises(SettingError) as error:
        GroupChoice.from_settings(include, exclude, file)
    assert str(error.value).startswith(f"{words}this must be regular expressions, separated by commas: ")
    assert "position" not in str(error.value)


@pytest.mark.parametrize("include", ["", " ", ","])
def test_a_choice_of_no_group_is_a_mistake(include: str) -> None:
    with pytest.raises(SettingError, match="this names no group"):
        GroupChoice.from_settings(include, None, GroupSettings(include="a"))
