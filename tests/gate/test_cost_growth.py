"""When a cost counts as grown: beyond chance, beyond what is allowed, and only where it can be compared."""

from __future__ import annotations

import random

import pytest

from pytest_attnperf.gate.cost_growth import count_needed, find_growth, list_incomparable
from pytest_attnperf.stats.quantiles import rate_bound95

RUNS = 4000


def processes(name: str, *values: float, loop: float | None = None) -> list[dict[str, float]]:
    """One mapping a process."""
    beside = {} if loop is None else {"host_loop_us": loop}
    return [{name: value, **beside} for value in values]


def test_growth_beyond_every_stored_process_is_found() -> None:
    """Twice the memory in both looks is growth, told with medians, limit and the nearest processes."""
    stored, new = processes("peak_bytes", *[2**20] * 7), processes("peak_bytes", *[2**21] * 4)
    (growth,) = find_growth({"peak_bytes": 0.0}, stored, new)
    assert growth.text == (
        "cost peak_bytes grew by 100 %: 2 MiB against 1 MiB stored, 0 % allowed (least of 4 processes 2 MiB, greatest "
        "of 7 stored 1 MiB)"
    )
    assert find_growth({"peak_bytes": 100.0}, stored, new) == []
    assert find_growth({"peak_bytes": 99.0}, stored, new)


def test_one_process_at_the_stored_value_acquits() -> None:
    """A single new process that is no worse than the worst stored one shows that nothing must have changed."""
    stored = processes("allocations", 3, 3, 3, 3, 3, 3, 3)
    assert find_growth({"allocations": 0.0}, stored, processes("allocations", 5, 5, 3, 5)) == []
    assert len(find_growth({"allocations": 0.0}, stored, processes("allocations", 5, 5, 4, 5))) == 1


def test_growth_from_nothing_has_no_percentage() -> None:
    """A call that allocated nothing and now does has grown, without a division by zero."""
    (growth,) = find_growth({"allocations": 500.0}, processes("allocations", 0, 0), processes("allocations", 2, 2))
    assert growth.text.startswith("cost allocations grew: 2 against 0 stored, 500 % allowed")


def test_unchanged_noisy_costs_rarely_grow() -> None:
    """4 new against 7 stored processes of one heavy-tailed distribution: growth in at most 1 in 330, as computed."""
    draw = random.Random(1)

    def drawn(count: int) -> list[dict[str, float]]:
        return processes("host_us", *(draw.lognormvariate(2, 0.5) for _ in range(count)), loop=500.0)

    grown = sum(bool(find_growth({"host_us": 0.0}, drawn(7), drawn(4))) for _ in range(RUNS))
    assert rate_bound95(grown, RUNS) < 1.7 / 330
    assert grown > 0


@pytest.mark.parametrize(
    ("stored", "compared", "rate", "needed"),
    [(7, 1, 0.01, 4), (7, 3, 0.01, 4), (7, 100, 0.01, 9), (7, 1000, 0.01, 14), (14, 100, 0.01, 5), (7, 100, 0.4, 4)],
)
def test_the_processes_that_are_needed(stored: int, compared: int, rate: float, needed: int) -> None:
    """As few as make the chance of all costs together at most the rate; never fewer than two looks take."""
    assert count_needed(stored, compared, rate) == needed
    assert count_needed(0, compared, rate) == 4


@pytest.mark.parametrize("cases", [1, 20, pytest.param(100, marks=pytest.mark.soak)])
def test_runs_of_unchanged_code_are_red_at_the_rate_at_most(cases: int) -> None:
    """10,000 runs of unchanged code, with costs of a heavy-tailed distribution, of two values, or of one: at most 1 in
    100 has a growth, whatever the number of cases."""
    draw, runs, rate, red = random.Random(7), 10_000, 0.01, 0
    needed = count_needed(7, cases, rate)
    shapes = (
        lambda: draw.lognormvariate(2, 0.5),
        lambda: float(draw.random() < 4 / 11),
        lambda: 1.0,
        lambda: draw.paretovariate(1.1),
    )
    for _ in range(runs):
        for case in range(cases):
            value = shapes[case % len(shapes)]
            greatest = max(value() for _ in range(7))
            if all(value() > greatest for _ in range(needed)):
                red += 1
                break
    assert red / runs <= rate, red


def test_the_rule_of_before_would_be_red_one_run_in_four() -> None:
    """The same runs with four processes for each of 100 cases fail far more often: this is why more are needed."""
    draw, red = random.Random(8), 0
    for _ in range(1000):
        red += any(min(draw.random() for _ in range(4)) > max(draw.random() for _ in range(7)) for _case in range(100))
    assert red > 200


def test_a_real_growth_of_noisy_costs_is_found() -> None:
    """Twice the host time with 5 % noise is found in every run."""
    draw = random.Random(2)
    for _ in range(200):
        stored = processes("host_us", *(10 * draw.lognormvariate(0, 0.05) for _ in range(7)), loop=500.0)
        new = processes("host_us", *(20 * draw.lognormvariate(0, 0.05) for _ in range(4)), loop=510.0)
        assert find_growth({"host_us": 10.0}, stored, new)


def test_costs_of_another_host_are_not_compared() -> None:
    """Where a fixed loop of Python is 1.5 times as slow, or its time is unknown, host times say nothing of the call;
    memory is compared all the same."""
    limits = {"host_us": 0.0}
    stored, new = processes("host_us", 10, 10, loop=400.0), processes("host_us", 15, 15, loop=600.0)
    assert find_growth(limits, stored, new) == []
    (why,) = list_incomparable(limits, stored, new).values()
    assert why.startswith("a fixed loop of Python takes 1.50 times what it took on the stored host")
    assert list_incomparable(limits, stored, processes("host_us", 15, 15)) == {
        "host_us": "the speed of the host is not known"
    }
    assert list_incomparable(limits, stored, processes("host_us", 15, 15, loop=420.0)) == {}
    assert find_growth(limits, stored, processes("host_us", 15, 15, loop=420.0))
    assert find_growth({"peak_bytes": 0.0}, processes("peak_bytes", 1, loop=400), processes("peak_bytes", 2, loop=600))


def test_a_cost_that_a_side_lacks_is_said() -> None:
    """An entry recorded before the cost was gated, and a process without it, are named; neither counts as grown."""
    limits = {"allocations": 0.0}
    assert list_incomparable(limits, [{}], processes("allocations", 9)) == {
        "allocations": "the baseline has no value of it: record it again"
    }
    partly = [*processes("allocations", 9), {}]
    assert list_incomparable(limits, processes("allocations", 1), partly) == {"allocations": "it was not measured"}
    assert find_growth(limits, processes("allocations", 1), partly) == []
