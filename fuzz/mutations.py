"""Ways to damage the bytes of an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

LONGEST = 512 << 10  # bytes: long enough for work that grows faster than the answer to take more than a second

_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
_WIDTHS = (2, 4, 8)


def mutate(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    """Return a damaged copy; `others` are answers from which parts are taken."""
    damaged = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        dice.choice(_MUTATIONS)(damaged, dice, others)
    return bytes(damaged[:LONGEST])


def _flip_a_bit(data: bytearray, dice: Random, _others: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _set_a_byte(data: bytearray, dice: Random, _others: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] = dice.choice((*_BYTES, dice.randrange(256)))


def _write_a_number(data: bytearray, dice: Random, _others: Sequence[bytes]) -> None:
    """Overwrite two, four or eight bytes with a number that programs forget."""
    width = dice.choice(_WIDTHS)
    if len(data) < width:
        return
    top = 1 << (8 * width - 1)
    number = dice.choice((0, 1, -1, -2, top - 1, -top, len(data), len(data) + 1, 1 << dice.randrange(8 * width - 1)))
    at = dice.randrange(len(data) - width + 1)
    data[at : at + width] = max(-top, min(top - 1, number)).to_bytes(width, "big", signed=True)


def _change_a_number(data: bytearray, dice: Random, _others: Sequence[bytes]) -> None:
    """Add a little to a number: a length that is one too long, an error code, another partition."""
    width = dice.choice((1, *_WIDTHS))
    if len(data) < width:
        return
    at = dice.randrange(len(data) - width + 1)
    number = int.from_bytes(data[at : at + width], "big") + dice.choice((-2, -1, 1, 2, dice.randrange(100)))
    data[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "big")


def _cut_off_the_end(data: bytearray, dice: Random, _others: Sequence[bytes]) -> None:
    del data[dice.randrange(len(data) + 1) :]


def _remove_a_part(data: bytearray, dice: Random, _others: Sequence[bytes]) -> None:
    start, end = _range(data, dice)
    del data[start:end]


def _insert_bytes(data: bytearray, dice: Random, _others: Sequence[bytes]) -> None:
    at = dice.randrange(len(data) + 1)
    data[at:at] = dice.randbytes(dice.choice((1, 2, 4, 16, 200)))


def _repeat_a_part(data: bytearray, dice: Random, _others: Sequence[bytes]) -> None:
    """Repeat a part a few times, or until the answer is long."""
    start, end = _range(data, dice)
    part = bytes(data[start:end])
    most = max(1, LONGEST // max(1, len(part)))
    data[end:end] = part * min(most, dice.choice((1, 2, 10, 1000, 1 << 20)))


def _fill_the_rest(data: bytearray, dice: Random, _others: Sequence[bytes]) -> None:
    """Replace everything after some place by one byte, again and again."""
    at = dice.randrange(len(data) + 1)
    data[at:] = bytes((dice.choice(_BYTES),)) * dice.choice((len(data) - at, 1000, LONGEST))


def _take_from_another(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    other = dice.choice(others)
    start, end = _range(other, dice)
    into, to = _range(data, dice)
    data[into:to] = other[start:end]


def _range(data: Sequence[int], dice: Random) -> tuple[int, int]:
    start = dice.randrange(len(data) + 1)
    return start, min(len(data), start + dice.choice((1, 2, 4, 8, 16, 64, len(data))))


Mutation = Callable[[bytearray, Random, Sequence[bytes]], None]
_MUTATIONS: tuple[Mutation, ...] = (
    _flip_a_bit,
    _set_a_byte,
    _set_a_byte,
    _write_a_number,
    _write_a_number,
    _change_a_number,
    _change_a_number,
    _cut_off_the_end,
    _remove_a_part,
    _insert_bytes,
    _repeat_a_part,
    _fill_the_rest,
    _take_from_another,
)
