from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.kernel_builds import KernelBuild, TritonSource
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.tools.tuner.compiling import CompiledCandidate
from pytest_attnperf.tools.tuner.machine_code import light, without_repeats
from pytest_attnperf.tuning_records import Candidate, StaticFigures, Value

CODE = KernelCode("flash", "gfx942", 8, 0, 8, 8, 0, 0, 0, 0, 0, 0, 256, 256, 64, None, False, 64, "ab12")
A, B, C, D = (Candidate({"num_stages": count}) for count in (1, 2, 3, 4))


def compiled(**codes: tuple[KernelCode, ...]) -> dict[str, CompiledCandidate]:
    """Candidates by letter, and what they were compiled to."""
    known = {"a": A, "b": B, "c": C, "d": D}
    return {known[letter].id: CompiledCandidate(codes=found) for letter, found in codes.items()}


def builds(
    *candidates: Candidate, constants: tuple[str, ...] = (), options: tuple[str, ...] = ("num_stages",)
) -> dict[str, list[KernelBuild]]:
    """What candidates are compiled as, by id: a kernel with these of their values as constants and options."""
    found = {}
    for candidate in candidates:
        held, asked = (
            {name: candidate.values[name] for name in names if name in candidate.values}
            for names in (constants, options)
        )
        source = TritonSource("kernels", "flash", {}, held, options=asked)
        found[candidate.id] = [KernelBuild("flash", "", "gfx942", source)]
    return found


EVERY = builds(A, B, C, D)


def test_one_of_equal_programs_is_kept() -> None:
    """The first of two with the same machine code is timed, in the order they came in; the other names it."""
    other = replace(CODE, isa_hash="cd34")
    kept, excluded = without_repeats([A, B, C, D], compiled(a=(CODE,), b=(other,), c=(CODE,), d=(other,)), EVERY, B)
    assert kept == [A, B]
    assert [(one.candidate, one.stage, one.reason) for one in excluded] == [
        (C, "same code", f"the machine code of {A.id}"),
        (D, "same code", f"the machine code of {B.id}"),
    ]


def test_the_default_is_the_one_that_is_kept() -> None:
    """Wherever it stands, what repeats the default goes: the default is what everything is held against."""
    kept, excluded = without_repeats([A, B, C], compiled(a=(CODE,), c=(CODE,)), EVERY, C)
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
    kept, excluded = without_repeats([A, B], compiled(a=(CODE,), b=other), EVERY, A)
    assert (kept, excluded) == ([A, B], [])


def test_unknown_code_is_no_repeat_of_unknown_code() -> None:
    """Two candidates of which nothing is known are two candidates."""
    unread = replace(CODE, isa_hash="")
    assert without_repeats([A, B], compiled(a=(unread,), b=(unread,)), EVERY, A) == ([A, B], [])
    assert without_repeats([A, B], {}, EVERY, A) == ([A, B], [])


@pytest.mark.parametrize(
    ("values", "constants", "same"),
    [
        ((("PROGRAMS", 528), ("PROGRAMS", 1056)), (), False),
        ((("PROGRAMS", 1), ("PROGRAMS", 2)), ("PROGRAMS",), False),
        ((("SPLIT", False), ("SPLIT", True)), (), False),
        ((("PRELOAD_V", False), ("PRELOAD_V", True)), ("PRELOAD_V",), True),
    ],
)
def test_equal_code_that_is_launched_otherwise(
    values: tuple[tuple[str, Value], ...], constants: tuple[str, ...], same: bool
) -> None:
    """What only the launcher reads, and numbers of the kernel that may make its grid, tell candidates of one code
    apart; a switch that the kernel alone reads does not.
    """
    first, second = (Candidate({name: value, "num_stages": 1}) for name, value in values)
    codes = {each.id: CompiledCandidate(codes=(CODE,)) for each in (first, second)}
    kept, _ = without_repeats([first, second], codes, builds(first, second, constants=constants), first)
    assert kept == ([first] if same else [first, second])


def test_light_candidates_come_first() -> None:
    """Those with little private memory; all where nothing is known, and where none is light."""
    figures = StaticFigures(128, 0, 128, 0)
    static = {A.id: figures, B.id: replace(figures, scratch_bytes=129)}
    assert light([A, B, C], static) == {A.id}
    assert light([B], static) == {B.id}
    assert light([A, B], {}) == {A.id, B.id}
