"""Matching topic names with `java.util.regex`, so that a pattern means what it meant to the original MirrorMaker."""

from __future__ import annotations

from typing import Any

from mirrormaker.errors import SettingError
from mirrormaker.model.topic_filter import Matcher
from mirrormaker.spark.jvm import first_line


def java_matcher(jvm: Any, pattern: str) -> Matcher:
    """java.util.regex itself decides, so that a pattern means what it meant to the original."""
    try:
        compiled = jvm.java.util.regex.Pattern.compile(pattern)
    except Exception as error:
        reason = str(getattr(error, "java_exception", error)).splitlines()[0].split(": ", 1)[-1]
        raise SettingError(f"{pattern} is not a Java regular expression: {reason}") from error
    known: dict[str, bool] = {}

    def judge(name: str) -> bool:
        if name not in known:
            try:
                known[name] = bool(compiled.matcher(name).matches())
            except Exception as error:
                raise ConnectionError(f"the JVM does not answer: {first_line(error)}") from error
        return known[name]

    return judge
