"""Where this user keeps what takes long to make or to fetch."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mirrormaker"
