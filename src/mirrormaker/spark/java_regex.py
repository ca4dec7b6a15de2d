"""Match topic names with `java.util.regex`, so that a pattern means what it means to Kafka's own MirrorMaker."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from mirrormaker.errors import SettingError
from mirrormaker.model.topic_filter import Matcher
from mirrormaker.spark.jvm import first_line


def java_matcher(jvm: Any, pattern: str) -> Matcher:
    """Return a matcher that asks the JVM once for each name.

    Raise SettingError if Java cannot compile the pattern. Both this function and the matcher raise ConnectionError if
    the JVM does not answer, which py4j reports in many ways.
    """
    try:
        compiled = jvm.java.util.regex.Pattern.compile(pattern)
    except (Py4JJavaError, PySparkException) as error:
        reason = str(getattr(error, "java_exception", error)).splitlines()[0].split(": ", 1)[-1]
        raise SettingError(f"{pattern} is not a Java regular expression: {reason}") from error
    except Exception as error:
        raise ConnectionError(f"the JVM does not answer: {first_line(error)}") from error
    known: dict[str, bool] = {}

    def matcher(name: str) -> bool:
        if name not in known:
            try:
                known[name] = bool(compiled.matcher(name).matches())
            except Exception as error:
                raise ConnectionError(f"the JVM does not answer: {first_line(error)}") from error
        return known[name]

    return matcher
