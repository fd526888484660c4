from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.tools.profilers.page.time_lanes import MOST_BARS, MOST_LANES, cut_window, merge_rows
from tests.tools.profilers.page.samples import make_analysed, make_network

Rows = list[tuple[int, int, int]]


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 500), st.integers(0, 3))), st.floats(1, 300))
def test_bars_keep_calls_and_time(drawn: Rows, cell: float) -> None:
    """Merging loses no dispatch and no nanosecond, and no merged bar is longer than a cell."""
    rows = sorted((start, start + length, shape) for start, length, shape in drawn)
    bars = list(merge_rows(rows, cell))
    assert sum(bar.calls for bar in bars) == len(rows)
    assert sum(sum(bar.times_ns.values()) for bar in bars) == sum(end - start for start, end, _ in rows)
    assert all(bar.calls == 1 or bar.end_ns - bar.start_ns <= cell for bar in bars)


def test_a_bar_has_the_colour_of_most_time() -> None:
    """Of several dispatches in a pixel, the kernel with the most time in all stands for them."""
    (bar,) = merge_rows([(0, 4, 0), (4, 7, 1), (7, 10, 1)], 100)
    assert (bar.calls, bar.shape, bar.start_ns, bar.end_ns) == (3, 1, 0, 10)


def test_the_first_passes_are_the_window() -> None:
    """Three of four passes, from the first dispatch of the first to the last end of the third."""
    analysed = make_network(passes=4)
    window = cut_window(analysed)
    assert window is not None
    assert ([one.number for one in window.passes], window.of_passes) == ([1, 2, 3], 4)
    assert (window.start_ns, window.end_ns) == (window.passes[0].start_ns, window.passes[2].end_ns)
    assert sum(lane.calls for lane in window.lanes) == 33
    assert window.of_calls == 44


def test_a_long_gap_is_left_out() -> None:
    """Without passes, the stretch between long gaps that has the most work is shown."""
    early = [("a", "1", "s", now, now + 90) for now in range(0, 500, 100)]
    late = [(f"k{now}", "1", "s", now, now + 90) for now in range(50_000, 51_000, 100)]
    window = cut_window(make_analysed([*early, *late]))
    assert window is not None
    assert (window.start_ns, window.end_ns, window.of_calls) == (50_000, 50_990, 15)


def test_lanes_are_streams_of_devices() -> None:
    """A lane per device and stream, named by both if there are several devices; the busiest dozen of twenty."""
    rows = [("k", f"{n % 2}", f"stream {n}", 10 * n, 10 * n + 5 + n) for n in range(20)]
    window = cut_window(make_analysed(rows))
    assert window is not None
    assert (len(window.lanes), window.left_out) == (MOST_LANES, 8)
    assert window.lanes[-1].name == "GPU 1 stream 19"
    one = cut_window(make_analysed([("k", "Agent 1", "", 0, 5)]))
    assert one is not None
    assert [lane.name for lane in one.lanes] == ["kernels"]


def test_many_dispatches_are_few_bars() -> None:
    """However many lanes and dispatches, the bars stay below their bound."""
    draw = random.Random(5)
    rows = [(f"k{draw.randrange(7)}", "1", f"stream {n % 9}", 1000 * n, 1000 * n + 7000) for n in range(20_000)]
    window = cut_window(make_analysed(rows))
    assert window is not None
    assert sum(len(lane.bars) for lane in window.lanes) <= MOST_BARS
    assert sum(lane.calls for lane in window.lanes) == 20_000


def test_nothing_has_no_window() -> None:
    """A profile of sums alone has no time line."""
    assert cut_window(make_analysed([])) is None
