"""Judges compiled kernels: compile, read, compare with the stored kernel, make a result. Nothing runs on a device."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Protocol

from pytest_attnperf import __version__
from pytest_attnperf.baselines.code_schema import entry_of
from pytest_attnperf.baselines.code_store import CodeStore, FoundKernel, NewKernel
from pytest_attnperf.codeobject.built import Built
from pytest_attnperf.codeobject.occupancy import occupancy_of
from pytest_attnperf.errors import BaselineError, CaseFailedError, CodeObjectError, WorkerError, quote_nodeid
from pytest_attnperf.gate.code.code_policy import CodePolicy
from pytest_attnperf.gate.code.decide_code import CodeDecision, CurrentKernel, judge_code, judge_record
from pytest_attnperf.gate.code.rules import occupancy_or_note
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import NOT_EXECUTED, RIGHT, WRONG, CodeExecution, CodeResult, KernelCode, Occupancy
from pytest_attnperf.session import case_records
from pytest_attnperf.session.settings import RunMode
from pytest_attnperf.workers.compile_pool import CompiledBuild

FAILING = frozenset({Verdict.INCORRECT, Verdict.WORSE, Verdict.SUSPICIOUS, Verdict.ERROR})


class Compiler(Protocol):
    """Gives compiled code objects, e.g. a pool of compile workers."""

    def compile_case(self, key: CaseKey) -> CompiledBuild:
        """Compiles the kernel of this case and returns the result. Raises WorkerError or CaseFailedError on failure."""


@dataclass(frozen=True)
class CodeCase:
    """One test item that compiles a kernel: its build, and its own policy for changes of the code object."""

    key: CaseKey
    nodeid: str
    build: KernelBuild
    policy: CodePolicy


@dataclass
class CodeSession:
    """Judges compiled kernels one at a time.

    analyse    returns the contents of a code object, from it and its declaration
    accepted   the user's reason for recording spills; '' without one
    trial      settings were changed on the command line: findings are reported, but nothing fails or is stored
    options    command line options that repeating an item needs
    """

    mode: RunMode
    compiler: Compiler
    store: CodeStore
    analyse: Callable[[Built, KernelBuild], KernelCode]
    accepted: str = ""
    trial: bool = False
    options: tuple[str, ...] = ()
    clock: Callable[[], float] = time.monotonic

    def judge(self, case: CodeCase) -> CodeResult:
        """Returns the result of one kernel. One that cannot be compiled or read is an ERROR, no exception."""
        started = self.clock()
        try:
            compiled = self.compiler.compile_case(case.key)
            result = apply_execution(self._judge_compiled(case, compiled), compiled.executed)
        except (WorkerError, CaseFailedError, CodeObjectError, BaselineError) as error:
            result = self._make_error(case, error)
        result = replace(result, seconds=self.clock() - started, fails=result.verdict in FAILING and not self.trial)
        return replace(result, reproduce=self._reproduce_command(case))

    def _judge_compiled(self, case: CodeCase, compiled: CompiledBuild) -> CodeResult:
        if compiled.outcome == "failed":
            first, _, rest = compiled.text.partition("\n")
            raise CaseFailedError(first or "the test failed", traceback=rest)
        reasons = compiled.unsupported or ((compiled.text,) if compiled.outcome == "skipped" else ())
        if reasons:
            return _make_result(case, Verdict.UNSUPPORTED, "; ".join(reasons))
        if compiled.built is None:
            return _make_result(case, Verdict.ERROR, "the test ended without calling code_object.gate(kernel_build)")
        code = self.analyse(compiled.built, case.build)
        base = _make_result(
            case,
            Verdict.SAME,
            "",
            code=code,
            occupancy=known_occupancy(code),
            config={**compiled.built.options, **case.build.settings},
            compiler=compiled.built.compiler,
            sources={**compiled.sources, **compiled.built.sources},
        )
        if compiled.foreign:
            return replace(
                base,
                verdict=Verdict.INCOMPARABLE,
                summary="code from another tree was compiled",
                notes=compiled.foreign,
            )
        return self._compare_stored(case, base, self.store.find(case.build.arch, entry_of(case.key)))

    def _compare_stored(self, case: CodeCase, base: CodeResult, found: FoundKernel | None) -> CodeResult:
        """Returns the result judged against the stored kernel `found` (None: none stored), or, in a run with
        --update-baselines, as RECORDED. A trial (compiled with other settings) is RIGHT: neither gated nor recorded."""
        assert base.code is not None
        now = CurrentKernel(case.key, base.code, base.config, base.compiler, case.build.matrix, case.build.where)
        stored = None if found is None else found.kernel
        if self.mode is RunMode.UPDATE and not self.trial:
            recorded = judge_record(now, stored, case.policy, self.accepted)
            return replace(apply_code_decision(base, recorded), accepted=recorded.accepted)
        result = apply_code_decision(base, judge_code(now, stored, case.policy))
        if stored is not None and found is not None:
            loosened = [case_records.note_loosened(what) for what in case.policy.list_loosened(found.policy)]
            result = replace(
                result,
                stored=stored.code,
                stored_occupancy=_stored_occupancy(found),
                stored_compiler=stored.compiler,
                notes=(*result.notes, *loosened),
            )
        if self.trial:
            summary = "; ".join(filter(None, ["compiled with other settings, not gated", result.summary]))
            return replace(result, verdict=Verdict.RIGHT, summary=summary)
        if result.verdict is Verdict.NO_BASELINE:
            command = f"pytest --update-baselines --attnperf-arch={case.build.arch} {quote_nodeid(case.nodeid)}"
            return replace(result, summary=f"{result.summary}; store one with: {command}")
        return result

    def _make_error(self, case: CodeCase, error: Exception) -> CodeResult:
        lines = str(error).splitlines() or [type(error).__name__]
        log = error.log_tail if isinstance(error, WorkerError) else ""
        text = error.summary if isinstance(error, WorkerError) else str(error)
        return _make_result(case, Verdict.ERROR, lines[0], notes=tuple(text.splitlines()[1:]), log=log)

    def _reproduce_command(self, case: CodeCase) -> str:
        flag = {RunMode.CHECK: "", RunMode.UPDATE: " --update-baselines"}.get(self.mode, " --attnperf")
        given = "".join(f" {option}" for option in self.options)
        arch = "" if any(option.startswith("--attnperf-arch") for option in self.options) else case.build.arch
        return f"pytest{flag}{given}{f' --attnperf-arch={arch}' if arch else ''} {quote_nodeid(case.nodeid)}"


def new_kernel(result: CodeResult, commit: str) -> NewKernel:
    """Returns a RECORDED result as the record to store in a baseline. Raises BaselineError for any other verdict."""
    if result.verdict is not Verdict.RECORDED or result.code is None:
        raise BaselineError(f"{result.key} is {result.verdict.value}: only a RECORDED result becomes a baseline")
    return NewKernel(
        code=result.code,
        config=result.config,
        compiler=result.compiler,
        matrix=result.matrix,
        policy=result.policy,
        recorded=datetime.now(timezone.utc).date().isoformat(),
        harness_version=__version__,
        commit=commit,
        accepted=result.accepted,
    )


def _stored_occupancy(found: FoundKernel) -> Occupancy | None:
    """Returns the stored kernel's occupancy; None if its architecture's limits or its workgroup are not known. Raises
    BaselineError where its figures are impossible."""
    try:
        return occupancy_of(found.kernel.code)
    except CodeObjectError as error:
        raise BaselineError(f"{found.path}: {found.kernel.code.name}: {error}; record it again") from error


def known_occupancy(code: KernelCode) -> Occupancy | None:
    """Returns the kernel's occupancy; None if it cannot be computed, which the comparison notes."""
    found = occupancy_or_note(code)
    return found if isinstance(found, Occupancy) else None


def apply_code_decision(base: CodeResult, decision: CodeDecision) -> CodeResult:
    """Returns the result with the decision's verdict, findings and notes."""
    return replace(
        base,
        verdict=decision.verdict,
        summary=decision.summary,
        findings=decision.findings,
        notes=(*base.notes, *decision.notes),
        unchanged=decision.unchanged,
    )


def apply_execution(result: CodeResult, executed: CodeExecution | None) -> CodeResult:
    """Returns the result with what executing the machine code showed: INCORRECT if it computes something wrong, ERROR
    if no proof launched it, else the verdict of the comparison, with a note if it was not executed."""
    if executed is None:
        return result
    result = replace(result, executed=executed)
    if executed.outcome == NOT_EXECUTED:
        return replace(result, notes=(*result.notes, f"not executed: {executed.text}"))
    if executed.outcome == RIGHT:
        return result
    verdict = Verdict.INCORRECT if executed.outcome == WRONG else Verdict.ERROR
    notes = (f"compared with the stored object: {result.verdict.value}, {result.summary}", *result.notes)
    return replace(result, verdict=verdict, summary=f"executed: {executed.text}", notes=notes)


def _make_result(case: CodeCase, verdict: Verdict, summary: str, **fields: Any) -> CodeResult:
    return CodeResult(
        key=case.key,
        nodeid=case.nodeid,
        verdict=verdict,
        summary=summary,
        matrix=case.build.matrix,
        policy=case.policy.to_record(),
        **fields,
    )
