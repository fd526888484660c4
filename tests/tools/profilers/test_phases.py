from __future__ import annotations

import pytest

from pytest_attnperf.records.profiles import PhaseKind
from pytest_attnperf.tools.profilers.profile_comparison import compare_profiles
from pytest_attnperf.tools.profilers.profile_summary import summarise_profile
from pytest_attnperf.tools.profilers.profile_text import conclusion_lines, profile_lines, profile_tables
from tests.tools.profilers.loaded_trace import (
    CONVERTED,
    EACH,
    IDLE_SHARES,
    LOADED,
    list_loading,
    list_pass,
    make_profile,
)

SUMMARY = summarise_profile(make_profile())


def test_the_generated_trace_is_that_of_the_review() -> None:
    """708 dispatches of loading, 400 of them conversions, then 5 x 249: 1,953 in all."""
    assert (len(list_loading()), list_loading().count(CONVERTED), len(list_pass())) == (LOADED, 400, EACH)
    assert len(make_profile().dispatches) == 1953


@pytest.mark.parametrize(("passes", "layers"), [(None, None), (5, None), (5, 15), (None, 15)])
def test_loading_is_told_from_the_passes(passes: int | None, layers: int | None) -> None:
    """Five passes of 15 layers are found behind the loading, with and without their numbers given."""
    summary = summarise_profile(make_profile(), passes=passes, layers=layers)
    assert summary.passes is not None
    assert (summary.passes.count, summary.passes.layers) == (5, 15)
    assert "5 times the same 249 dispatches in one order, with 708 before them" in summary.passes.how
    assert [(phase.kind, phase.calls) for phase in summary.phases] == [
        (PhaseKind.LOADING, 708),
        (PhaseKind.PASSES, 1245),
    ]


def test_idle_time_is_of_each_phase_and_pass() -> None:
    """91 % of loading is idle; of the passes each has its own share."""
    loading, passes = SUMMARY.phases
    assert loading.idle_share == pytest.approx(0.91, abs=1e-4)
    assert passes.idle_shares == pytest.approx(IDLE_SHARES, abs=1e-4)
    assert sum(phase.total_ns for phase in SUMMARY.phases) == SUMMARY.total_ns


def test_advice_is_about_the_passes_alone() -> None:
    """Neither fills nor conversions of loading, nor its waiting, are advised on; shares and gains are of the passes."""
    lines = [line for line in conclusion_lines(SUMMARY) if line.startswith("advice")]
    assert all(line.startswith("advice for the passes: ") for line in lines)
    assert not any(word in line for line in lines for word in ("onversion", "fill", "waits between"))
    part = SUMMARY.in_passes
    assert part is not None
    assert sum(kernel.spread.calls for kernel in part.kernels) == 1245
    assert SUMMARY.advice[0].gain == pytest.approx(part.gains[0].limit)
    assert "at most 7.38x of them" in lines[0]


def test_calls_per_pass_count_the_passes_only() -> None:
    """The page gives families of the passes, and none of its 400 conversions becomes 80 per pass."""
    families = profile_tables(SUMMARY)[0]
    assert families.title == "where the time goes in the passes"
    assert all(row[0] != "conversion" for row in families.rows)
    page = "\n".join(profile_lines(SUMMARY))
    assert "phase loading: 6.180 ms in 708 dispatches, nothing ran in 91.0 % of its 68.67 ms; most time: conv" in page
    assert "(in each pass 30.0 %, 5.60 %, 5.50 %, 9.80 %, 5.60 %)" in page


def test_profiles_of_another_number_of_passes_compare_without_loading() -> None:
    """Per pass, five and ten passes behind the same loading take the same time."""
    found = compare_profiles(SUMMARY, summarise_profile(make_profile(passes=10)))
    assert found.per == "pass"
    assert found.before_ns == pytest.approx(found.after_ns)


def test_without_loading_there_are_no_phases() -> None:
    """A profile of passes alone is one phase, and is shown as a whole."""
    profile = make_profile()
    passes = summarise_profile(type(profile)("p", profile.sources, profile.dispatches.select_range(LOADED, 1953)))
    assert (passes.phases, passes.in_passes) == ((), None)
