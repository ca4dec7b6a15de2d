"""What can go wrong with a Kafka of our own."""

from __future__ import annotations

from mirrormaker.errors import MirrorError


class EmbeddedError(MirrorError):
    """The embedded Kafka cannot be fetched, started or used; the text says what to do."""
