"""Judges a compiled kernel again from the recorded data of its code object. Pure.

The object itself is not in a results file: registers, LDS and instructions are what the compiling job states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_attnperf.baselines.code_schema import entry_of
from pytest_attnperf.baselines.code_store import CodeStore, FoundKernel
from pytest_attnperf.codeobject.occupancy import occupancy_of
from pytest_attnperf.errors import BaselineError, CodeObjectError, UsageError
from pytest_attnperf.gate.code.code_policy import CodePolicy
from pytest_attnperf.gate.code.decide_code import CurrentKernel, judge_code
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.results import RunResult
from pytest_attnperf.session import case_records
from pytest_attnperf.session.case_records import first_line
from pytest_attnperf.session.code_session import FAILING, apply_code_decision, apply_execution, known_occupancy
from pytest_attnperf.session.rejudge.claims import plain_nodeid, reproduce_command

NOT_JUDGED = frozenset({Verdict.ERROR, Verdict.UNSUPPORTED})
"""Verdicts of kernels that may have no code to judge."""


def rejudge_code(result: CodeResult, roots: Sequence[Path]) -> CodeResult:
    """Returns a kernel's result, judged again by the stored kernel and by what executing it showed. What cannot be
    compared is an ERROR."""
    base = _without_claims(result)
    try:
        found = CodeStore(*roots).find(result.key.label, entry_of(result.key))
        judged = _judge_result(result, base, found)
        if judged.verdict not in NOT_JUDGED:
            judged = apply_execution(judged, result.executed)
    except (BaselineError, CodeObjectError, UsageError, ValueError, TypeError, KeyError, ArithmeticError) as error:
        judged = replace(base, verdict=Verdict.ERROR, summary=first_line(error))
    if judged.verdict is not result.verdict:
        judged = replace(judged, notes=(*judged.notes, f"the results file says {result.verdict.value}"))
    return replace(judged, fails=judged.verdict in FAILING)


def find_missing_code(
    runs: Sequence[RunResult], store: CodeStore, *, asked_for: bool = False, archs: Sequence[str] = ()
) -> list[str]:
    """Returns findings about stored kernels that no run judged, for each architecture that the runs compiled for.

    asked_for   compiled kernels were named as a suite: a run without a result of one is a finding
    archs       architectures that must be present, too, whatever the runs compiled for
    """
    results = [result for run in runs for result in run.code]
    judged = {(result.key.label, entry_of(result.key)) for result in results}
    lost = Counter(
        result.key.label for result in results if result.verdict is Verdict.UNSUPPORTED and _is_stored(result, store)
    )
    found = [f"{count} stored code objects for {arch} were not compiled" for arch, count in sorted(lost.items())]
    compiled = {arch for arch, _ in judged}
    for arch in sorted(compiled | set(archs)):
        try:
            stored = store.load(arch)
        except BaselineError as error:
            found.append(str(error))
            continue
        gone = [entry for entry in stored if (arch, entry) not in judged]
        if arch in archs and not stored:
            found.append(f"no code object is stored for {arch}, which is required")
        elif arch not in compiled:
            found.append(f"{arch}: {len(gone)} stored code objects but no result: the architecture was left out")
            continue
        found += [f"{entry} has a code object stored for {arch} but no result: it was removed or renamed"
                  for entry in gone]  # fmt: skip
    if asked_for and not results:
        found.append("no results file has a compiled kernel")
    return found


def _is_stored(result: CodeResult, store: CodeStore) -> bool:
    try:
        return store.find(result.key.label, entry_of(result.key)) is not None
    except BaselineError:
        return False


def _without_claims(result: CodeResult) -> CodeResult:
    """Returns the recorded data of a kernel without its verdict and findings; its verdict is ERROR for now."""
    return replace(
        result,
        nodeid=plain_nodeid(result.nodeid),
        reproduce=reproduce_command(result.nodeid),
        verdict=Verdict.ERROR,
        summary="",
        fails=False,
        findings=(),
        notes=(),
        occupancy=None,
        stored=None,
        stored_occupancy=None,
        stored_compiler="",
        unchanged=False,
        policy={},
        accepted="",
    )


def _judge_result(result: CodeResult, base: CodeResult, found: FoundKernel | None) -> CodeResult:
    stored = None if found is None else found.kernel
    policy = CodePolicy() if found is None else _parse_policy(found.policy)
    base = replace(base, policy=policy.to_record())
    if result.verdict in NOT_JUDGED:
        return replace(base, verdict=result.verdict, summary=result.summary, notes=result.notes)
    if result.code is None:
        return replace(base, summary="there is no code to judge")
    if result.code.arch != result.key.label:
        return replace(base, summary=f"the code is for {result.code.arch}, the case is of {result.key.label}")
    now = CurrentKernel(result.key, result.code, result.config, result.compiler, result.matrix)
    judged = apply_code_decision(replace(base, occupancy=known_occupancy(result.code)), judge_code(now, stored, policy))
    if result.verdict is Verdict.INCOMPARABLE and judged.verdict in (Verdict.SAME, Verdict.NO_BASELINE):
        judged = replace(judged, verdict=Verdict.INCOMPARABLE, summary=result.summary)
    if found is None or stored is None:
        return judged
    loosened = tuple(
        case_records.note_loosened(what) for what in _parse_policy(result.policy).list_loosened(found.policy)
    )
    return replace(
        judged,
        stored=stored.code,
        stored_occupancy=occupancy_of(stored.code),
        stored_compiler=stored.compiler,
        notes=(*judged.notes, *loosened),
    )


def _parse_policy(record: dict[str, object]) -> CodePolicy:
    """Returns the CodePolicy of a plain record, ignoring unknown fields. Raises UsageError if it is invalid."""
    known = {name: value for name, value in record.items() if name in ("fail_on", "growth_percent")}
    return CodePolicy(**known)  # type: ignore[arg-type]
