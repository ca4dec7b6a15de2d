"""What the command line and the files say together: each of them may name the topics, and one file may contradict another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from mirrormaker.errors import SettingError
from mirrormaker.settings.clients import SourceSettings, TargetSettings
from mirrormaker.settings.options import RunOptions
from mirrormaker.wire.records.compression import CODECS, NONE

T = TypeVar("T")


def settle(
    options: RunOptions, sources: Sequence[SourceSettings], target: TargetSettings
) -> tuple[RunOptions, list[SourceSettings], TargetSettings]:
    """Fill in what only the files say, and note what they say in vain."""
    settled = list(sources)
    if options.include or options.exclude:
        settled = [
            _overruled(s, "mirror.topics", s.include or s.exclude, "--whitelist or --blacklist") for s in settled
        ]
    else:
        include, exclude = _agreed(sources, "mirror.topics", lambda s: (s.include, s.exclude))
        if not include and not exclude:
            raise SettingError('--whitelist REGEX is missing: which topics? --whitelist ".*" takes all of them')
        options = replace(options, include=include, exclude=exclude)
    if options.streams_given:
        settled = [_overruled(s, "mirror.consumer.numthreads", s.num_streams, "--num.streams") for s in settled]
    else:
        streams = _agreed(sources, "mirror.consumer.numthreads", lambda s: s.num_streams)
        options = replace(options, num_streams=streams or options.num_streams)
    return options, settled, as_they_are(sources, target)


def as_they_are(sources: Sequence[SourceSettings], target: TargetSettings) -> TargetSettings:
    """Kafka 0.7 forwarded packed messages as they were if the producer had codec 0, and so do we."""
    shallow = [source.path for source in sources if source.shallow]
    if not shallow:
        return target
    said = f"{shallow[0]}: shallow.iterator.enable=true forwards batches as they are"
    if target.codec not in (None, NONE):
        raise SettingError(
            f"{said}, and {target.path} asks for {CODECS[target.codec]}: remove shallow.iterator.enable or compression.type"
        )
    if len(shallow) == len(sources):
        return _not_packed(target, said)
    if target.codec == NONE:
        other = next(source.path for source in sources if not source.shallow)
        raise SettingError(
            f"{said}, {other} does not say it, and {target.path} asks for records without compression: make both sources alike,"
            " or mirror them in two processes"
        )
    return target


def _not_packed(target: TargetSettings, said: str) -> TargetSettings:
    notes = []
    if target.codec is not None:
        notes.append(f"{said}: compressed ones stay compressed, though {target.path} says none")
    if target.linger:
        notes.append(f"{said}: they do not wait for others, though {target.path} has linger.ms")
    return replace(target, codec=None, linger=0.0, notes=(*target.notes, *notes))


def _overruled(source: SourceSettings, what: str, value: object, option: str) -> SourceSettings:
    if value is None:
        return source
    return replace(source, notes=(*source.notes, f"{source.path}: {what} ({value}) is not used: {option} is given"))


def _agreed(sources: Sequence[SourceSettings], what: str, value: Callable[[SourceSettings], T]) -> T:
    first = sources[0]
    for other in sources[1:]:
        if value(other) != value(first):
            raise SettingError(
                f"{first.path} and {other.path} do not say the same in {what}: make them alike, say it on the command line, or"
                " mirror them in two processes"
            )
    return value(first)
