"""The order of candidates that nobody timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.kernel_builds import KernelBuild, TritonSource
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.tools.tuner.compiling import CompiledCandidate
from pytest_attnperf.tools.tuner.static_rank import light, rank, without_repeats
from pytest_attnperf.tuning_records import Candidate, StaticFigures, Value

FIGURES = StaticFigures(128, 0, 0, 32768, 2, 32, 4096, 100, 32)

CODE = KernelCode("flash", "gfx942", 8, 0, 8, 8, 0, 0, 0, 0, 0, 0, 256, 256, 64, None, False, 64, "ab12")
A, B, C, D = (Candidate({"num_stages": count}) for count in (1, 2, 3, 4))


def order(arch: str = "gfx942", **changed: dict[str, Any]) -> str:
    """Names of candidates in rank, each with these figures changed."""
    known = {Candidate({}, name): replace(FIGURES, **figures) for name, figures in changed.items()}
    return " ".join(candidate.label for candidate in rank(known, arch))


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"matrix": 5, "occupancy": 1}, {"spills": 16}),
        ({"spills": 15, "registers": 96}, {}),
        ({"spills": None, "scratch_bytes": 0}, {"spills": None, "scratch_bytes": 256}),
        ({"matrix": 40, "occupancy": 1}, {"matrix": 20}),
        ({"loop_lds": 16, "occupancy": 1}, {"loop_lds": 64}),
        ({"occupancy": 2, "registers": 256}, {"occupancy": 1}),
        ({"registers": 96}, {"occupancy": 4}),
        ({"registers": 96}, {"registers": 160}),
        ({"code_bytes": 2000}, {"code_bytes": 9000}),
        ({}, {"matrix": None}),
        ({}, {"occupancy": None}),
        ({}, {"matrix": 0}),
    ],
)
def test_what_costs_most_counts_first(better: dict[str, Any], worse: dict[str, Any]) -> None:
    """Spills, then matrix share, LDS traffic, waves up to two, registers, size; what is not known comes last."""
    assert order(a=better, b=worse) == "a b"
    assert order(b=better, a=worse) == "b a"


def test_equal_candidates_keep_the_order_of_their_names() -> None:
    """The same figures give the same order, however they are listed."""
    assert order(c={}, a={}, b={}) == order(b={}, c={}, a={}) == "a b c"


def test_small_differences_do_not_hide_a_later_figure() -> None:
    """One point of matrix share is less than a step: the waves decide."""
    assert order(a={"matrix": 31, "occupancy": 1}, b={"matrix": 30, "occupancy": 2}) == "b a"


def test_three_warps_of_a_sub_partition_count_on_nvidia() -> None:
    """Hopper's warp groups are three warps; two are enough on AMD."""
    changed = {"a": {"occupancy": 2, "registers": 96}, "b": {"occupancy": 3, "registers": 160}}
    assert (order("gfx942", **changed), order("sm_90", **changed)) == ("a b", "b a")


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
