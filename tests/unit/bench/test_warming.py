"""Brokers are warm when another copy does not make them cheaper, and somebody has to stop at last."""

from __future__ import annotations

from bench.warming import in_words, warm_up


def seen(*costs: float | None) -> list[float]:
    copies = iter(costs)

    def copy() -> dict[str, float]:
        cost = next(copies)
        return {} if cost is None else {"brokers_cpu_s_per_gb": cost}

    return list(warm_up(copy))


def test_it_ends_when_the_cost_stops_falling() -> None:
    costs = seen(6.0, 4.0, 3.0, 2.9)
    assert costs == [6.0, 4.0, 3.0, 2.9]
    assert in_words(costs) == "the brokers' CPU per GB while they warm up: 6.00, 4.00, 3.00, 2.90 s; it no longer falls"


def test_a_cost_that_rises_does_not_hide_what_was_cheapest() -> None:
    assert seen(6.0, 3.0, 5.0) == [6.0, 3.0, 5.0]


def test_it_ends_after_six_copies_in_any_case_and_says_so() -> None:
    costs = seen(64, 32, 16, 8, 4, 2, 1)
    assert costs == [64, 32, 16, 8, 4, 2]
    assert in_words(costs).endswith("it may still fall after 6, which are the most")


def test_mirrors_that_fail_do_not_keep_it_busy() -> None:
    assert seen(None, None) == [float("inf")] * 2
