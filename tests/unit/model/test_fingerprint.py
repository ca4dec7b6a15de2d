"""What a position's fingerprint tells."""

from __future__ import annotations

import pytest

from mirrormaker.model.fingerprint import fingerprint_of, used_handler
from mirrormaker.model.position import Cut, Identity, Position


@pytest.mark.parametrize(
    ("by_key", "handler", "expected"),
    [(False, None, False), (True, None, False), (False, ("h.py", None), True), (True, ("h.py", "x"), True)],
)
def test_a_position_tells_whether_a_message_handler_was_at_work(
    by_key: bool, handler: tuple[str, str | None] | None, expected: bool
) -> None:
    partitions = 1 if by_key else 0
    fingerprint = 1 if not by_key and handler is None else fingerprint_of(True, partitions, None, handler)
    cuts = (Cut(0, 0, 65),)
    position = Position("t", 0, 60, -1, "", Identity(7, 0), "c", "", 1, cuts, fingerprint=fingerprint, by_key=by_key)
    assert used_handler(position) is expected
