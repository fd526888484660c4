"""What no worker can have measured, and what it may say all the same."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_attnperf.records import CheckReport, ErrorFigures, FinalReport, Launch, Rotation, Samples, WorkloadFigures
from pytest_attnperf.records.pairs import Turn, TurnPlan
from pytest_attnperf.records.stages import Breakdown, StageTime
from pytest_attnperf.workers.believable import unbelievable

NAN, INF = math.nan, math.inf


def samples(*block_us: float, **others: Any) -> Samples:
    """Blocks of one process."""
    return Samples(block_us, **{"calls_per_block": 1, "timer": "host", **others})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (samples(1.0, NAN), "block_us[1] is nan"),
        (samples(0.0), "a time of 0.0 us"),
        (samples(1.0, -5.0), "a time of -5.0 us"),
        (samples(1e308, 1e308), "a time of 1e+308 us"),
        (samples(5e-324), "a time of 5e-324 us"),
        (samples(), "at least one block"),
        (samples(1.0, placements=0), "placements"),
        (samples(1.0, calls_per_block=-1), "calls_per_block is -1"),
        (samples(1.0, clock_mhz=(0.0,)), "a clock of 0.0 MHz"),
        ({"gemm": samples(1.0), "copy": samples(INF)}, "['copy'].block_us[0] is inf"),
        ({"gemm": samples(-1.0)}, "a time of -1.0 us"),
        (Turn(NAN), "us is nan"),
        (Turn(0.0), "a time of 0.0 us"),
        (Turn(1.0, -1.0), "a clock of -1.0 MHz"),
        (TurnPlan("host", "hot", 0, 1.0, 1), "places is 0"),
        (TurnPlan("host", "hot", 1, -1.0, 1), "a time of -1.0 us"),
        (Rotation(0.0, 1.0, 1.0), "a time of 0.0 us"),
        (Rotation(1.0, INF, 1.0), "rotating_us is inf"),
        (Breakdown((StageTime("rope", NAN),), 1.0, "host", 1.0, 1.0), "stages[0].median_us is nan"),
        (FinalReport(launches=(Launch("k", calls=INF),)), "launches[0].calls is inf"),
        (FinalReport(peak_memory_bytes=1 << 64), "peak_memory_bytes has more than 63 bits"),
        (CheckReport(seconds=NAN), "seconds is nan"),
        (WorkloadFigures(1.0, 1.0, "f16", "hot", {"scale": [NAN]}), "definition['scale'][0] is nan"),
    ],
)
def test_what_cannot_be_is_said(answer: Any, said: str) -> None:
    """Where in the answer, and what stands there: of times, counts, clocks, and of any number that is not finite."""
    assert said in unbelievable(answer)


def test_what_can_be_is_let_in() -> None:
    """A wrong output's errors are NaN and infinite, a stage that launches nothing takes no time."""
    wrong = ErrorFigures("check", "out", NAN, 1e-3, INF, 1e-4, worst_got=NAN, around_got=("nan", 1.0))
    true: list[Any] = [
        samples(1.0, 2.0, placements=2, clock_mhz=(1980.0, 1975.0)),
        Turn(1.0),
        Breakdown((StageTime("view", 0.0),), 1.0, "host", 1.0, 1.0),
        CheckReport(figures=(wrong,), problems=("NaN",)),
        {},
    ]
    assert [unbelievable(answer) for answer in true] == [""] * len(true)
