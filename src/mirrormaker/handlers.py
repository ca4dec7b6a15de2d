"""The names that user code needs to write message handlers; docs/handlers.md explains them."""

from mirrormaker.worker.handler import Record, tables

__all__ = ["Record", "tables"]
