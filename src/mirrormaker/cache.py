"""The directory for files that take long to make or to download."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return this user's cache directory for mirrormaker; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mirrormaker"
