"""`mirrormaker.read` up to where a cluster is needed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from mirrormaker import reading
from mirrormaker.errors import ClusterError


@pytest.mark.parametrize(
    ("further", "committed"),
    [
        ({}, False), ({"group.id": "g"}, False), ({"isolation.level": "read_committed"}, True),
        ({"isolation.level": "read_uncommitted"}, False), ({"group.id": "g", "isolation.level": "read_committed"}, True),
    ],
)  # fmt: skip
def test_settings_are_a_mapping_or_a_file(further: dict[str, str], committed: bool, tmp_path: Path) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", **further}
    (tmp_path / "s").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    for given_as in (settings, tmp_path / "s"):
        endpoint, only_committed = reading._endpoint(given_as)
        assert (endpoint.bootstrap, only_committed) == ((("127.0.0.1", 1),), committed)


def test_records_can_be_asked_for_where_an_event_loop_runs() -> None:
    async def notebook() -> None:
        reading.read(None, {"bootstrap.servers": "127.0.0.1:1"}, "t")

    with pytest.raises(ClusterError, match="cannot be read"):
        asyncio.run(notebook())


def test_the_package_is_light_until_records_are_asked_for() -> None:
    code = (
        "import sys, mirrormaker; assert 'pyspark' not in sys.modules and 'numpy' not in sys.modules; mirrormaker.read"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
