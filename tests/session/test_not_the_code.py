"""Suspects that run what their entry ran, and what a look with the stored choice makes of others; without processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.gate import not_the_code as gate
from pytest_attnperf.records import Verdict
from pytest_attnperf.results import CaseResult

if TYPE_CHECKING:
    from tests.session.conftest import Bench

KERNELS = [{"name": "attention", "isa_hash": "a" * 40}]
STORED, CHOSEN = {"autotuned.forward": "num_warps: 4"}, {"autotuned.forward": "num_warps: 8"}
SOURCES = {"source_id": "s1"}


@pytest.fixture
def known(bench: Bench) -> Bench:
    """The case is stored with its machine code, its autotuner's choice and its sources."""
    bench.record(kernels=KERNELS, config=STORED, final=SOURCES)
    return bench


def judge(bench: Bench, **scripted: Any) -> CaseResult:
    """The case, 5 % slower unless it says otherwise."""
    return bench.judge(**{"kernels": KERNELS, "config": STORED, "final": SOURCES, "time_us": 105.0, **scripted})


def test_what_cannot_be_told_from_chance_is_moved_too(known: Bench) -> None:
    """UNDECIDED would fail a strict run of unchanged code."""
    between = {"time_us": 102.4}
    assert judge(known, **between, final={}).verdict is Verdict.UNDECIDED
    assert judge(known, **between).verdict is Verdict.MOVED


def test_a_canary_that_moved_is_no_other_verdict(known: Bench) -> None:
    """The canary is named among the reasons, and the code's identity decides."""
    result = judge(known, canary_us=210.0)
    assert result.verdict is Verdict.MOVED
    assert any("canary GEMM" in reason for reason in result.reasons)
    assert judge(known, canary_us=210.0, final={}).verdict is Verdict.ENVIRONMENT


def test_one_process_with_other_sources_is_enough(known: Bench) -> None:
    """Also where it is not the first: somebody edits while a run measures."""
    known.pool.by_place = {2: {"final": {"source_id": "s2"}}}
    assert judge(known).verdict is Verdict.SLOWER


def test_the_stored_choice_is_asked_for_as_often(known: Bench) -> None:
    """Three looks that are told the stored configuration, behind the second look's three, in the same processes; in the
    fake pool they are as slow, so that the case is SLOWER and says so."""
    result = judge(known, config=CHOSEN, kernels=["other"])
    assert known.pool.visited == [0, 1, 2, 3, 1, 2, 3]
    assert known.pool.pins == [{}] * 4 + [STORED] * 3
    assert (result.verdict, len(result.second), len(result.pinned)) == (Verdict.SLOWER, 3, 3)
    assert result.reasons[0].startswith("with the autotuner's stored choice it is slower, too: +")


@pytest.mark.parametrize(
    ("final", "asked", "said"), [({"source_id": "s2"}, 4, gate.OTHER_TUNED), ({}, 4, gate.NOT_READ), (SOURCES, 7, "")]
)
def test_other_sources_need_no_further_look(known: Bench, final: dict[str, str], asked: int, said: str) -> None:
    """They may be why an autotuner chose otherwise: no time of the stored choice would say that they are not."""
    result = judge(known, config=CHOSEN, final=final)
    assert (result.verdict, len(known.pool.visited)) == (Verdict.SLOWER if said else Verdict.MOVED, asked)
    assert not said or said in result.reasons


def test_a_stored_choice_that_breaks_is_no_error_of_the_case(known: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asked for it but this look; the case stays SLOWER, and says why it could not be timed."""
    plain = known.pool.case_at

    def breaking(place: int, request: Any) -> Any:
        if request.pin:
            raise CaseFailedError("its autotuner no longer offers it\nand more")
        return plain(place, request)

    monkeypatch.setattr(known.pool, "case_at", breaking)
    result = judge(known, config=CHOSEN)
    assert (result.verdict, result.pinned) == (Verdict.SLOWER, ())
    assert result.reasons[0] == gate.note_not_pinned("its autotuner no longer offers it")


def test_pairs_know_nothing_of_it(known: Bench) -> None:
    """A base side settles a suspect by its times, whatever ran: SLOWER than it is slower."""
    known.against_base(kernels=KERNELS, config=STORED, final=SOURCES)
    assert judge(known).verdict is Verdict.SLOWER
