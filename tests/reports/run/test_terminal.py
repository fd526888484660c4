from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import TypeAlias

import pytest

from pytest_attnperf.records import CheckReport, ErrorFigures, ProcessSummary, Tolerance, Verdict
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.reports.run.overview import ORDER
from pytest_attnperf.reports.run.terminal import closing_lines, failure_text, find_outlier
from pytest_attnperf.reports.text.colour import Ink
from pytest_attnperf.results import CaseResult, RunResult

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]

KEY = "prefill/triton.flash/prefill-b4-s512-h8-d256-f16-causal"
COMMAND = 'pytest --attnperf "suites/test_prefill.py::test_prefill[triton.flash-prefill-b4-s512-h8-d256-f16-causal]"'
EXPLAINED = "explained by: attnperf explain prefill/triton.flash/prefill-b4-s512-h8-d256-f16-causal"
WRONG = ErrorFigures("seed 7", "out", 0.5, 0.002, 0.01, 0.0002, (0, 3, 1, 5), 1.25, 0.75, 0, 0, 4096)


def test_slower_says_what_changed(case: CaseFactory) -> None:
    """A SLOWER failure gives both times, the ratio with its interval, what was allowed, both looks, and the command."""
    slower = case(reasons=("threshold 2.0 %",), notes=("the canary moved by 1 %",))
    assert failure_text(slower).splitlines() == [
        f"SLOWER: {KEY}",
        "+6.1 % against stored",
        "  24.60 us -> 26.10 us per call, +6.1 % (95 %: +5.2 % .. +7.0 %), allowed +2.0 %",
        "  first look: 26.10 us (26.00 .. 26.20), 3 processes, graph timer",
        "  second look: 26.10 us (26.05 .. 26.15), 2 processes, graph timer",
        "  threshold 2.0 %",
        "  note: the canary moved by 1 %",
        "reproduce with:",
        COMMAND,
        EXPLAINED,
    ]


def test_pairs_have_their_own_line(case: CaseFactory) -> None:
    """An interleaved look says against what, how far its pairs lie apart, and what it took; the first look stays."""
    pairs = tuple(PairSummary(ratio, 24.6, 26.1, 12, "graph", seconds=1.25) for ratio in (1.058, 1.063, 1.061))
    text = failure_text(case(second=(), pairs=pairs, against="main\n(4f2c1ab)"))
    assert text.splitlines()[2:5] == [
        "  24.60 us -> 26.10 us per call, +6.1 % (95 %: +5.2 % .. +7.0 %), allowed +2.0 %",
        "  first look: 26.10 us (26.00 .. 26.20), 3 processes, graph timer",
        "  interleaved against main (4f2c1ab): +5.8 % .. +6.3 % in 3 pairs of fresh processes, 12 quads each, "
        "3.8 s of turns",
    ]
    assert "interleaved" not in failure_text(case())


def incorrect(case: CaseFactory, *figures: ErrorFigures, problems: tuple[str, ...] = ("too far",)) -> list[str]:
    """Lines of an INCORRECT failure with these figures."""
    tolerance = Tolerance(3.0, "the paper, table 4")
    check = CheckReport(figures, problems, tolerance)
    wrong = case(verdict=Verdict.INCORRECT, median_us=None, first=(), second=(), checks=(check,))
    return failure_text(wrong).splitlines()


ALLOWED = "  errors up to 3 x the plain computation's are allowed (the paper, table 4)"
SHOWN = replace(
    WRONG,
    around_first=3,
    around_got=(0.5, 0.25, 1.25, "nan"),
    around_expected=(0.5, 0.25, 0.75, "-inf"),
)


def test_incorrect_says_what_no_problem_says(case: CaseFactory) -> None:
    """An output that no problem names is shown with position, neighbours, and every error with its budget."""
    right = ErrorFigures("seed 7", "lse", 1e-4, 2e-3, 1e-5, 2e-4)
    lines = incorrect(case, SHOWN, right)
    assert lines[2:5] == [
        "  too far",
        "  seed 7: out[0, 3, 1, 5] is 1.25, expected 0.75; max error 0.5 (allowed 0.002), "
        "rms 0.01 (allowed 0.0002); around it: got 0.5 0.25 *1.25* nan, expected 0.5 0.25 0.75 -inf",
        ALLOWED,
    ]
    assert not any("lse" in line for line in lines)


def test_numbers_are_not_said_twice(case: CaseFactory) -> None:
    """An output whose problem is printed has no line of figures, also where the problem is the summary."""
    problem = (
        "seed 7: 'out' is off by 0.5 at (0, 3, 1, 5), allowed is 0.002 (250 x the budget): got 1.25, expected 0.75"
    )
    assert incorrect(case, SHOWN, problems=(problem,))[2:4] == [f"  {problem}", ALLOWED]
    check = CheckReport((SHOWN,), (f"eager right, replay wrong: {problem}",))
    summary = f"eager right, replay wrong: {problem}"
    text = failure_text(case(verdict=Verdict.INCORRECT, summary=summary, reasons=(summary,), checks=(check,)))
    assert text.count("1.25") == 1
    assert "  errors up to 2 x the plain computation's are allowed" in text.splitlines()


def test_every_output_without_a_problem_is_shown(case: CaseFactory) -> None:
    """A problem of one output, or of another check, does not hide the figures of the next."""
    problem = "seed 7: 'out' is off by 0.5"
    lines = incorrect(case, WRONG, replace(WRONG, output="out2"), replace(WRONG, check="seed 77"), problems=(problem,))
    assert [line.split(" is ")[0] for line in lines[3:5]] == [
        "  seed 7: out2[0, 3, 1, 5]",
        "  seed 77: out[0, 3, 1, 5]",
    ]


def test_the_tolerance_is_said_beside_whatever_is_wrong(case: CaseFactory) -> None:
    """A sourced tolerance is printed with every INCORRECT, the default where an error was held against it."""
    moved = ("timed inputs: the call changed its inputs",)
    assert ALLOWED in incorrect(case, problems=moved)
    default = CheckReport((), moved)
    assert "errors up to" not in failure_text(case(verdict=Verdict.INCORRECT, checks=(default,)))


@pytest.mark.parametrize("counts", [(3, 0, 0), (0, 3, 0), (1, 2, 0), (0, 0, 3)])
def test_not_finite_outputs_have_no_errors_to_print(case: CaseFactory, counts: tuple[int, int, int]) -> None:
    """Of an output that violates the pattern of NaN and Inf only the problem is said, not the largest float."""
    largest = sys.float_info.max
    nan_count, inf_count, finite_count = counts
    figures = replace(
        WRONG,
        max_error=largest,
        rms_error=largest,
        nan_count=nan_count,
        inf_count=inf_count,
        finite_count=finite_count,
    )
    lines = incorrect(case, figures, problems=("replay: 'out' holds 3 NaN among 4096 elements",))
    assert lines[2:] == [
        "  replay: 'out' holds 3 NaN among 4096 elements",
        ALLOWED,
        "reproduce with:",
        COMMAND,
        EXPLAINED,
    ]


@pytest.mark.parametrize("error", [inf, nan])
def test_an_error_that_is_no_number_is_printed(case: CaseFactory, error: float) -> None:
    """A finite output whose error overflowed, or is NaN, counts as beyond its budget."""
    assert any(
        f"max error {error:g} (allowed 0.002)" in line for line in incorrect(case, replace(WRONG, max_error=error))
    )


def test_many_problems_are_cut(case: CaseFactory) -> None:
    """A kernel wrong everywhere does not bury the command."""
    lines = incorrect(case, problems=tuple(f"problem {number}" for number in range(50)))
    assert "  ... and 38 more" in lines
    assert lines[-2:] == [COMMAND, EXPLAINED]


def test_a_problem_is_said_once(case: CaseFactory) -> None:
    """A problem that the reasons already give is not repeated."""
    check = CheckReport((WRONG,), ("too far",))
    text = failure_text(case(verdict=Verdict.INCORRECT, reasons=("too far",), checks=(check,)))
    assert text.count("too far") == 1


def test_a_traceback_keeps_its_lines(case: CaseFactory) -> None:
    """A reason of several lines is printed as such, without the line that is the summary already."""
    reason = "call: ValueError: off\ndef f():\n>       raise ValueError\x1b[0m\n\nE       ValueError: off"
    wrong = case(verdict=Verdict.ERROR, summary="call: ValueError: off", reasons=(reason,), first=(), second=())
    assert failure_text(replace(wrong, median_us=None)).splitlines()[1:] == [
        "call: ValueError: off",
        "  def f():",
        "  >       raise ValueError [0m",
        "  E       ValueError: off",
        "reproduce with:",
        COMMAND,
        EXPLAINED,
    ]


def test_error_ends_with_log_and_command(case: CaseFactory) -> None:
    """An ERROR failure shows the log's tail without its control characters, then the command."""
    log = "\n".join([*(f"line {number}" for number in range(60)), "\x1b[31mSegmentation fault\x1b[0m"])
    lines = failure_text(case(verdict=Verdict.ERROR, summary="the worker died", log=log)).splitlines()
    assert "  | ... 21 lines before ..." in lines
    assert lines[-4:] == ["  |  [31mSegmentation fault [0m", "reproduce with:", COMMAND, EXPLAINED]


def test_closing_line(case: CaseFactory, run: RunFactory) -> None:
    """One line counts every verdict, worst first, and names the slowest case with its interval."""
    cases = [
        *(case(f"same{number}", verdict=Verdict.SAME, ratio=1.2) for number in range(3)),
        case("other", ratio=1.03),
        case("fast", verdict=Verdict.FASTER, ratio=0.9),
        case(),
        case("unsure", verdict=Verdict.UNDECIDED),
    ]
    assert closing_lines(run(*cases), ".attnperf/results.json") == [
        f"2 slower, 1 undecided, 3 same, 1 faster on sm_90/h200; slowest: {KEY} +6.1 % (95 %: +5.2 % .. +7.0 %)",
        "results: .attnperf/results.json",
    ]


def test_what_the_comparisons_would_have_found(case: CaseFactory, run: RunFactory) -> None:
    """Behind the verdicts stands what they are worth: the slowdown that half of the looks would have shown."""
    cases = [case(f"b{index}", detection_limit=limit) for index, limit in enumerate((0.01, 0.023, 0.4, None))]
    assert closing_lines(run(*cases))[1] == "half of the compared cases could detect a slowdown of 2.3 %"
    assert closing_lines(run(cases[0], cases[3]))[1] == "half of the compared cases could detect a slowdown of 1.0 %"
    assert closing_lines(run(cases[0]))[1] == "the one compared case could detect a slowdown of 1.0 %"
    long = "d/" * 300 + "results.json"
    assert closing_lines(run(cases[3]), long)[-1] == f"results: {long}"
    assert len(closing_lines(run(cases[3]))) == 1


def test_the_closing_line_is_painted_by_the_worst(case: CaseFactory, run: RunFactory) -> None:
    """Red where something failed, yellow where something is unresolved, else nothing."""
    mixes = {
        "\x1b[1;31m": (Verdict.SAME, Verdict.SLOWER, Verdict.UNDECIDED),
        "\x1b[33m": (Verdict.SAME, Verdict.NO_BASELINE, Verdict.UNSUPPORTED),
        "1 unsupported, ": (Verdict.FASTER, Verdict.SAME, Verdict.UNSUPPORTED),
    }
    for begin, verdicts in mixes.items():
        made = run(*(case(verdict=verdict, ratio=None) for verdict in verdicts))
        assert closing_lines(made, ink=Ink.ansi())[0].startswith(begin)


def test_every_verdict_is_counted(case: CaseFactory, run: RunFactory) -> None:
    """No verdict is missing from the closing line's order."""
    assert sorted(ORDER) == sorted(Verdict)
    line = closing_lines(run(*(case(verdict=verdict, ratio=None) for verdict in Verdict)))[0]
    assert line.count("1 ") == len(Verdict)
    assert "1 without baseline" in line


def test_no_slowest_when_nothing_is_slower(case: CaseFactory, run: RunFactory) -> None:
    """A run where everything is faster or unmeasured names no slowest case."""
    cases = (case(verdict=Verdict.FASTER, ratio=0.9), case("b", verdict=Verdict.INCOMPARABLE, ratio=None))
    assert closing_lines(run(*cases)) == ["1 incomparable, 1 faster on sm_90/h200"]


def test_gated_nothing(case: CaseFactory, run: RunFactory) -> None:
    """A gating run that judged nothing says so; a run that was not to judge does not."""
    cases = [case(verdict=Verdict.NO_BASELINE, ratio=None)]
    text = "gated 0 of 5: nothing was compared with a baseline"
    assert text in closing_lines(run(*cases, gated=0, selected=5))
    assert text not in closing_lines(run(*cases, gated=0, selected=5, mode="update"))


def test_gated_nothing_but_compared(case: CaseFactory, run: RunFactory) -> None:
    """A case that is undecided was compared, unless the budget ended before it was measured."""
    unmeasured = case("b", verdict=Verdict.UNDECIDED, ratio=None)
    cases = [case(verdict=Verdict.UNDECIDED, ratio=1.2), unmeasured]
    assert "gated 0 of 5: 1 compared, but undecided" in closing_lines(run(*cases, gated=0, selected=5))
    nothing = "gated 0 of 5: nothing was compared with a baseline"
    assert nothing in closing_lines(run(unmeasured, gated=0, selected=5))


def test_incomplete_findings_and_baselines(case: CaseFactory, run: RunFactory) -> None:
    """An interrupted run, findings and written files each have their line, in one line each."""
    lines = closing_lines(
        run(
            case(),
            selected=9,
            complete=False,
            findings=("policy\nloosened",),
            baseline_paths=("baselines/sm_90/h200/prefill.json",),
        )
    )
    assert lines[1:] == [
        "incomplete: 1 of 9 selected cases have a result",
        "finding: policy loosened",
        "baseline written: baselines/sm_90/h200/prefill.json",
    ]


def test_no_cases_and_no_device(run: RunFactory) -> None:
    """An empty run without a device still closes with a sentence."""
    assert closing_lines(run(device=None, mode="check")) == ["no cases"]


def test_a_recording_with_one_odd_process_says_so(case: CaseFactory, run: RunFactory) -> None:
    """One process of seven far from the others is named with its time; processes that all scatter are not."""
    medians = (10.478, 10.465, 14.103, 10.472, 10.459, 10.469, 10.529)
    odd = tuple(ProcessSummary(us, us, us, (us,), 10, "graph") for us in medians)
    wide = tuple(replace(process, median_us=10.0 + number) for number, process in enumerate(odd))
    cases = [
        case(name, verdict=Verdict.RECORDED, fails=False, first=first) for name, first in (("a", odd), ("b", wide))
    ]
    lines = [line for line in closing_lines(run(*cases, mode="update")) if "far from the others" in line]
    assert lines == [
        f"recorded with one process far from the others, which hides slowdowns; record again: {cases[0].key} (14.10 us)"
    ]
    assert not [line for line in closing_lines(run(replace(cases[0], verdict=Verdict.SAME))) if "far from" in line]


def test_what_was_not_timed_and_what_is_held_stand_at_the_end(case: CaseFactory, run: RunFactory) -> None:
    """How many were gated and how many unchanged, what was left to nightly runs, and every quarantine with its link;
    the verdict's colour is not that of a quarantined case."""
    held = case(fails=False, quarantined="https://a.b/7 until 2026-02-10")
    right = case("c", verdict=Verdict.RIGHT, fails=False, median_us=None, unchanged=True)
    made = run(held, right, gated=2, left_to_nightly=(held.key,))
    lines = closing_lines(made, ink=Ink.ansi())
    assert lines[0] == closing_lines(made)[0]
    assert lines[1:] == [
        "1 gated, 1 unchanged (not timed)",
        "1 case left to nightly runs (--attnperf-tier=nightly)",
        f"{KEY}: SLOWER, quarantined: https://a.b/7 until 2026-02-10",
    ]
    many = closing_lines(run(*(held,) * 12))
    assert (len(many), many[-1]) == (12, "and 2 more quarantined cases")


def test_why_cases_have_no_time_stands_at_the_end(case: CaseFactory, run: RunFactory) -> None:
    """Each reason once with the number of its cases, where times were asked for."""
    right = case(verdict=Verdict.RIGHT, fails=False, median_us=None, summary="interpreted: says nothing")
    other = case("c", verdict=Verdict.RIGHT, fails=False, median_us=None, summary="on a CPU: says nothing")
    lines = ["2 right, interpreted: says nothing", "1 right, on a CPU: says nothing"]
    assert closing_lines(run(right, right, other))[1:3] == lines
    assert closing_lines(run(right, right, other, mode="check"))[1:] == []


@pytest.mark.parametrize(
    ("medians", "far"),
    [
        ((10.0, 10.1, 14.0, 10.05), 14.0),
        ((10.0, 10.1, 6.0, 10.05), 6.0),
        ((10.0, 10.1, 10.4, 10.05), None),  # within 5 %
        ((10.0, 11.0, 12.0, 14.0), None),  # all of them scatter
        ((10.0, 10.1, 14.0), None),  # two cannot outvote one
        ((10.0, 10.1, 14.0, 14.1), None),  # two levels
    ],
)
def test_an_outlier_is_one_process_far_from_all_others(medians: tuple[float, ...], far: float | None) -> None:
    """By 5 % of their times, and three times as far as the others lie apart."""
    found = find_outlier([ProcessSummary(us, us, us, (us,), 10, "graph") for us in medians])
    assert (found.median_us if found else None) == far
