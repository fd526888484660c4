"""Which candidates are thrown out by code object, and that the default never is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.tools.tuner.compiling import CompiledCandidate
from pytest_attnperf.tools.tuner.pruning import PruneRules, prune, static_figures
from pytest_attnperf.tuning_records import Candidate, Excluded

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


def excluded(default: dict[str, Any] | None = None, rules: PruneRules | None = None, **other: Any) -> list[Excluded]:
    """What is thrown out of the default, a candidate whose code is the default's but for `other`, and a good one."""
    compiled = {
        DEFAULT.id: CompiledCandidate((replace(CODE, **(default or {})),)),
        OTHER.id: CompiledCandidate((replace(CODE, **other),)),
        GOOD.id: CompiledCandidate((CODE,)),
    }
    kept, found = prune([DEFAULT, OTHER, GOOD], compiled, DEFAULT, rules or PruneRules())
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
        ({}, {"vgpr_spills": 17}, "17 registers are spilled to memory; of the default 0"),
        ({}, {"vgpr_spills": 16, "scratch_bytes": 64}, ""),
        ({"vgpr_spills": 40}, {"vgpr_spills": 60}, ""),
        ({"vgpr_spills": 40}, {"vgpr_spills": 61}, "61 registers are spilled to memory; of the default 40"),
        ({}, {"scratch_bytes": 68}, "68 bytes of private memory per lane (spills); of the default 0"),
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
    kept, found = prune([DEFAULT, OTHER, GOOD], compiled, DEFAULT)
    assert kept == [DEFAULT, GOOD]
    assert found == [Excluded(OTHER, "compile", "does not compile: BLOCK_M must divide 64")]


@pytest.mark.parametrize(
    "default", [CompiledCandidate(failure="no"), CompiledCandidate((replace(CODE, lds_dynamic_bytes=1 << 20),))]
)
def test_the_default_is_never_thrown_out(default: CompiledCandidate) -> None:
    """Not where it does not compile, and not where no launch of it succeeds."""
    kept, found = prune([DEFAULT, GOOD], {DEFAULT.id: default, GOOD.id: CompiledCandidate((CODE,))}, DEFAULT)
    assert (kept, found) == ([DEFAULT, GOOD], [])


def test_nothing_is_compared_with_a_default_that_does_not_compile() -> None:
    """Spills without a default's beside them are timed."""
    compiled = {
        DEFAULT.id: CompiledCandidate(failure="no"),
        GOOD.id: CompiledCandidate((replace(CODE, vgpr_spills=50),)),
    }
    assert prune([DEFAULT, GOOD], compiled, DEFAULT) == ([DEFAULT, GOOD], [])


def test_no_candidate_left_is_an_error_that_counts_the_reasons() -> None:
    """Reasons are grouped whatever their figures are."""
    spilling = [Candidate({"BLOCK_M": size}) for size in (16, 32, 64)]
    compiled = {one.id: CompiledCandidate((replace(CODE, vgpr_spills=90 + n),)) for n, one in enumerate(spilling)}
    compiled[DEFAULT.id] = CompiledCandidate((CODE,))
    compiled[spilling[0].id] = CompiledCandidate(failure="no such instruction")
    with pytest.raises(UsageError, match=r"no candidate is worth timing: 3 thrown out: 2 .91 registers") as caught:
        prune([DEFAULT, *spilling], compiled, DEFAULT)
    assert "1 (does not compile: no such instruction)" in str(caught.value)


def test_a_fault_of_any_build_counts() -> None:
    """A candidate of two kernels is compared kernel by kernel: the second may have no matrix instruction either."""
    combine = replace(CODE, instructions={"valu": 9}, in_loops={})
    compiled = {
        DEFAULT.id: CompiledCandidate((CODE, combine)),
        GOOD.id: CompiledCandidate((CODE, combine)),
        OTHER.id: CompiledCandidate((CODE, replace(combine, vgpr_spills=30))),
    }
    kept, found = prune([DEFAULT, OTHER, GOOD], compiled, DEFAULT)
    assert (kept, [one.candidate for one in found]) == ([DEFAULT, GOOD], [OTHER])


def test_figures_are_the_worst_of_all_kernels() -> None:
    """Sizes by the largest, occupancy by the least, instructions of all; unknown where one is not known."""
    heavy = replace(CODE, unified_vgprs=200, vgprs=200, vgpr_spills=None, lds_dynamic_bytes=1024)
    found = static_figures([CODE, heavy])
    assert (found.registers, found.spills, found.lds_bytes) == (200, 0, 32768)
    assert (found.occupancy, found.matrix, found.loop_instructions, found.loop_lds) == (2, 32, 128, 16)
    assert static_figures([replace(CODE, undecoded="why")]).matrix is None
    assert static_figures([replace(CODE, arch="sm_70")]).occupancy is None
    with pytest.raises(ValueError, match="figures of no kernels"):
        static_figures([])
