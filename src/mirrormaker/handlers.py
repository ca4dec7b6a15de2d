"""What message handlers are written with: see docs/handlers.md."""

from mirrormaker.stream.handler import Record, tables

__all__ = ["Record", "tables"]
