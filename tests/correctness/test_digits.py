"""Figures in few digits say the same of a result as in all."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from pytest_attnperf.correctness.budget import list_problems, shorten_figures
from pytest_attnperf.records import ErrorFigures

RIGHT = ErrorFigures(
    *("last call", "out", 4.786179962357195e-7, 1.0551636386954931e-6, 4.401211688638508e-9, 1.0343959886243176e-8),
    worst_index=(74, 63),
    worst_got=0.8214771151542664,
    worst_expected=0.8214766365362701,
    elements=256,
    around_first=62,
    around_got=(0.0001538164506200701, 0.8214771151542664),
    around_expected=(0.0001538163580757717, 0.8214766365362701),
)


def test_right_figures_are_short() -> None:
    """Five digits, no neighbours; of the worst element as many digits as make its error."""
    short = shorten_figures(RIGHT)
    assert (short.max_error, short.max_budget, short.rms_error) == (4.7862e-7, 1.0552e-6, 4.4012e-9)
    assert (short.worst_got, short.worst_expected) == (0.821477115154, 0.821476636536)
    assert math.isclose(short.worst_got - short.worst_expected, RIGHT.max_error, rel_tol=1e-5)
    assert (short.around_first, short.around_got, short.around_expected) == (0, (), ())
    assert shorten_figures(short) == short


def test_wrong_figures_keep_what_stands_around() -> None:
    """In as many digits as are printed."""
    short = shorten_figures(replace(RIGHT, max_budget=1e-7))
    assert (short.around_first, short.around_got) == (62, (0.000153816, 0.821477))
    assert shorten_figures(replace(RIGHT, nan_count=1, around_got=("nan", 0.1234567))).around_got == ("nan", 0.123457)


def test_no_verdict_turns() -> None:
    """Errors at their budgets, a digit above and below, of any size: what is beyond stays beyond, and within within."""
    draw = random.Random(7)
    for _ in range(2_000):
        budget = draw.random() * 10.0 ** draw.randint(-12, 12)
        error = draw.choice([budget, math.nextafter(budget, 0), math.nextafter(budget, 1e99), budget * draw.random()])
        one = replace(RIGHT, max_error=error, max_budget=budget)
        assert bool(list_problems([shorten_figures(one)])) == bool(list_problems([one])) == (error > budget)
