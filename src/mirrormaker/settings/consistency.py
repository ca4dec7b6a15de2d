"""Settings that depend on several places: the command line, the consumer files and the producer file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from mirrormaker.errors import SettingError
from mirrormaker.settings.clients import SourceSettings, TargetSettings
from mirrormaker.settings.group_settings import check_exclusion
from mirrormaker.settings.options import TOPICS_MISSING, RunOptions
from mirrormaker.wire.credentials import Security
from mirrormaker.wire.records.compression import CODECS, NONE

T = TypeVar("T")

# Settings of Spark that encrypt the connections between driver and executors.
_ENCRYPTS = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def combine(
    options: RunOptions, sources: Sequence[SourceSettings], target: TargetSettings
) -> tuple[RunOptions, list[SourceSettings], TargetSettings]:
    """Take topics and streams from the files if no option names them, and note settings that an option overrides."""
    check_exclusion(options.groups, options.groups_exclude, [source.groups for source in sources])
    noted = list(sources)
    if options.include or options.exclude:
        noted = [
            _with_override_note(s, "mirror.topics", s.include or s.exclude, "--whitelist or --blacklist") for s in noted
        ]
    else:
        include, exclude = _common_value(sources, "mirror.topics", lambda s: (s.include, s.exclude))
        if not include and not exclude:
            raise SettingError(TOPICS_MISSING, option=True)
        options = replace(options, include=include, exclude=exclude)
    if options.streams_given:
        noted = [_with_override_note(s, "mirror.consumer.numthreads", s.num_streams, "--num.streams") for s in noted]
    else:
        streams = _common_value(sources, "mirror.consumer.numthreads", lambda s: s.num_streams)
        options = replace(options, num_streams=streams or options.num_streams)
    target = apply_shallow_iterator(sources, target)
    notes = _secrets_on_the_way(options, [*(source.endpoint.security for source in sources), target.endpoint.security])
    return options, noted, replace(target, notes=(*target.notes, *notes))


def apply_shallow_iterator(sources: Sequence[SourceSettings], target: TargetSettings) -> TargetSettings:
    """Return target settings that forward batches unchanged if the sources have `shallow.iterator.enable=true`.

    Kafka 0.7 forwarded compressed messages unchanged if the producer had compression codec 0.
    """
    shallow = [source.path for source in sources if source.shallow]
    if not shallow:
        return target
    statement = f"{shallow[0]}: shallow.iterator.enable=true forwards batches unchanged"
    if target.codec not in (None, NONE):
        raise SettingError(
            f"{statement}, but {target.path} asks for {CODECS[target.codec]}: remove shallow.iterator.enable or"
            " compression.type"
        )
    if len(shallow) == len(sources):
        return _without_repacking(target, statement)
    if target.codec == NONE:
        other = next(source.path for source in sources if not source.shallow)
        raise SettingError(
            f"{statement}, {other} does not have it, and {target.path} asks for records without compression: set it for"
            " both sources, or mirror them in two processes"
        )
    return target


def _secrets_on_the_way(options: RunOptions, securities: Sequence[Security]) -> list[str]:
    """Return a note if secrets go to the executors of a Spark cluster over connections that nobody said are encrypted."""
    master, conf = options.spark_master or "local", dict(options.spark_conf)
    is_encrypted = any(conf.get(key, "").lower() == "true" for key in _ENCRYPTS)
    has_secrets = any(security.sasl is not None or (security.tls and security.tls.key) for security in securities)
    if master.startswith("local") or is_encrypted or not has_secrets:
        return []
    return [
        f"--spark.master {master}: passwords and keys go to the executors over Spark's connections, which are not encrypted"
        f" by default; set spark.authenticate and {_ENCRYPTS[0]}"
    ]


def _without_repacking(target: TargetSettings, statement: str) -> TargetSettings:
    notes = []
    if target.codec is not None:
        notes.append(f"{statement}: compressed batches stay compressed, although {target.path} asks for no compression")
    if target.linger:
        notes.append(f"{statement}: they do not wait for others, although {target.path} has linger.ms")
    return replace(target, codec=None, linger=0.0, notes=(*target.notes, *notes))


def _with_override_note(source: SourceSettings, key: str, value: object, option: str) -> SourceSettings:
    if value is None:
        return source
    return replace(source, notes=(*source.notes, f"{source.path}: {key} ({value}) is not used: {option} is given"))


def _common_value(sources: Sequence[SourceSettings], key: str, value: Callable[[SourceSettings], T]) -> T:
    """Return the value that all sources have."""
    first = sources[0]
    for other in sources[1:]:
        if value(other) != value(first):
            raise SettingError(
                f"{first.path} and {other.path} have different values of {key}: make them the same, give the option on"
                " the command line, or mirror them in two processes"
            )
    return value(first)
