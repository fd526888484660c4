from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_attnperf.records import CheckReport, ErrorFigures, Launch, Rotation, Samples, WorkloadFigures
from pytest_attnperf.records.final_report import FinalReport
from pytest_attnperf.records.pairs import Turn, TurnPlan
from pytest_attnperf.records.stages import Breakdown, StageTime
from pytest_attnperf.stats.summaries import STORED_BLOCKS_MAX, reason_not_believable, summarise_process


def samples(*block_us: float) -> Samples:
    """Blocks of one process, microseconds per call."""
    return Samples(block_us=block_us, calls_per_block=20, timer="graph")


def test_summary_is_of_all_blocks() -> None:
    """Median, minimum and mean are those of the blocks, and the process carries its timer, device and name."""
    summary = summarise_process(samples(3.0, 1.0, 2.0, 10.0), device_id="GPU-1", process="p3")
    assert (summary.median_us, summary.min_us, summary.mean_us) == (2.5, 1.0, 4.0)
    assert summary.block_us == (3.0, 1.0, 2.0, 10.0)
    assert (summary.calls_per_block, summary.timer, summary.device_id, summary.process) == (20, "graph", "GPU-1", "p3")


def test_blocks_are_thinned_evenly_but_count_in_full() -> None:
    """Of many blocks 96 are kept in measured order, first and last included, while the mean is still of all."""
    summary = summarise_process(samples(*(float(index) for index in range(1, 1001))))
    assert len(summary.block_us) == STORED_BLOCKS_MAX
    assert (summary.block_us[0], summary.block_us[-1]) == (1.0, 1000.0)
    steps = {round(later - earlier) for earlier, later in zip(summary.block_us, summary.block_us[1:], strict=False)}
    assert steps <= {10, 11}
    assert summary.mean_us == 500.5


def test_values_keep_five_significant_digits() -> None:
    """Stored numbers are rounded to five significant digits, whatever their size."""
    assert summarise_process(samples(123.456789)).median_us == 123.46
    assert summarise_process(samples(0.00123456789)).median_us == 0.0012346


def test_the_clock_is_the_median_of_the_blocks_clocks() -> None:
    """Rounded like the rest, and None where no clock is known."""
    known = Samples((1.0, 2.0, 3.0), 20, "graph", clock_mhz=(1980.0, 1721.23456, 1500.0))
    assert summarise_process(known).clock_mhz == 1721.2
    assert summarise_process(samples(1.0, 2.0)).clock_mhz is None


@pytest.mark.parametrize("throttled", [None, {}, {"software power cap": 0.012}])
def test_a_process_keeps_how_long_it_was_throttled(throttled: dict[str, float] | None) -> None:
    """Seconds by reason stay with their process; not known stays apart from none."""
    assert summarise_process(Samples((1.0, 2.0), 20, "graph", throttled_s=throttled)).throttled_s == throttled


@pytest.mark.parametrize("block", [0.0, -1.0, math.nan, math.inf])
def test_a_block_that_is_no_time_is_refused(block: float) -> None:
    """A block of zero, negative, NaN or infinite time is named, with its place and timer."""
    with pytest.raises(ValueError, match=rf"block 1 of 2 from timer 'graph' is {block} us per call; .* positive"):
        summarise_process(samples(1.0, block))


def test_no_blocks_are_refused() -> None:
    """A process without blocks cannot be summarised."""
    with pytest.raises(ValueError, match="at least one block, got none from timer 'graph'"):
        summarise_process(samples())


NAN, INF = math.nan, math.inf


def believable_samples(*block_us: float, **others: Any) -> Samples:
    """Blocks of one process."""
    return Samples(block_us, **{"calls_per_block": 1, "timer": "host", **others})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (believable_samples(1.0, NAN), "block_us[1] is nan"),
        (believable_samples(0.0), "a time of 0.0 us"),
        (believable_samples(1.0, -5.0), "a time of -5.0 us"),
        (believable_samples(1e308, 1e308), "a time of 1e+308 us"),
        (believable_samples(5e-324), "a time of 5e-324 us"),
        (believable_samples(), "at least one block"),
        (believable_samples(1.0, placements=0), "placements"),
        (believable_samples(1.0, calls_per_block=-1), "calls_per_block is -1"),
        (believable_samples(1.0, clock_mhz=(0.0,)), "a clock of 0.0 MHz"),
        ({"gemm": believable_samples(1.0), "copy": believable_samples(INF)}, "['copy'].block_us[0] is inf"),
        ({"gemm": believable_samples(-1.0)}, "a time of -1.0 us"),
        (Turn(NAN), "us is nan"),
        (Turn(0.0), "a time of 0.0 us"),
        (Turn(1.0, -1.0), "a clock of -1.0 MHz"),
        (TurnPlan("host", "hot", 0, 1.0, 1), "places is 0"),
        (TurnPlan("host", "hot", 1, -1.0, 1), "a time of -1.0 us"),
        (Rotation(0.0, 1.0), "a time of 0.0 us"),
        (Rotation(1.0, INF), "rotating_us is inf"),
        (Breakdown((StageTime("rope", NAN),), 1.0, "host", 1.0, 1.0), "stages[0].median_us is nan"),
        (FinalReport(launches=(Launch("k", calls=INF),)), "launches[0].calls is inf"),
        (FinalReport(peak_memory_bytes=1 << 64), "peak_memory_bytes has more than 63 bits"),
        (CheckReport(seconds=NAN), "seconds is nan"),
        (WorkloadFigures(1.0, 1.0, "f16", "hot", {"scale": [NAN]}), "definition['scale'][0] is nan"),
    ],
)
def test_what_cannot_be_is_said(answer: Any, said: str) -> None:
    """Where in the answer, and what stands there: of times, counts, clocks, and of any number that is not finite."""
    assert said in reason_not_believable(answer)


def test_what_can_be_is_let_in() -> None:
    """A wrong output's errors are NaN and infinite, a stage that launches nothing takes no time."""
    wrong = ErrorFigures("check", "out", NAN, 1e-3, INF, 1e-4, worst_got=NAN, around_got=("nan", 1.0))
    true: list[Any] = [
        believable_samples(1.0, 2.0, placements=2, clock_mhz=(1980.0, 1975.0)),
        Turn(1.0),
        Breakdown((StageTime("view", 0.0),), 1.0, "host", 1.0, 1.0),
        CheckReport(figures=(wrong,), problems=("NaN",)),
        {},
    ]
    assert [reason_not_believable(answer) for answer in true] == [""] * len(true)
