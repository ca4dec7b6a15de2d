"""What message handlers are written with: see docs/handlers.md."""

from mirrormaker.worker.handler import Record, tables

__all__ = ["Record", "tables"]
