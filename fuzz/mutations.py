"""Ways to damage the bytes of an answer."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from mirrormaker.wire.protocol import messages

LONGEST = 512 << 10  # bytes: long enough for work that grows faster than the answer to take more than a second

_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
_WIDTHS = (2, 4, 8)


def mutate(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    """Return a damaged copy; `others` are answers from which parts are taken."""
    damaged = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        dice.choice(_MUTATIONS)(damaged, dice, others)
    return bytes(damaged[:LONGEST])


_REQUESTS = {
    request.API_KEY: request
    for request in (getattr(messages, name) for name in messages.__all__ if name.endswith("Request"))
}
_NUMBERS = (
    0,
    1,
    -1,
    -2,
    3,
    15,
    16,
    25,
    27,
    127,
    -128,
    (1 << 15) - 1,
    -(1 << 15),
    (1 << 31) - 1,
    (1 << 63) - 1,
    -(1 << 63),
)
_TEXTS: tuple[str | None, ...] = (None, "", "\0", "orders", "x" * 300, "\u2028", "ü" * 20_000, "-1", "1" * 30)


def mutate_fields(data: bytes, api_key: int, version: int, dice: Random) -> bytes | None:
    """Return an answer with a few fields changed that can still be decoded; None if that cannot be done."""
    request = _REQUESTS.get(api_key)
    if request is None or api_key == messages.ProduceRequest.API_KEY:
        return None
    try:
        answer = decode_to_encode(api_key, data, version)
        fields = list(_fields(answer))
        for _ in range(dice.choice((1, 1, 2, 5))):
            owner, name, value = dice.choice(fields)
            setattr(owner, name, _other(value, dice))
        damaged = bytes(answer.encode(version=version))
        return damaged if len(damaged) <= LONGEST else None
    except (struct.error, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        return None


def decode_to_encode(api_key: int, data: bytes, version: int) -> Any:
    """Return an answer as an object of kafka-python that can be encoded again, also in other versions."""
    answer = messages._RESPONSES[api_key].decode(data, version=version)
    answer._header = None
    return answer


def _fields(message: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield every field of an answer and of the structures inside, with its owner and its value."""
    for name in type(message).fields:
        value = getattr(message, name)
        yield message, name, value
        for part in value if isinstance(value, list) else [value]:
            if hasattr(type(part), "fields"):
                yield from _fields(part)


def _other(value: Any, dice: Random) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return dice.choice((*_NUMBERS, value + 1, value - 1, dice.randrange(130)))
    if isinstance(value, str):
        return dice.choice(_TEXTS)
    if isinstance(value, bytes):
        return dice.choice((b"", value[:-1], value * 2, dice.randbytes(len(value))))
    if isinstance(value, list):
        return dice.choice(([], None, value * 2, value[1:], value * 1000))
    return value


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
