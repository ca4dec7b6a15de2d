"""Warm the brokers up before anything is measured: their JVMs compile the code that they run most."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.results import Figures

LEAST, MOST = 2, 6  # copies of one workload
_FALLS = (
    0.95  # the CPU per GB still falls if a copy needs less than this share of what the cheapest one before it needed
)
_FIGURE = "brokers_cpu_s_per_gb"


def warm_up(copy: Callable[[], Figures], most: int = MOST) -> Iterator[float]:
    """Copy until the brokers' CPU per GB stops falling; yield it after each copy.

    A copy without the figure counts as one that needed no less, so that a mirror that fails does not keep the benchmark busy.
    """
    cheapest = float("inf")
    for number in range(1, most + 1):
        cost = copy().get(_FIGURE, float("inf"))
        yield cost
        if number >= LEAST and not cost < _FALLS * cheapest:
            return
        cheapest = min(cheapest, cost)


def in_words(costs: list[float], most: int = MOST) -> str:
    """Return what was seen, and whether the brokers are warm."""
    seen = ", ".join(f"{cost:.2f}" for cost in costs)
    is_warm = len(costs) >= LEAST and not costs[-1] < _FALLS * min(costs[:-1])
    ending = "no longer falls" if is_warm else f"may still fall after {most}, which are the most"
    return f"the brokers' CPU per GB while they warm up: {seen} s; it {ending}"
