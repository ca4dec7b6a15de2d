"""A task that dies is noticed by its owner; one that ends, or that its owner cancels, is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mirrormaker.wire.transport.tasks import watch


async def end() -> None:
    await asyncio.sleep(0)


async def fail() -> None:
    await end()
    raise ValueError("a bug")


async def wait_for_something_cancelled() -> None:
    other = asyncio.create_task(asyncio.sleep(60))
    asyncio.get_running_loop().call_soon(other.cancel)
    await asyncio.shield(other)


@pytest.mark.parametrize(
    ("work", "is_cancelled", "deaths"),
    [
        (end, False, []),
        (end, True, []),
        (fail, False, [ValueError]),
        (wait_for_something_cancelled, False, [RuntimeError]),
    ],
)
def test_a_task_dies_unless_it_ends_or_is_cancelled_by_its_owner(
    work: Callable[[], Any], is_cancelled: bool, deaths: list[type]
) -> None:
    found: list[Exception] = []

    async def play() -> None:
        task = asyncio.create_task(work())
        watch(task, found.append)
        if is_cancelled:
            task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)

    asyncio.run(play())
    assert [type(error) for error in found] == deaths
    assert "0x" not in "".join(map(str, found)), "the same trouble is reported once, so it must have the same text"
