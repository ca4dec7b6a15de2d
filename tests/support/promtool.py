"""Prometheus' promtool, where it is installed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=str(Path(sys.prefix) / "bin"))

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool not found: it is in Debian's package prometheus")
