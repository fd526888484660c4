"""Kernels that look good and are not, each with the gate's answer; and honest ones beside them that must pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.baselines.code_schema import StoredKernel, as_stored
from pytest_attnperf.codeobject.amdgcn import classify
from pytest_attnperf.codeobject.occupancy import occupancy_of
from pytest_attnperf.gate.code.code_policy import CodePolicy
from pytest_attnperf.gate.code.decide_code import CodeDecision, CurrentKernel, judge_code, judge_record
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import KernelCode, SourceLine

KEY = CaseKey("code_objects", "triton.prefill_forward", "d256-f16", "gfx942")
DOT = SourceLine("prefill.py", 93, "acc = tl.dot(p, v, acc)", {"matrix": 64})
HONEST = KernelCode(
    "k", "gfx942", 136, 0, 136, 60, 0, 0, 0, 0, 8192, 56, 256, 512, 64, None, False, 9000, "a1b2",
    {"matrix": 64, "global_load_16B": 8, "global_store_4B": 4, "valu": 700}, {"matrix": 64}, lines=(DOT,),
)  # fmt: skip
LENIENT = CodePolicy(frozenset(), 1000)
"""Everything that can be switched off is."""

STUB = KernelCode(
    "flash_attention", "gfx1151", 4, 0, 4, 16, 0, 0, 0, 1152, 0, 40, 256, 256, 32, True, False, 248, "e0e0",
    dict(Counter(map(classify, [
        "s_clause", "s_load_b64", "s_load_b128", "v_and_b32_e32", "v_bfe_u32", "s_waitcnt", "v_mad_u64_u32",
        "global_load_u16", "global_load_u16", "s_waitcnt", "ds_store_b16", "ds_store_b16", "s_barrier", "s_endpgm",
        *["v_add_nc_u32_e32"] * 20, *["s_delay_alu"] * 14,
    ]))),
)  # fmt: skip
"""The kernel of a published gfx1151 profile: its body was compiled away, and 48 instructions that copy Q into LDS and
end are left. It has the best registers, LDS and occupancy of all."""


def judged(
    code: KernelCode, old: KernelCode | None = HONEST, policy: CodePolicy = LENIENT, **changes: Any
) -> CodeDecision:
    """The verdict on a kernel against what is stored; `changes` are the candidate's own fields."""
    before = None if old is None else StoredKernel(as_stored(old), {}, "triton 3.9.0", True, "p", "2026-01-02")
    return judge_code(replace(CurrentKernel(KEY, code, {}, "triton 3.9.0", matrix=True), **changes), before, policy)


def failing(decision: CodeDecision) -> list[str]:
    """Kinds of the findings that fail."""
    return [finding.kind for finding in decision.findings if finding.fails]


@pytest.mark.parametrize("promises", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_an_empty_kernel_at_full_occupancy(promises: bool, known: bool) -> None:
    """4 VGPRs and 16 of 16 waves, and no store: SUSPICIOUS with and without a baseline, and never recorded."""
    occupancy = occupancy_of(STUB)
    assert occupancy is not None
    assert (occupancy.waves_per_simd, sum(STUB.instructions.values())) == (16, 48)
    full = replace(HONEST, arch="gfx1151", wave_size=32, wgp_mode=True)
    decision = judged(STUB, full if known else None, matrix=promises)
    assert decision.verdict is Verdict.SUSPICIOUS
    assert "store" in failing(decision)
    assert "no store of any kind in 48 instructions: its results never reach memory" in decision.findings[0].text
    recording = judge_record(CurrentKernel(KEY, STUB, matrix=promises), None, LENIENT, "it is so fast")
    assert recording.verdict is Verdict.SUSPICIOUS


@pytest.mark.parametrize("promises", [True, False])
def test_a_kernel_that_lost_its_matrix_instructions(promises: bool) -> None:
    """Without v_mfma it fails, also where the promise was withdrawn in the same change, or is broken unpromised."""
    lost = replace(HONEST, isa_hash="c3", instructions={"valu": 4000, "global_store_4B": 4}, in_loops={})
    decision = judged(lost, matrix=promises)
    assert (decision.verdict, failing(decision)) == (Verdict.SUSPICIOUS, ["matrix"])
    unpromised = judge_code(
        CurrentKernel(KEY, lost, {}, "triton 3.9.0"),
        StoredKernel(HONEST, {}, "triton 3.9.0", False, "p", "2026-01-02"),
        LENIENT,
    )
    assert (unpromised.verdict, failing(unpromised)) == (Verdict.WORSE, ["matrix"])


def test_matrix_instructions_lost_with_another_compiler() -> None:
    """The promise holds whoever compiled it."""
    lost = replace(HONEST, isa_hash="c3", instructions={"valu": 4000, "global_store_4B": 4}, in_loops={})
    assert judged(lost, compiler="triton 3.10.0").verdict is Verdict.SUSPICIOUS


@pytest.mark.parametrize(
    "mnemonics", [["scratch_store_dwordx4"], ["ds_write_b128", "ds_write_b64"], ["ds_add_u32"], ["s_nop"]]
)
def test_stores_that_leave_nothing_behind(mnemonics: list[str]) -> None:
    """Stores to scratch, to LDS, and atomics on LDS carry no result out of the kernel."""
    counts = {"matrix": 64, **Counter(map(classify, mnemonics))}
    decision = judged(replace(HONEST, isa_hash="c3", instructions=counts), None)
    assert (decision.verdict, failing(decision)) == (Verdict.SUSPICIOUS, ["store"])


@pytest.mark.parametrize("changes", [{"vgpr_spills": 1}, {"sgpr_spills": 1}, {"scratch_bytes": 4}])
@pytest.mark.parametrize("compiler", ["triton 3.9.0", "triton 3.10.0"])
@pytest.mark.parametrize("known", [True, False])
def test_a_kernel_that_spills_one_register(changes: dict[str, int], compiler: str, known: bool) -> None:
    """One register in memory fails with and without a baseline, by either compiler, whatever the policy."""
    decision = judged(replace(HONEST, isa_hash="c3", **changes), HONEST if known else None, compiler=compiler)
    assert decision.verdict is Verdict.WORSE
    assert failing(decision) in (["spills"], ["scratch"])


def test_one_spill_more_than_was_accepted() -> None:
    """An acceptance of 12 is none of 13, and one of VGPRs is none of SGPRs."""
    agreed = StoredKernel(replace(HONEST, vgpr_spills=12), {}, "triton 3.9.0", True, "p", "d", accepted="tuned")
    for changes in ({"vgpr_spills": 13}, {"vgpr_spills": 0, "sgpr_spills": 1}):
        now = CurrentKernel(KEY, replace(HONEST, isa_hash="c3", **changes), {}, "triton 3.9.0", matrix=True)
        assert judge_code(now, agreed, LENIENT).verdict is Verdict.WORSE
        assert judge_record(now, agreed, LENIENT, "").verdict is Verdict.WORSE


def test_lds_over_the_limit_by_a_byte() -> None:
    """65,537 bytes on gfx942, static and dynamic together, fail; so does the same object if it is already stored."""
    over = replace(HONEST, lds_static_bytes=1, lds_dynamic_bytes=65536)
    for old in (None, HONEST, over):
        decision = judged(over, old)
        assert (decision.verdict, failing(decision)) == (Verdict.WORSE, ["lds_limit"])


def test_occupancy_kept_in_the_compilers_form_only() -> None:
    """The compiler prints 3 waves for both, but of workgroups of 512 lanes the hardware runs 2 waves per SIMD."""
    large = replace(HONEST, isa_hash="c3", threads=512)
    before, after = occupancy_of(HONEST), occupancy_of(large)
    assert before is not None
    assert after is not None
    assert (before.waves_per_simd, after.waves_per_simd) == (3, 3)
    decision = judged(large, policy=CodePolicy())
    assert (decision.verdict, failing(decision)) == (Verdict.WORSE, ["occupancy"])
    assert decision.summary.startswith("occupancy: 3 -> 2 waves per SIMD in whole workgroups")


def test_occupancy_lost_to_the_hardwares_granule() -> None:
    """On gfx1151 512 bytes of LDS more cost nothing in the compiler's form; the hardware hands out 1,024 at a time."""
    old = replace(HONEST, arch="gfx1151", wave_size=32, wgp_mode=True, vgprs=64, unified_vgprs=64)
    tight = replace(old, lds_dynamic_bytes=25600)
    decision = judged(replace(tight, isa_hash="c3", lds_dynamic_bytes=26112), tight, CodePolicy())
    assert failing(decision) == ["occupancy"]
    assert decision.summary.startswith("occupancy: 10 -> 8 waves per SIMD in whole workgroups")


def test_another_compiler_hides_no_step_behind_the_word_same() -> None:
    """A kernel that got worse with another compiler is INCOMPARABLE with its waves named; it never passes as SAME."""
    slow = replace(HONEST, isa_hash="c3", vgprs=250, unified_vgprs=250)
    decision = judged(slow, compiler="triton 3.10.0", policy=CodePolicy())
    assert decision.verdict is Verdict.INCOMPARABLE
    assert "occupancy 3 -> 2" in decision.summary


def test_the_stored_hash_of_another_launch() -> None:
    """Equal machine code with another workgroup is not called unchanged."""
    decision = judged(replace(HONEST, threads=128))
    assert not decision.unchanged
    assert [finding.kind for finding in decision.findings] == ["launch"]


def test_hiding_behind_what_cannot_be_decoded() -> None:
    """A kernel nobody could disassemble does not fail for it, but it never passes in silence."""
    decision = judged(replace(HONEST, isa_hash="c3", instructions={}, in_loops={}, undecoded="calls"))
    assert decision.verdict is Verdict.SAME
    assert decision.summary.endswith("; not all instructions could be checked")
    assert any(note.startswith("not checked: ") and "stores" in note for note in decision.notes)


def test_narrow_loads_behind_further_wide_ones() -> None:
    """Wide loads added outside the loop keep the mean up; those inside it are looked at by themselves."""
    padded = {**HONEST.instructions, "global_load_16B": 400, "global_load_2B": 8}
    old = replace(HONEST, in_loops={"matrix": 64, "global_load_16B": 8})
    decision = judged(
        replace(old, isa_hash="c3", instructions=padded, in_loops={"matrix": 64, "global_load_2B": 8}), old
    )
    assert [finding.kind for finding in decision.findings] == ["wider_loads"]


def test_honest_the_same_code_renamed() -> None:
    """Another symbol and another compiler's name for it change no machine code."""
    decision = judged(replace(HONEST, name="prefill_forward_kernel_0d1d2d"), policy=CodePolicy())
    assert (decision.verdict, decision.summary) == (Verdict.SAME, "unchanged")


def test_honest_debug_information_and_moved_lines() -> None:
    """Line tables that came, went or moved with an edit above them are no finding."""
    for lines in ((), (replace(DOT, line=400),), (replace(DOT, text=""),)):
        assert judged(replace(HONEST, lines=lines), policy=CodePolicy()).summary == "unchanged"


def test_honest_fewer_registers() -> None:
    """A kernel that needs less passes under the strictest policy."""
    strict = CodePolicy.from_text("all", "0")
    less = replace(HONEST, isa_hash="c3", vgprs=128, unified_vgprs=128, sgprs=40, lds_dynamic_bytes=8000)
    decision = judged(less, policy=replace(strict, fail_on=strict.fail_on - {"launch"}))
    assert (decision.verdict, failing(decision)) == (Verdict.SAME, [])
    assert "better: occupancy 3 -> 4" in decision.summary


@pytest.mark.parametrize(
    "mnemonic",
    [
        "global_atomic_add_f32",
        "buffer_store_dwordx4",
        "flat_store_dword",
        "global_store_b16",
        "buffer_atomic_pk_add_f16",
        "flat_atomic_add",
        "image_store",
    ],
)
def test_honest_any_way_to_write_memory_is_a_store(mnemonic: str) -> None:
    """A kernel whose only stores are atomics, buffer or flat stores does its work."""
    counts = {"matrix": 64, classify(mnemonic): 1}
    assert judged(replace(HONEST, instructions=counts), None).verdict is Verdict.NO_BASELINE


def test_honest_a_kernel_without_a_promise() -> None:
    """A softmax has no matrix instructions and promised none."""
    plain = replace(HONEST, instructions={"valu": 100, "global_store_16B": 2}, in_loops={})
    assert judged(plain, None, matrix=False).verdict is Verdict.NO_BASELINE
