"""Kafka's MirrorMaker on Spark: every record once, in order, batches forwarded as they are."""

from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "read"]


def __getattr__(name: str) -> Any:
    """`mirrormaker.read` loads what it needs when it is asked for: commands must start at once."""
    if name == "read":
        from mirrormaker.reading import read

        return read
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
