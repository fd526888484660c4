from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.code_records import KernelCode
from pytest_attnperf.tuner.compiling import CompiledCandidate
from pytest_attnperf.tuner.machine_code import light, without_repeats
from pytest_attnperf.tuning_records import Candidate, StaticFigures

CODE = KernelCode("flash", "gfx942", 8, 0, 8, 8, 0, 0, 0, 0, 0, 0, 256, 256, 64, None, False, 64, "ab12")
A, B, C, D = (Candidate({"BLOCK": size}) for size in (16, 32, 64, 128))


def compiled(**codes: tuple[KernelCode, ...]) -> dict[str, CompiledCandidate]:
    """Candidates by letter, and what they were compiled to."""
    known = {"a": A, "b": B, "c": C, "d": D}
    return {known[letter].id: CompiledCandidate(codes=found) for letter, found in codes.items()}


def test_one_of_equal_programs_is_kept() -> None:
    """The first of two with the same machine code is timed, in the order they came in; the other names it."""
    other = replace(CODE, isa_hash="cd34")
    kept, excluded = without_repeats([A, B, C, D], compiled(a=(CODE,), b=(other,), c=(CODE,), d=(other,)), B)
    assert kept == [A, B]
    assert [(one.candidate, one.stage, one.reason) for one in excluded] == [
        (C, "same code", f"the machine code of {A.id}"),
        (D, "same code", f"the machine code of {B.id}"),
    ]


def test_the_default_is_the_one_that_is_kept() -> None:
    """Wherever it stands, what repeats the default goes: the default is what everything is held against."""
    kept, excluded = without_repeats([A, B, C], compiled(a=(CODE,), c=(CODE,)), C)
    assert (kept, [one.candidate for one in excluded]) == ([B, C], [A])


@pytest.mark.parametrize(
    "other",
    [
        (replace(CODE, isa_hash="cd34"),),
        (replace(CODE, threads=128),),
        (replace(CODE, lds_dynamic_bytes=64),),
        (CODE, CODE),
        (replace(CODE, isa_hash=""),),
        (),
    ],
)
def test_what_differs_or_is_not_known_is_kept(other: tuple[KernelCode, ...]) -> None:
    """Other code, another workgroup, other LDS, another number of kernels, and code that cannot be read."""
    kept, excluded = without_repeats([A, B], compiled(a=(CODE,), b=other), A)
    assert (kept, excluded) == ([A, B], [])


def test_unknown_code_is_no_repeat_of_unknown_code() -> None:
    """Two candidates of which nothing is known are two candidates."""
    unread = replace(CODE, isa_hash="")
    assert without_repeats([A, B], compiled(a=(unread,), b=(unread,)), A) == ([A, B], [])
    assert without_repeats([A, B], {}, A) == ([A, B], [])


def test_light_candidates_come_first() -> None:
    """Those with little private memory; all where nothing is known, and where none is light."""
    figures = StaticFigures(128, 0, 128, 0)
    static = {A.id: figures, B.id: replace(figures, scratch_bytes=129)}
    assert light([A, B, C], static) == {A.id}
    assert light([B], static) == {B.id}
    assert light([A, B], {}) == {A.id, B.id}
