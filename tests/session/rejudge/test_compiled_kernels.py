"""Compiled kernels of a results file, judged anew against what is stored of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.baselines.code_schema import entry_of
from pytest_attnperf.baselines.code_store import CodeStore, NewKernel, code_path
from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.code.code_policy import CodePolicy
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeExecution, CodeResult, KernelCode
from pytest_attnperf.results import RESULTS_SCHEMA, RunResult
from pytest_attnperf.session.rejudge.compiled_kernels import find_missing_code, rejudge_code
from pytest_attnperf.session.rejudge.timed_cases import RejudgeSettings, rejudge_run

LOOSENED = "policy loosened since the baseline:"

KEY = CaseKey("code_objects", "triton.flash", "d256-f16", "gfx942")
CODE = KernelCode(
    "k", "gfx942", 120, 0, 120, 60, 0, 0, 0, 0, 8192, 56, 256, 512, 64, None, False, 9000, "a1b2",
    {"matrix": 64, "global_load_16B": 8, "global_store_4B": 4}, {"matrix": 64},
)  # fmt: skip
SPILLING = replace(CODE, isa_hash="c3d4", vgpr_spills=140, scratch_bytes=500)
POLICY = CodePolicy().to_record()
HONEST = CodeResult(
    KEY, "suites/test_code.py::t", Verdict.SAME, "unchanged", code=CODE, compiler="triton 3.9.0", matrix=True,
    policy=POLICY, unchanged=True,
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Baselines with one kernel."""
    kernel = NewKernel(CODE, {}, "triton 3.9.0", True, POLICY, "2026-01-01", "0")
    CodeStore(tmp_path).merge(tmp_path, "gfx942", {entry_of(KEY): kernel, "triton.old/d64": kernel})
    return tmp_path


def _judged(root: Path, **fields: object) -> CodeResult:
    return rejudge_code(replace(HONEST, **fields), (root,))  # type: ignore[arg-type]


def test_an_honest_kernel_is_judged_to_what_it_says(root: Path) -> None:
    """Unchanged machine code is SAME, and passes."""
    again = _judged(root)
    assert (again.verdict, again.summary, again.fails, again.unchanged) == (Verdict.SAME, "unchanged", False, True)
    assert again.stored == CODE


def test_a_forged_verdict_over_spilling_code_is_worse(root: Path) -> None:
    """SAME over code that spills is WORSE, fails, and says what the file said."""
    again = _judged(root, code=SPILLING, fails=False)
    assert (again.verdict, again.fails) == (Verdict.WORSE, True)
    assert "spills" in again.summary
    assert "the results file says SAME" in again.notes
    assert _judged(root, code=SPILLING, verdict=Verdict.RIGHT).verdict is Verdict.WORSE
    assert _judged(root, code=SPILLING, verdict=Verdict.INCOMPARABLE).verdict is Verdict.WORSE


def test_what_was_executed_wrong_stays_incorrect(root: Path) -> None:
    """A wrong execution decides over equal machine code, whatever verdict the file has; a right one does not."""
    wrong = CodeExecution("wrong", "'out' is off by 3")
    for verdict in (Verdict.INCORRECT, Verdict.SAME):
        again = _judged(root, executed=wrong, verdict=verdict)
        assert (again.verdict, again.fails, again.summary) == (Verdict.INCORRECT, True, "executed: 'out' is off by 3")
    assert _judged(root, executed=CodeExecution("right")).verdict is Verdict.SAME
    unproven = _judged(root, executed=CodeExecution("unproven", "not launched"), verdict=Verdict.ERROR, summary="s")
    assert (unproven.verdict, unproven.summary) == (Verdict.ERROR, "s")


def test_a_promise_that_was_withdrawn_still_holds(root: Path) -> None:
    """Without matrix instructions the kernel is SUSPICIOUS: the baseline promised them."""
    without = replace(CODE, isa_hash="c3d4", instructions={"global_load_16B": 8, "global_store_4B": 4}, in_loops={})
    assert _judged(root, code=without, matrix=False).verdict is Verdict.SUSPICIOUS


def test_what_cannot_be_judged_is_an_error(root: Path) -> None:
    """No code, code of another architecture, a name that is a path, a store that is damaged."""
    for fields in ({"code": None}, {"code": replace(CODE, arch="gfx90a")}, {"key": replace(KEY, label="../x")}):
        again = _judged(root, **fields)
        assert (again.verdict, again.fails) == (Verdict.ERROR, True), fields
        assert again.summary
    code_path(root, "gfx942").write_text("{")
    assert _judged(root).verdict is Verdict.ERROR


def test_what_was_not_compiled_keeps_what_it_says(root: Path) -> None:
    """UNSUPPORTED stays so and is a finding where it is stored; ERROR fails; unknown kernels have no baseline."""
    lost = _judged(root, verdict=Verdict.UNSUPPORTED, summary="no compiler", code=None)
    assert (lost.verdict, lost.summary, lost.fails) == (Verdict.UNSUPPORTED, "no compiler", False)
    assert _judged(root, verdict=Verdict.ERROR, summary="broken", code=None).fails
    new = _judged(root, key=replace(KEY, backend="triton.new"))
    assert new.verdict is Verdict.NO_BASELINE
    foreign = _judged(root, verdict=Verdict.INCOMPARABLE, summary="code from another tree was compiled")
    assert (foreign.verdict, foreign.summary) == (Verdict.INCOMPARABLE, "code from another tree was compiled")


def test_a_loosened_policy_and_missing_kernels_are_findings(root: Path) -> None:
    """The stored policy counts; a kernel without a result is named, and so is one that was not compiled."""
    loose = replace(HONEST, policy={"fail_on": [], "growth_percent": 50.0})
    run = RunResult(RESULTS_SCHEMA, "0", "gate", "", "", "", None, None, (), selected=1, code=(loose,))
    again = rejudge_run(run, BaselineStore(root), RejudgeSettings())
    assert again.code[0].policy == POLICY
    assert again.gated == 1
    assert [LOOSENED in finding for finding in again.findings] == [True, True, False]
    assert again.findings[2] == (
        "triton.old/d64 has a code object stored for gfx942 but no result: it was removed or renamed"
    )
    lost = replace(run, code=(replace(HONEST, verdict=Verdict.UNSUPPORTED),))
    assert find_missing_code([lost], CodeStore(root))[0] == "1 stored code objects for gfx942 were not compiled"


def test_an_architecture_that_was_left_out_is_a_finding(root: Path) -> None:
    """Whole architectures are missed where they were asked for: one by one, or all that are stored."""
    kernel = NewKernel(replace(CODE, arch="gfx950"), {}, "triton 3.9.0", True, POLICY, "2026-01-01", "0")
    CodeStore(root).merge(root, "gfx950", {entry_of(KEY): kernel})
    run = RunResult(RESULTS_SCHEMA, "0", "gate", "", "", "", None, None, (), selected=1, code=(HONEST,))
    gone = "triton.old/d64 has a code object stored for gfx942 but no result: it was removed or renamed"
    left_out = "gfx950: 1 stored code objects but no result: the architecture was left out"

    def findings(*archs: str) -> tuple[str, ...]:
        return rejudge_run(run, BaselineStore(root), RejudgeSettings(archs=archs)).findings

    assert findings() == findings("gfx942") == (gone,)
    assert findings("all") == findings("gfx942", "gfx950") == (gone, left_out)
    assert "no code object is stored for gfx1100, which is required" in findings("gfx1100")
    nothing = rejudge_run(replace(run, code=(), selected=0), BaselineStore(root), RejudgeSettings(archs=("all",)))
    assert nothing.findings[-1] == "no results file has a compiled kernel"
    with pytest.raises(UsageError, match="--arch requires every stored kernel, --filtered"):
        RejudgeSettings(archs=("all",), filtered=True)
