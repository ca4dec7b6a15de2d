"""One kind of input, and the code that gets it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple


class Attempt(NamedTuple):
    """One damaged input."""

    data: bytes
    run: Callable[[], None]  # gives the input to the code that uses it


class Case(NamedTuple):
    """A source of damaged inputs."""

    name: str
    attempt: Callable[[Random], Attempt]
