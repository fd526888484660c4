from __future__ import annotations

import json

import pytest

from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.tools.export import benchmark_rounds
from tests.tools.export.export_samples import make_judged, make_process


def test_the_second_look_is_what_is_given() -> None:
    """Of a case that took two looks the deciding one is given, every process of it named."""
    second = tuple(make_process(f"pid {number}", (float(number), 1e6 / 3)) for number in (7, 8))
    rounds = benchmark_rounds.rounds_of(make_judged(second=second))
    assert rounds is not None
    assert rounds.seconds == (7 / 1e6, 1e6 / 3 / 1e6, 8 / 1e6, 1e6 / 3 / 1e6)
    assert [(p["process"], p["rounds"], p["median_us"]) for p in rounds.processes] == [("pid 7", 2, 2), ("pid 8", 2, 2)]


def test_of_pairs_the_process_medians_are_given() -> None:
    """An interleaved look keeps no blocks: a round is then a process of this tree, and extra_info says so."""
    pairs = tuple(PairSummary(1.01, 99.0, us, 40, "graph", new_process=f"pid {us:g}") for us in (100.0, 102.0))
    result = make_judged(pairs=pairs, against="main", median_us=101.0)
    rounds = benchmark_rounds.rounds_of(result)
    assert rounds is not None
    info = benchmark_rounds.extra_info(result, rounds, "abc")
    assert rounds.seconds == (100.0 / 1e6, 102.0 / 1e6)
    assert (info["rounds_are"], info["against"], info["device"]) == ("process medians", "main", "sm_90/h200")
    assert json.loads(json.dumps(info)) == info


@pytest.mark.parametrize("block_us", [(), (1.0, float("nan")), (0.0,), (float("inf"),)])
def test_no_time_no_rounds(block_us: tuple[float, ...]) -> None:
    """What is no time is not given: pytest-benchmark would write NaN, or divide by it."""
    assert benchmark_rounds.rounds_of(make_judged(first=(make_process("pid 1", block_us),))) is None


def test_a_group_is_one_short_line() -> None:
    """A workload's name may hold anything; a histogram's file is named after the group."""
    group = benchmark_rounds.group_of(make_judged(key=CaseKey("s", "b", "w\n\x1b[2J" + "x" * 100_000)))
    assert group.isprintable()
    assert len(group) == 120


def test_a_machine_is_described_without_what_belongs_to_a_case() -> None:
    """Device and versions, and no timer: a file holds cases of several."""
    assert benchmark_rounds.machine_of(make_judged()) == {"driver": "580", "arch": "sm_90", "product": "h200"}
    assert benchmark_rounds.machine_of(make_judged(fingerprint=None)) == {}
