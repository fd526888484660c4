"""What an equal launch identity says of a changed time, and which machine code cannot be what a case is timed for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey, Launch, Verdict
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.plausibility import find_suspicious_code, judge_by_code, unchanged_note, with_changes

FORWARD = Launch("forward", grid=(8, 1, 1), block=(128, 1, 1), shared_bytes=4096, isa_hash="a1")
GEMM = Launch("gemm", grid=(8, 1, 1), block=(256, 1, 1), isa_hash="c3")
UNREAD = replace(FORWARD, isa_hash="")
COPY = Launch("Memcpy DtoD", "copy", grid=(64,))
CHANGED_TIME = [Verdict.SLOWER, Verdict.UNDECIDED, Verdict.ENVIRONMENT, Verdict.FASTER]
HONEST = {"global_load_16B": 8, "matrix": 16, "global_store_16B": 4, "valu": 80}


def case(verdict: Verdict, *launches: Launch) -> CaseResult:
    """A case that ran this."""
    return CaseResult(CaseKey("prefill", "a", "w"), "t.py::t", verdict, "", launches=launches)


def code(counts: dict[str, int], **changed: Any) -> KernelCode:
    """A gfx942 kernel with these instructions."""
    plain = KernelCode("forward", "gfx942", 8, 0, 8, 8, 0, 0, 0, 0, 0, 0, 128, 128, 64, None, False, 64, "a1", counts)
    return replace(plain, **changed)


@pytest.mark.parametrize("verdict", CHANGED_TIME)
def test_a_changed_time_of_unchanged_code_is_named(verdict: Verdict) -> None:
    """Noise, the machine or the values: never the kernel's code. The verdict stays."""
    result = with_changes(case(verdict, FORWARD, COPY), (COPY, FORWARD))
    assert result.verdict is verdict
    assert result.notes == (
        "unchanged: the same machine code was launched in the same way as when the baseline was recorded, so the "
        "change of time is due to noise, the machine, or the values passed to it, not the kernel's code",
    )


@pytest.mark.parametrize("verdict", [Verdict.SAME, Verdict.SUSPICIOUS, Verdict.NO_BASELINE])
def test_an_unchanged_time_of_unchanged_code_needs_no_word(verdict: Verdict) -> None:
    """Where no time is said to have changed, nothing is added; a new name of the same kernel is no change either."""
    assert with_changes(case(verdict, FORWARD), (FORWARD,)).notes == ()
    assert with_changes(case(verdict, replace(FORWARD, name="v2")), (FORWARD,)).notes == ()


def test_a_new_name_is_said_beside() -> None:
    """A slower case whose kernel was only renamed is unchanged, and the name is given."""
    (note,) = with_changes(case(Verdict.SLOWER, replace(FORWARD, name="v2")), (FORWARD,)).notes
    assert note.startswith("unchanged: ")
    assert note.endswith("not the kernel's code; forward is renamed to v2, the same machine code")


@pytest.mark.parametrize(
    "launches",
    [
        (UNREAD,),
        (FORWARD, replace(GEMM, isa_hash="")),
        (replace(FORWARD, grid=(4, 1, 1)),),
        (replace(FORWARD, isa_hash="b2"),),
        (replace(FORWARD, calls=2.0),),
        (FORWARD, GEMM),
    ],
)
@pytest.mark.parametrize("verdict", CHANGED_TIME)
def test_code_that_is_not_known_to_be_unchanged_is_not_called_so(
    verdict: Verdict, launches: tuple[Launch, ...]
) -> None:
    """Unread code on either side, and any change of launch or code, leave it open what made the time."""
    for now, stored in ((launches, (FORWARD,)), ((FORWARD,), launches)):
        assert not [note for note in with_changes(case(verdict, *now), stored).notes if note.startswith("unchanged")]
        assert unchanged_note(verdict, now, stored, "as before") is None


def test_unread_code_keeps_the_weaker_words() -> None:
    """Equal names and launches of unread code may still be other code; only a slowdown is worth the words."""
    (note,) = with_changes(case(Verdict.SLOWER, UNREAD), (FORWARD,)).notes
    assert note.startswith("the same work was launched as when the baseline was recorded: the code of a kernel")
    assert with_changes(case(Verdict.FASTER, UNREAD), (FORWARD,)).notes == ()


def test_changes_of_what_ran_are_cut() -> None:
    """Of many changes five are named, and the number of the others."""
    many = tuple(Launch(f"kernel_{number}") for number in range(8))
    (note,) = with_changes(case(Verdict.SAME, *many), (FORWARD,)).notes
    assert note.startswith("what ran has changed since the baseline: no longer runs forward; runs kernel_0, which it")
    assert note.endswith("; and 4 more")


LIARS: dict[str, tuple[dict[str, int], str]] = {
    "empty": (
        {"salu": 40, "lds_write_4B": 4, "end": 4},
        "forward writes no result: its machine code for gfx942 (48 instructions) holds no store of any kind",
    ),
    "scratch only": ({"matrix": 8, "scratch_store": 90, "lds_write_16B": 2}, "forward writes no result: "),
    "zero stores": ({"matrix": 8, "global_store_4B": 0, "valu": 1}, "forward writes no result: "),
    "no matrix instructions": (
        {"valu": 4000, "dot": 9, "global_store_16B": 4},
        "the backend promises matrix instructions, but none of the kernels of a call has one for gfx942: forward",
    ),
}


@pytest.mark.parametrize("liar", LIARS)
def test_code_that_cannot_be_right_is_suspicious(liar: str) -> None:
    """An empty kernel, one that keeps its results to itself, and one that lost its matrix instructions."""
    counts, text = LIARS[liar]
    result = judge_by_code(case(Verdict.SAME, FORWARD, COPY), {"a1": code(counts)}, matrix=True)
    assert (result.verdict, result.reasons) == (Verdict.SUSPICIOUS, (result.summary,))
    assert result.summary.startswith(text)


HONEST_TWINS: dict[str, dict[str, KernelCode]] = {
    "honest": {"a1": code(HONEST)},
    "atomics only": {"a1": code({"matrix": 8, "global_atomic": 4})},
    "tile stores": {"a1": code({"matrix": 8, "global_store_tile": 1})},
    "unread": {},
    "another kernel's code": {"b2": code({"valu": 1}, isa_hash="b2")},
    "not decoded": {"a1": code({}, undecoded="no disassembler")},
    "decoded in part": {"a1": code({"valu": 1}, undecoded="calls or indirect branches")},
    "stores in a function that it calls": {"a1": code({"valu": 1, "call": 1})},
    "instructions that nobody knows": {"a1": code({"valu": 1, "other": 1})},
    "NVIDIA": {"a1": code({"valu": 1}, arch="sm_90")},
}


@pytest.mark.parametrize("twin", HONEST_TWINS)
def test_code_that_may_be_right_is_not_suspicious(twin: str) -> None:
    """What stores in any way is honest, and what is not known whole is not judged."""
    known = case(Verdict.SAME, FORWARD, COPY)
    assert judge_by_code(known, HONEST_TWINS[twin], matrix=True) == known


def test_matrix_instructions_are_asked_of_a_call() -> None:
    """One kernel of several may hold them; where one is unread it may be that one; unpromised nobody asks."""
    plain, matrix = code({"global_store_4B": 1}), code(HONEST, isa_hash="c3", name="gemm")
    assert find_suspicious_code((FORWARD, GEMM), {"a1": plain, "c3": matrix}, matrix=True) is None
    assert find_suspicious_code((FORWARD, GEMM), {"a1": plain}, matrix=True) is None
    assert find_suspicious_code((FORWARD,), {"a1": plain}, matrix=False) is None
    text = find_suspicious_code((FORWARD, GEMM), {"a1": plain, "c3": replace(plain, name="gemm")}, matrix=True)
    assert text.endswith("has one for gfx942: forward, gemm")


@pytest.mark.parametrize(
    ("arch", "asked"),
    [
        *((arch, True) for arch in ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")),
        *((arch, False) for arch in ("gfx803", "gfx900", "gfx906", "gfx90c", "gfx1030", "gfx1010")),
    ],
)
def test_matrix_instructions_are_asked_where_there_are_any(arch: str, asked: bool) -> None:
    """The promise is one of the backend's, not of the architecture: nobody keeps it without MFMA or WMMA."""
    plain = code({"global_store_4B": 1}, arch=arch)
    assert bool(find_suspicious_code((FORWARD,), {"a1": plain}, matrix=True)) is asked
