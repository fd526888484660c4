from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.baselines.code_schema import StoredKernel, as_stored
from pytest_attnperf.gate.code.code_policy import BY_POLICY, CodePolicy
from pytest_attnperf.gate.code.decide_code import CodeDecision, CurrentKernel, judge_code, judge_record
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import KernelCode, SourceLine

KEY = CaseKey("code_objects", "triton.prefill_forward", "d256-f16", "gfx942")
WHERE = "configs/prefill_forward.json"
COUNTS = {"matrix": 64, "global_load_16B": 8, "global_store_4B": 4}
BASE = KernelCode(
    "k", "gfx942", 120, 0, 120, 60, 0, 0, 0, 0, 8192, 56, 256, 512, 64, None, False, 9000, "a1b2",
    COUNTS, {"matrix": 64}, lines=(SourceLine("prefill.py", 87, "k = tl.load(k_ptrs)", {"global_load_16B": 8}),),
)  # fmt: skip


def candidate(code: KernelCode = BASE, **changes: Any) -> CurrentKernel:
    """A kernel that promises matrix instructions."""
    plain = CurrentKernel(KEY, code, {"BLOCK_M": "64"}, "triton 3.9.0", matrix=True, where=WHERE)
    return replace(plain, **changes)


def stored(code: KernelCode = BASE, **changes: Any) -> StoredKernel:
    """The same case as stored."""
    plain = StoredKernel(as_stored(code), {"BLOCK_M": "64"}, "triton 3.9.0", True, "p", "2026-01-02")
    return replace(plain, **changes)


def judged(*, before: StoredKernel | None = None, policy: CodePolicy | None = None, **changes: Any) -> CodeDecision:
    """The verdict on a kernel changed in `changes` against BASE or `before`."""
    code = replace(BASE, isa_hash="c3d4")
    return judge_code(candidate(replace(code, **changes)), before or stored(), policy or CodePolicy())


def recorded(code: KernelCode, before: StoredKernel | None = None, reason: str = "") -> CodeDecision:
    """What is said of recording a kernel."""
    return judge_record(candidate(code), before, CodePolicy(), reason)


def test_the_same_code_and_launch_are_unchanged() -> None:
    """Equal ISA hash, workgroup and dynamic LDS say all there is to say."""
    decision = judge_code(candidate(), stored(), CodePolicy())
    assert decision == CodeDecision(Verdict.SAME, "unchanged", unchanged=True)


def test_an_unknown_hash_is_never_unchanged() -> None:
    """Objects whose hash is not known on one side or on both are compared field by field."""
    for mine, theirs in (("", ""), ("c3d4", ""), ("", "a1b2")):
        decision = judged(before=stored(replace(BASE, isa_hash=theirs)), isa_hash=mine)
        assert (decision.verdict, decision.unchanged) == (Verdict.SAME, False)
        assert decision.summary == "machine code whose hash is not known, nothing worse"


def test_other_code_of_equal_worth_is_the_same() -> None:
    """Nothing worse and nothing better: SAME, and not called unchanged."""
    assert judged() == CodeDecision(Verdict.SAME, "other machine code, nothing worse")


def test_the_same_code_launched_otherwise_is_named() -> None:
    """Same ISA with another workgroup is a finding of kind launch, which warns by default and fails by policy."""
    decision = judged(isa_hash="a1b2", threads=512)
    assert (decision.verdict, decision.unchanged) == (Verdict.SAME, False)
    expected = "the same machine code, launched differently; warning: launch: 256 -> 512 lanes"
    assert decision.summary == expected
    (finding,) = decision.findings
    assert (finding.kind, finding.before, finding.after) == ("launch", "256 lanes", "512 lanes")
    strict = CodePolicy(frozenset({"launch"}))
    assert judged(isa_hash="a1b2", threads=512, policy=strict).verdict is Verdict.WORSE


def test_without_a_baseline_only_rules_count() -> None:
    """NO_BASELINE with a plain summary, unless the kernel breaks a rule by itself; the summary is then a note."""
    absent = "nothing is stored for triton.prefill_forward/d256-f16 on gfx942"
    assert judge_code(candidate(), None, CodePolicy()) == CodeDecision(Verdict.NO_BASELINE, absent)
    decision = judge_code(candidate(replace(BASE, lds_dynamic_bytes=131072)), None, CodePolicy())
    assert decision.verdict is Verdict.WORSE
    assert decision.summary == "LDS over the limit: 131,072 bytes"
    assert decision.notes == (absent,)


def test_failing_findings_make_the_summary() -> None:
    """What fails comes first with before and after, then what only warns; each finding names the setting."""
    now = candidate(
        replace(BASE, isa_hash="c3d4", vgprs=200, unified_vgprs=200, lds_dynamic_bytes=32768, code_bytes=12000),
        config={"BLOCK_M": "128"},
    )
    decision = judge_code(now, stored(), CodePolicy())
    assert decision.verdict is Verdict.WORSE
    assert decision.summary == (
        "occupancy: 4 -> 2 waves per SIMD; "
        "warning: 120 -> 200 VGPRs; LDS: 8,192 -> 32,768 bytes; code size: 9,000 -> 12,000 bytes"
    )
    assert [finding.kind for finding in decision.findings] == ["occupancy", "vgprs", "lds", "code_size"]
    assert all(f"BLOCK_M 64 -> 128 in {WHERE}" in finding.text for finding in decision.findings)
    assert decision.notes == ()


def test_warnings_leave_the_verdict() -> None:
    """A kernel that needs more VGPRs without losing a wave is SAME by default, and WORSE where the policy says so."""
    decision = judged(vgprs=128, unified_vgprs=128)
    assert (decision.verdict, decision.summary) == (Verdict.SAME, "other machine code; warning: 120 -> 128 VGPRs")
    failing = judged(vgprs=128, unified_vgprs=128, policy=CodePolicy(frozenset({"vgprs"})))
    assert (failing.verdict, failing.summary) == (Verdict.WORSE, "120 -> 128 VGPRs")


def test_improvements_are_notes() -> None:
    """What became better is said, with the advice to keep it, and is no finding."""
    decision = judged(vgprs=96, unified_vgprs=96)
    assert (decision.verdict, decision.findings) == (Verdict.SAME, ())
    assert decision.summary == (
        "other machine code; better: occupancy 4 -> 5, VGPRs 120 -> 96; update the baseline to keep it"
    )
    assert decision.notes == ("occupancy 4 -> 5", "VGPRs 120 -> 96")


def test_changed_settings_are_said_even_where_nothing_is_worse() -> None:
    """Another configuration of equal worth is a note."""
    decision = judge_code(candidate(config={"BLOCK_M": "32"}), stored(), CodePolicy())
    assert decision.unchanged
    assert decision.notes == (f"configuration differs: BLOCK_M 64 -> 32 in {WHERE}",)


def test_another_compiler_is_not_comparable() -> None:
    """Both compilers and every field that differs are named; what got worse is no finding."""
    now = candidate(replace(BASE, isa_hash="c3d4", vgprs=136, unified_vgprs=136), compiler="triton 3.10.0")
    decision = judge_code(now, stored(), CodePolicy(frozenset(BY_POLICY)))
    assert (decision.verdict, decision.findings) == (Verdict.INCOMPARABLE, ())
    assert decision.summary == (
        "not comparable: triton 3.9.0 made the baseline, triton 3.10.0 this kernel: vgprs 120 -> 136; "
        "allocated vgprs 120 -> 136; occupancy 4 -> 3; whole workgroups 4 -> 3; ISA hash a1b2 -> c3d4"
    )


def test_what_no_compiler_changes_is_still_compared() -> None:
    """Threads, arguments, the promise and the configuration are held against another compiler's baseline."""
    code = replace(BASE, isa_hash="c3d4", threads=512, kernarg_bytes=64)
    now = candidate(code, compiler="triton 3.10.0", config={"BLOCK_M": "128"}, matrix=False)
    decision = judge_code(now, stored(), CodePolicy())
    assert decision.verdict is Verdict.INCOMPARABLE
    assert [(finding.kind, finding.fails) for finding in decision.findings] == [("matrix", False), ("launch", False)]
    assert all("BLOCK_M 64 -> 128" in finding.text for finding in decision.findings)
    failing = judge_code(now, stored(), CodePolicy(frozenset({"launch"})))
    assert failing.verdict is Verdict.WORSE
    assert failing.notes[0].startswith("not comparable: triton 3.9.0 made the baseline, triton 3.10.0 this kernel: ")


def test_another_compiler_that_made_the_same_code_is_unchanged() -> None:
    """Equal machine code can be compared whoever made it; both compilers are named."""
    decision = judge_code(candidate(compiler="triton 3.10.0"), stored(), CodePolicy())
    assert (decision.verdict, decision.unchanged) == (Verdict.SAME, True)
    assert decision.notes == ("triton 3.9.0 made the baseline, triton 3.10.0 this kernel: the same machine code",)


def test_what_was_not_decoded_is_said() -> None:
    """A kernel that could not be disassembled passes with a summary and a note that say so, never in silence."""
    partly = judged(undecoded="calls or indirect branches")
    assert partly.summary == "other machine code, nothing worse; not all instructions could be checked"
    assert partly.notes == ("not checked: some instructions or loops (calls or indirect branches)",)
    decision = judged(instructions={}, in_loops={}, undecoded="no disassembler that knows gfx942")
    assert decision.verdict is Verdict.SAME
    assert decision.summary == "other machine code, nothing worse; not all instructions could be checked"
    (note,) = decision.notes
    assert note.startswith("not checked: widths of loads, loops, stores, promised matrix instructions (no disassembler")


SPILLING = replace(BASE, isa_hash="c3d4", vgpr_spills=12, scratch_bytes=48)


def test_spills_are_recorded_with_a_reason_only() -> None:
    """Without one nothing is recorded and the option is named; with one it is stored, and the spills warn."""
    for blank in ("", "  "):
        refused = recorded(SPILLING, stored(), blank)
        assert (refused.verdict, refused.accepted) == (Verdict.WORSE, "")
        assert refused.summary == "not recorded: spills: 0 registers -> 12 VGPRs; scratch: 0 -> 48 bytes"
        assert refused.notes[-1].endswith("only with a reason: --attnperf-accept=REASON")
    both = recorded(replace(SPILLING, lds_dynamic_bytes=131072), stored())
    assert [finding.kind for finding in both.findings] == ["spills", "scratch", "lds_limit"]
    assert both.notes[-1].endswith("only with a reason: --attnperf-accept=REASON")
    for before in (None, stored()):
        allowed = recorded(SPILLING, before, " faster all the same ")
        assert (allowed.verdict, allowed.accepted) == (Verdict.RECORDED, "faster all the same")
        assert [(finding.kind, finding.fails) for finding in allowed.findings] == [
            ("spills", False),
            ("scratch", False),
        ]


def test_a_reason_is_kept_while_it_covers_what_there_is() -> None:
    """Recording no more than was accepted keeps the stored reason; more needs a new one; none left needs none."""
    agreed = stored(SPILLING, accepted="tuned")
    assert recorded(SPILLING, agreed).accepted == "tuned"
    assert recorded(replace(SPILLING, vgpr_spills=2), agreed).accepted == "tuned"
    assert recorded(SPILLING, agreed, "measured again").accepted == "measured again"
    more = replace(SPILLING, vgpr_spills=13)
    assert recorded(more, agreed).verdict is Verdict.WORSE
    assert recorded(more, replace(agreed, compiler="triton 3.8.0")).verdict is Verdict.WORSE
    assert recorded(more, agreed, "one more").accepted == "one more"
    for left in ({"vgpr_spills": 1}, {"sgpr_spills": 1}, {"scratch_bytes": 4}, {"dynamic_stack": True}):
        assert recorded(replace(BASE, **left), None, "wanted").accepted == "wanted"
    cured = recorded(BASE, agreed, "for all of them")
    assert (cured.verdict, cured.summary, cured.accepted) == (Verdict.RECORDED, "recorded", "")


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"lds_dynamic_bytes": 65537}, Verdict.WORSE),
        ({"threads": 1024}, Verdict.WORSE),
        ({"instructions": {"global_store_4B": 4}}, Verdict.SUSPICIOUS),
        ({"instructions": {"matrix": 4}}, Verdict.SUSPICIOUS),
    ],
    ids=["LDS", "launch", "matrix", "store"],
)
def test_no_reason_records_a_kernel_that_cannot_work(changes: dict[str, Any], verdict: Verdict) -> None:
    """LDS over the limit, an impossible launch, no store and no promised matrix instructions are never recorded."""
    decision = recorded(replace(BASE, **changes), None, "because")
    assert (decision.verdict, decision.accepted) == (verdict, "")
    assert decision.summary.startswith("not recorded: ")


def test_what_is_merely_worse_is_recorded_with_a_warning() -> None:
    """An occupancy step down, and matrix instructions that are neither there nor promised, may become the baseline."""
    slower = recorded(replace(BASE, isa_hash="c3d4", vgprs=200, unified_vgprs=200), stored())
    assert slower.verdict is Verdict.RECORDED
    assert slower.summary.startswith("recorded, with warnings: occupancy: 4 -> 2 waves per SIMD; ")
    assert not any(finding.fails for finding in slower.findings)
    plain = replace(BASE, isa_hash="c3d4", instructions={"global_store_4B": 4}, in_loops={})
    unpromised = judge_record(candidate(plain, matrix=False), stored(), CodePolicy(), "")
    assert unpromised.verdict is Verdict.RECORDED
    assert [finding.kind for finding in unpromised.findings] == ["matrix"]


def test_recording_over_another_compilers_baseline_says_what_changed() -> None:
    """The fields that could not be compared are a note of the recording."""
    now = candidate(replace(BASE, isa_hash="c3d4", vgprs=136, unified_vgprs=136), compiler="triton 3.10.0")
    decision = judge_record(now, stored(), CodePolicy(), "")
    assert (decision.verdict, decision.summary) == (Verdict.RECORDED, "recorded")
    assert decision.notes[-1].startswith("not comparable: triton 3.9.0 made the baseline, triton 3.10.0 this kernel: ")


KERNELS = st.builds(
    lambda arch, vgprs, lds, waves, spills, counts: replace(
        BASE, arch=arch, wave_size=64 if arch.startswith("gfx9") else 32, vgprs=vgprs, unified_vgprs=vgprs,
        lds_dynamic_bytes=lds, threads=64 * waves, max_threads=0, vgpr_spills=spills, instructions=counts, in_loops={},
    ),
    arch=st.sampled_from(["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201"]),
    vgprs=st.integers(0, 256),
    lds=st.integers(0, 200_000),
    waves=st.integers(1, 16),
    spills=st.sampled_from([0, 0, 0, 1, 500]),
    counts=st.dictionaries(
        st.sampled_from(["matrix", "global_load_16B", "global_load_2B", "global_store_4B", "global_atomic", "valu"]),
        st.integers(0, 99),
    ),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(KERNELS)
def test_no_kernel_is_worse_than_itself(code: KernelCode) -> None:
    """Against its own baseline a kernel has no finding but the rules it breaks, and those it has without a baseline."""
    alone = judge_code(candidate(code), None, CodePolicy(frozenset(BY_POLICY)))
    again = judge_code(candidate(code), stored(code), CodePolicy(frozenset(BY_POLICY)))
    assert again.unchanged
    assert [finding.kind for finding in again.findings] == [finding.kind for finding in alone.findings]
    assert (again.verdict is Verdict.SAME) == (alone.verdict is Verdict.NO_BASELINE)


@settings(max_examples=300, deadline=None)
@given(KERNELS, KERNELS, st.sampled_from(["triton 3.9.0", "triton 3.10.0"]))
def test_a_verdict_fails_exactly_where_a_finding_does(new: KernelCode, old: KernelCode, compiler: str) -> None:
    """Of any two kernels: WORSE and SUSPICIOUS have a failing finding, no other verdict has one, and none is empty."""
    new = replace(new, arch=old.arch, wave_size=old.wave_size, isa_hash="c3d4")
    decision = judge_code(candidate(new, compiler=compiler), stored(old), CodePolicy())
    failing = [finding for finding in decision.findings if finding.fails]
    assert (decision.verdict in {Verdict.WORSE, Verdict.SUSPICIOUS}) == bool(failing)
    assert decision.verdict in {Verdict.WORSE, Verdict.SUSPICIOUS, Verdict.SAME, Verdict.INCOMPARABLE}
    assert decision.summary
    assert all(finding.text and finding.after for finding in decision.findings)
