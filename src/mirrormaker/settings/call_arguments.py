"""The arguments of the Python API as settings, through the same checks as the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

from mirrormaker.errors import SettingError
from mirrormaker.settings import options as run_options
from mirrormaker.settings import properties
from mirrormaker.settings.clients import SourceSettings, TargetSettings, source_settings, target_settings
from mirrormaker.settings.consistency import combine
from mirrormaker.settings.options import RunOptions
from mirrormaker.settings.properties import PropertiesLike


def run_settings(
    source: PropertiesLike | Sequence[PropertiesLike],
    target: PropertiesLike,
    topics: str | Sequence[str],
    streams: int,
    until_caught_up: bool,
    handler: str | Callable[[Any], Any] | None,
    more: Mapping[str, str | bool],
) -> tuple[RunOptions, list[SourceSettings], TargetSettings]:
    """Turn the arguments of `mirror` into those that the driver takes, through the same checks as the command line."""
    words = ["--consumer.config", "source", "--producer.config", "target", "--include", pattern(topics)]
    words += ["--num.streams", str(streams)]
    if until_caught_up:
        words.append("--exit.when.caught.up")
    if isinstance(handler, str):
        words += ["--message.handler", handler]
    for name, value in more.items():
        option = f"--{name.removeprefix('--')}"
        words += [option, value] if isinstance(value, str) else [option] if value else []
    checked = run_options.parse(words)
    if handler is not None and not isinstance(handler, str):
        if not callable(handler):
            raise SettingError(f"handler={handler!r}: this must be a function or package.module:name")
        name = f"{handler.__module__}:{getattr(handler, '__qualname__', type(handler).__qualname__)}"
        checked = replace(checked, message_handler=(name, None), handler_object=handler)
    sources = [source_settings(properties.load(each, "source"), checked.login_files) for each in many(source)]
    producer = target_settings(properties.load(target, "target"), checked.login_files)
    return combine(checked, sources, producer)


def many(source: PropertiesLike | Sequence[PropertiesLike]) -> list[PropertiesLike]:
    """Return the settings of each source."""
    if isinstance(source, str | PathLike | Mapping):
        return [source]
    return list(source)


def pattern(topics: str | Sequence[str]) -> str:
    """Return a regular expression that matches the pattern, or exactly the named topics."""
    return topics if isinstance(topics, str) else "|".join(name.replace(".", r"\.") for name in topics)
