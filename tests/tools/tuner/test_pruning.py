"""Which candidates are thrown out by code object, and that the default never is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.codeobject.decoding import read_assembly
from pytest_attnperf.codeobject.issue_model import estimate_key_loop
from pytest_attnperf.errors import UsageError
from pytest_attnperf.kernel_builds import KernelBuild, TritonSource
from pytest_attnperf.records.code import KernelCode, LoopEstimate
from pytest_attnperf.tools.tuner.compiling import CompiledCandidate
from pytest_attnperf.tools.tuner.pruning import (
    PruneRules,
    describe_criterion,
    find_light_candidates,
    prune_candidates,
    rank,
    split_repeats,
    static_figures,
)
from pytest_attnperf.tuning_records import Candidate, Excluded, StaticFigures, Value

ASSEMBLY = Path(__file__).parents[2] / "data" / "assembly"
DEFAULT = Candidate({"BLOCK_M": 128})
OTHER = Candidate({"BLOCK_M": 64})
GOOD = Candidate({"BLOCK_M": 32})
CODE = KernelCode(
    name="k", arch="gfx942", vgprs=128, agprs=0, unified_vgprs=128, sgprs=40, vgpr_spills=0, sgpr_spills=0,
    scratch_bytes=0, lds_static_bytes=0, lds_dynamic_bytes=32768, kernarg_bytes=64, threads=256, max_threads=256,
    wave_size=64, wgp_mode=None, dynamic_stack=False, code_bytes=4096, isa_hash="00",
    instructions={"matrix": 32, "valu": 100, "lds_read_16B": 16},
    in_loops={"matrix": 16, "valu": 40, "lds_read_16B": 8},
)  # fmt: skip

FIGURES = StaticFigures(128, 0, 0, 32768, 2, 32, 4096, 100, 32)

FLASH = KernelCode("flash", "gfx942", 8, 0, 8, 8, 0, 0, 0, 0, 0, 0, 256, 256, 64, None, False, 64, "ab12")
A, B, C, D = (Candidate({"num_stages": count}) for count in (1, 2, 3, 4))


def excluded(default: dict[str, Any] | None = None, rules: PruneRules | None = None, **other: Any) -> list[Excluded]:
    """What is thrown out of the default, a candidate whose code is the default's but for `other`, and a good one."""
    compiled = {
        DEFAULT.id: CompiledCandidate((replace(CODE, **(default or {})),)),
        OTHER.id: CompiledCandidate((replace(CODE, **other),)),
        GOOD.id: CompiledCandidate((CODE,)),
    }
    kept, found = prune_candidates([DEFAULT, OTHER, GOOD], compiled, DEFAULT, rules or PruneRules())
    assert DEFAULT in kept
    assert GOOD in kept
    assert (OTHER in kept) == (not found)
    return found


@pytest.mark.parametrize(
    ("arch", "limit", "said"),
    [("gfx942", 65536, "65,536"), ("gfx950", 163840, "163,840"), ("sm_90", 232448, "232,448")],
)
def test_more_lds_than_a_workgroup_can_have(arch: str, limit: int, said: str) -> None:
    """One byte beyond the architecture's limit is thrown out, naming both; the limit itself is kept."""
    nvidia: dict[str, Any] = {"wave_size": 32, "threads": 128} if arch == "sm_90" else {}
    assert excluded(arch=arch, lds_dynamic_bytes=limit, **nvidia) == []
    (found,) = excluded(arch=arch, lds_dynamic_bytes=limit + 1, **nvidia)
    assert found.stage == "code object"
    assert found.reason == (
        f"{limit + 1:,} bytes of LDS, and a workgroup of {arch} can have {said}: no launch succeeds"
    )
    assert found.static is not None
    assert found.static.lds_bytes == limit + 1


def test_a_workgroup_whose_registers_fit_nowhere() -> None:
    """1,024 threads of 128 registers are more than an SM of Hopper has."""
    (found,) = excluded(arch="sm_90", vgprs=128, threads=1024, wave_size=32)
    assert "no workgroup of 1024 threads with 128 registers each fits" in found.reason


def test_registers_that_no_kernel_can_have() -> None:
    """An object that asks for more than the architecture can address cannot be launched."""
    (found,) = excluded(vgprs=300)
    assert found.reason.startswith("no launch succeeds: vgprs 300")


@pytest.mark.parametrize(
    ("default", "candidate", "thrown_out"),
    [
        ({}, {"vgpr_spills": 17}, "17 registers are spilled to memory; the default spills 0"),
        ({}, {"vgpr_spills": 16, "scratch_bytes": 64}, ""),
        ({"vgpr_spills": 40}, {"vgpr_spills": 60}, ""),
        ({"vgpr_spills": 40}, {"vgpr_spills": 61}, "61 registers are spilled to memory; the default spills 40"),
        ({}, {"scratch_bytes": 68}, "68 bytes of private memory per lane (spills); the default has 0"),
        ({"vgpr_spills": None}, {"vgpr_spills": None, "scratch_bytes": 400}, "400 bytes of private memory"),
        ({"scratch_bytes": 400}, {"scratch_bytes": 600}, ""),
        ({"vgpr_spills": None}, {"vgpr_spills": 100}, ""),
    ],
)
def test_spills_are_held_against_the_defaults(
    default: dict[str, Any], candidate: dict[str, Any], thrown_out: str
) -> None:
    """A few spilled registers are timed; clearly more than the default's are not."""
    found = excluded(default, **candidate)
    assert [one.reason[: len(thrown_out)] for one in found] == ([thrown_out] if thrown_out else [])


def test_no_matrix_instruction_where_the_default_has_some() -> None:
    """A kernel that fell back to plain arithmetic is thrown out; one that was not disassembled is kept."""
    plain = {"valu": 4000}
    (found,) = excluded(instructions=plain, in_loops=plain)
    assert found.reason == "no matrix instruction; the default has 32"
    assert excluded(instructions={}, in_loops={}, undecoded="no disassembler") == []
    assert excluded({"instructions": plain}, instructions=plain) == []


def test_a_candidate_that_does_not_compile_is_thrown_out_with_its_reason() -> None:
    """One that nobody could compile here is kept: that says nothing of it."""
    compiled = {
        OTHER.id: CompiledCandidate(failure="BLOCK_M must divide 64"),
        GOOD.id: CompiledCandidate(unsupported=("triton is not installed",)),
    }
    kept, found = prune_candidates([DEFAULT, OTHER, GOOD], compiled, DEFAULT)
    assert kept == [DEFAULT, GOOD]
    assert found == [Excluded(OTHER, "compile", "does not compile: BLOCK_M must divide 64")]


@pytest.mark.parametrize(
    "default", [CompiledCandidate(failure="no"), CompiledCandidate((replace(CODE, lds_dynamic_bytes=1 << 20),))]
)
def test_the_default_is_never_thrown_out(default: CompiledCandidate) -> None:
    """Not where it does not compile, and not where no launch of it succeeds."""
    kept, found = prune_candidates([DEFAULT, GOOD], {DEFAULT.id: default, GOOD.id: CompiledCandidate((CODE,))}, DEFAULT)
    assert (kept, found) == ([DEFAULT, GOOD], [])


def test_nothing_is_compared_with_a_default_that_does_not_compile() -> None:
    """Spills without a default's beside them are timed."""
    compiled = {
        DEFAULT.id: CompiledCandidate(failure="no"),
        GOOD.id: CompiledCandidate((replace(CODE, vgpr_spills=50),)),
    }
    assert prune_candidates([DEFAULT, GOOD], compiled, DEFAULT) == ([DEFAULT, GOOD], [])


def test_no_candidate_left_is_an_error_that_counts_the_reasons() -> None:
    """Reasons are grouped whatever their figures are."""
    spilling = [Candidate({"BLOCK_M": size}) for size in (16, 32, 64)]
    compiled = {one.id: CompiledCandidate((replace(CODE, vgpr_spills=90 + n),)) for n, one in enumerate(spilling)}
    compiled[DEFAULT.id] = CompiledCandidate((CODE,))
    compiled[spilling[0].id] = CompiledCandidate(failure="no such instruction")
    with pytest.raises(UsageError, match=r"no candidate is worth timing: 3 excluded: 2 .91 registers") as caught:
        prune_candidates([DEFAULT, *spilling], compiled, DEFAULT)
    assert "1 (does not compile: no such instruction)" in str(caught.value)


def test_a_fault_of_any_build_counts() -> None:
    """A candidate of two kernels is compared kernel by kernel: the second may have no matrix instruction either."""
    combine = replace(CODE, instructions={"valu": 9}, in_loops={})
    compiled = {
        DEFAULT.id: CompiledCandidate((CODE, combine)),
        GOOD.id: CompiledCandidate((CODE, combine)),
        OTHER.id: CompiledCandidate((CODE, replace(combine, vgpr_spills=30))),
    }
    kept, found = prune_candidates([DEFAULT, OTHER, GOOD], compiled, DEFAULT)
    assert (kept, [one.candidate for one in found]) == ([DEFAULT, GOOD], [OTHER])


def test_figures_are_the_worst_of_all_kernels() -> None:
    """Sizes by the largest, occupancy by the least, instructions of all; unknown where one is not known."""
    heavy = replace(CODE, unified_vgprs=200, vgprs=200, vgpr_spills=None, lds_dynamic_bytes=1024)
    found = static_figures([CODE, heavy])
    assert (found.registers, found.spills, found.lds_bytes) == (200, 0, 32768)
    assert (found.occupancy, found.matrix, found.loop_instructions, found.loop_lds) == (2, 32, 128, 16)
    assert static_figures([replace(CODE, undecoded="why")]).matrix is None
    assert static_figures([replace(CODE, arch="sm_70")]).occupancy is None
    with pytest.raises(ValueError, match="at least one kernel"):
        static_figures([])


def loop(cycles: float) -> LoopEstimate:
    """The estimate of a loop that takes so many cycles, of which its products need 512."""
    return LoopEstimate(2, cycles, 512.0, 512, 400, 100, 16, 90, 17, 7, 28, 4, 20, 4)


def test_the_worst_loop_of_all_kernels_counts() -> None:
    """Kernels without an estimate, such as one that combines parts, do not; without any there is none."""
    found = static_figures([replace(CODE, key_loop=loop(1024)), replace(CODE, key_loop=loop(2048)), CODE])
    assert found.peak_share == 0.25
    assert static_figures([CODE]).peak_share is None


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
        ({"peak_share": 0.5, "matrix": 5, "occupancy": 1, "registers": 320}, {"peak_share": 0.4}),
        ({"peak_share": 0.3}, {"peak_share": 0.6, "spills": 1}),
        ({"peak_share": 0.3}, {"peak_share": 0.6, "scratch_bytes": 4}),
        ({"peak_share": 0.1, "matrix": 5}, {"peak_share": None}),
        ({"peak_share": 0.5, "matrix": 40}, {"peak_share": 0.5}),
    ],
)
def test_what_costs_most_counts_first(better: dict[str, Any], worse: dict[str, Any]) -> None:
    """Spills, then estimated cycles per key, matrix share, LDS traffic, waves up to two, registers, size; what is not
    known comes last."""
    assert order(a=better, b=worse) == "a b"
    assert order(b=better, a=worse) == "b a"


def of_compiled_loop(name: str, arch: str, **changed: Any) -> StaticFigures:
    """Figures of the flash kernel with that key loop, as compiled by Triton, and these resources."""
    listing = read_assembly((ASSEMBLY / f"prefill-{name}-{arch}.s").read_text(), "key_loop")
    code = replace(CODE, arch=arch, **changed)
    return static_figures([replace(code, key_loop=estimate_key_loop(code, [listing.instructions]))])


def test_variants_that_a_review_found_better_come_first() -> None:
    """On gfx942 two stages before one, on gfx950 tiles of 64 keys and two stages before 32 and one; and one wave with
    320 registers, which the share of matrix instructions put first, behind both."""
    heavy: dict[str, Any] = {"vgprs": 256, "agprs": 64, "unified_vgprs": 320}
    known = {
        "gfx942": {
            "shipped": of_compiled_loop("shipped", "gfx942", vgprs=212, unified_vgprs=212),
            "two-stages": of_compiled_loop("two-stages", "gfx942", vgprs=224, unified_vgprs=224),
            "one-wave": of_compiled_loop("two-stages", "gfx942", **heavy),
        },
        "gfx950": {
            "shipped": of_compiled_loop("shipped", "gfx950", vgprs=194, unified_vgprs=194),
            "wide-two-stages": of_compiled_loop(
                "wide-two-stages", "gfx950", vgprs=255, unified_vgprs=255, lds_dynamic_bytes=67520
            ),
            "one-wave": of_compiled_loop("shipped", "gfx950", **heavy),
        },
    }
    ranked = {
        arch: [one.label for one in rank({Candidate({}, name): figures for name, figures in found.items()}, arch)]
        for arch, found in known.items()
    }
    assert ranked == {
        "gfx942": ["two-stages", "shipped", "one-wave"],
        "gfx950": ["wide-two-stages", "shipped", "one-wave"],
    }


def test_a_hip_kernel_with_two_waves_comes_before_one() -> None:
    """The same loop with Q in registers: less LDS, so that a second workgroup fits."""
    two, one = (of_compiled_loop("shipped", "gfx942", lds_dynamic_bytes=size) for size in (32_768, 51_456))
    assert (two.occupancy, one.occupancy) == (2, 1)
    assert rank({Candidate({}, "one"): one, Candidate({}, "two"): two}, "gfx942")[0].label == "two"


def test_the_criterion_is_named() -> None:
    """What an order rests on differs by architecture."""
    assert describe_criterion([FIGURES, replace(FIGURES, peak_share=0.4)]) == (
        "fewest cycles per key without spills, estimated by a static issue model, +-30 %, never run"
    )
    assert describe_criterion([FIGURES]).startswith("spills, share of matrix instructions")


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
    other = replace(FLASH, isa_hash="cd34")
    kept, excluded = split_repeats([A, B, C, D], compiled(a=(FLASH,), b=(other,), c=(FLASH,), d=(other,)), EVERY, B)
    assert kept == [A, B]
    assert [(one.candidate, one.stage, one.reason) for one in excluded] == [
        (C, "same code", f"the machine code of {A.id}"),
        (D, "same code", f"the machine code of {B.id}"),
    ]


def test_the_default_is_the_one_that_is_kept() -> None:
    """Wherever it stands, what repeats the default goes: the default is what everything is held against."""
    kept, excluded = split_repeats([A, B, C], compiled(a=(FLASH,), c=(FLASH,)), EVERY, C)
    assert (kept, [one.candidate for one in excluded]) == ([B, C], [A])


@pytest.mark.parametrize(
    "other",
    [
        (replace(FLASH, isa_hash="cd34"),),
        (replace(FLASH, threads=128),),
        (replace(FLASH, lds_dynamic_bytes=64),),
        (FLASH, FLASH),
        (replace(FLASH, isa_hash=""),),
        (),
    ],
)
def test_what_differs_or_is_not_known_is_kept(other: tuple[KernelCode, ...]) -> None:
    """Other code, another workgroup, other LDS, another number of kernels, and code that cannot be read."""
    kept, excluded = split_repeats([A, B], compiled(a=(FLASH,), b=other), EVERY, A)
    assert (kept, excluded) == ([A, B], [])


def test_unknown_code_is_no_repeat_of_unknown_code() -> None:
    """Two candidates of which nothing is known are two candidates."""
    unread = replace(FLASH, isa_hash="")
    assert split_repeats([A, B], compiled(a=(unread,), b=(unread,)), EVERY, A) == ([A, B], [])
    assert split_repeats([A, B], {}, EVERY, A) == ([A, B], [])


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
    codes = {each.id: CompiledCandidate(codes=(FLASH,)) for each in (first, second)}
    kept, _ = split_repeats([first, second], codes, builds(first, second, constants=constants), first)
    assert kept == ([first] if same else [first, second])


def test_light_candidates_come_first() -> None:
    """Those with little private memory; all where nothing is known, and where none is light."""
    figures = StaticFigures(128, 0, 128, 0)
    static = {A.id: figures, B.id: replace(figures, scratch_bytes=129)}
    assert find_light_candidates([A, B, C], static) == {A.id}
    assert find_light_candidates([B], static) == {B.id}
    assert find_light_candidates([A, B], {}) == {A.id, B.id}
