"""Decides the verdict on a compiled kernel: by rules that it must meet, and by comparison with the stored kernel. Pure.

WORSE where a finding fails by policy, SUSPICIOUS where the kernel cannot do its job. Findings that only warn leave the
verdict. One compiler makes the same machine code of the same source every time, so there is no noise and no second
look. For a kernel that another compiler made, only the rules and what no compiler may change are judged; the rest is
INCOMPARABLE.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_attnperf.baselines.code_schema import StoredKernel, entry_of
from pytest_attnperf.gate.code.causes import describe_settings_change, format_change
from pytest_attnperf.gate.code.changes import find_regressions, list_compiler_differences, list_improvements
from pytest_attnperf.gate.code.code_policy import UNLESS_ACCEPTED, CodePolicy
from pytest_attnperf.gate.code.rules import Compared, CurrentKernel, Said, find_broken_rules
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.code import CodeFinding

__all__ = ["CodeDecision", "CurrentKernel", "judge_code", "judge_record"]

KIND_WORDS = {
    "lds_limit": "LDS over the limit",
    "matrix": "matrix instructions",
    "store": "stores",
    "spills": "spills",
    "scratch": "scratch",
    "occupancy": "occupancy",
    "wider_loads": "width",
    "vgprs": "VGPRs",
    "lds": "LDS",
    "code_size": "code size",
    "launch": "launch",
}
"""Names of the kinds of findings in a summary."""

PURPOSE = ("matrix", "store")
"""Rules that a kernel breaks when it cannot do its job."""


@dataclass(frozen=True)
class CodeDecision:
    """The gate's decision on one kernel.

    unchanged   its machine code and launch equal the stored ones
    accepted    of a kernel that may be recorded: the reason for its spills and scratch, '' where it has none
    """

    verdict: Verdict
    summary: str
    findings: tuple[CodeFinding, ...] = ()
    notes: tuple[str, ...] = ()
    unchanged: bool = False
    accepted: str = ""


def judge_code(now: CurrentKernel, stored: StoredKernel | None, policy: CodePolicy) -> CodeDecision:
    """Returns the decision on a kernel by its rules and, if one is stored, by comparison with the stored kernel.

    A promise of matrix instructions that the stored kernel made still holds: withdrawing it needs a new baseline.
    """
    if stored is None:
        broken, notes = _split_notes(find_broken_rules(now))
        absent = f"nothing is stored for {entry_of(now.key)} on {now.code.arch}"
        return _make_decision(broken, broken, Verdict.NO_BASELINE, absent, notes)
    pair = Compared(now, stored, policy)
    promised = now.matrix or stored.matrix
    broken, notes = _split_notes(find_broken_rules(now, stored, promised=promised))
    changes, more = _split_notes(find_regressions(pair, promised=promised))
    findings, notes = [*broken, *changes], [*notes, *more]
    if pair.same_machine_code and now.compiler != stored.compiler:
        notes.append(f"{stored.compiler} made the baseline, {now.compiler} this kernel: the same machine code")
    settings = describe_settings_change(now.config, stored.config, now.where)
    if settings and not any(settings in finding.text for finding in findings):
        notes.append(f"configuration differs: {settings}")
    if not pair.is_comparable:
        return _make_decision(findings, broken, Verdict.INCOMPARABLE, _describe_not_comparable(pair), notes)
    gains = list_improvements(pair)
    decided = _make_decision(findings, broken, Verdict.SAME, _format_summary(pair, gains, findings), [*notes, *gains])
    return dataclasses.replace(decided, unchanged=pair.same_machine_code and pair.same_launch)


def judge_record(now: CurrentKernel, stored: StoredKernel | None, policy: CodePolicy, accepted: str) -> CodeDecision:
    """Returns the decision RECORDED if the kernel may become its case's baseline, else the verdict that prevents it.

    Spills and scratch need a reason: `accepted`, or the stored one where there are no more of them than it was given
    for. No other broken rule is ever recorded. What is merely worse than stored is recorded with a warning.
    """
    # Counts of another compiler excuse a run of this one, but what is recorded is this one's.
    agreed = None if stored is None else dataclasses.replace(stored, compiler=now.compiler)
    broken, notes = _split_notes(find_broken_rules(now, agreed, promised=now.matrix))
    reason = accepted.strip()
    refused = [finding for finding in broken if finding.kind not in UNLESS_ACCEPTED or not reason]
    if refused:
        if any(finding.kind in UNLESS_ACCEPTED for finding in refused):
            notes.append("spills and scratch are recorded only with a reason: --attnperf-accept=REASON")
        return CodeDecision(
            _choose_failing_verdict(refused), f"not recorded: {_join_findings(refused)}", tuple(refused), tuple(notes)
        )
    if stored is not None:
        judged = judge_code(now, stored, policy)
        broken, notes = list(judged.findings), list(judged.notes)
        notes += [judged.summary] if judged.verdict is Verdict.INCOMPARABLE else []
    warned = tuple(dataclasses.replace(finding, fails=False) for finding in broken)
    summary = f"recorded, with warnings: {_join_findings(warned)}" if warned else "recorded"
    to_store = _reason_to_store(now, stored, reason)
    return CodeDecision(Verdict.RECORDED, summary, warned, tuple(notes), accepted=to_store)


def _reason_to_store(now: CurrentKernel, stored: StoredKernel | None, reason: str) -> str:
    """Returns the reason for a kernel's spills or scratch: `reason`, else the stored one; '' for a kernel without."""
    code = now.code
    if not (code.vgpr_spills or code.sgpr_spills or code.scratch_bytes or code.dynamic_stack):
        return ""
    return reason or (stored.accepted if stored else "")


def _split_notes(said: Iterable[Said]) -> tuple[list[CodeFinding], list[str]]:
    """Returns the findings and, apart from them, the plain texts (notes), each in their order."""
    all_said = list(said)
    return [one for one in all_said if not isinstance(one, str)], [one for one in all_said if isinstance(one, str)]


def _make_decision(
    findings: Sequence[CodeFinding], broken: Sequence[CodeFinding], otherwise: Verdict, summary: str, notes: list[str]
) -> CodeDecision:
    """Returns WORSE or SUSPICIOUS if a finding fails (SUSPICIOUS by the failing `broken` rules), else the verdict
    `otherwise` with `summary`. Warnings are added to the summary."""
    failing = [finding for finding in findings if finding.fails]
    warning = [finding for finding in findings if not finding.fails]
    warned = f"; warning: {_join_findings(warning)}" if warning else ""
    if not failing:
        return CodeDecision(otherwise, summary + warned, tuple(findings), tuple(notes))
    said = [] if otherwise is Verdict.SAME else [summary]
    text = f"{_join_findings(failing)}{warned}"
    return CodeDecision(_choose_failing_verdict(broken), text, (*failing, *warning), (*said, *notes))


def _choose_failing_verdict(broken: Sequence[CodeFinding]) -> Verdict:
    purposeless = any(finding.fails and finding.kind in PURPOSE for finding in broken)
    return Verdict.SUSPICIOUS if purposeless else Verdict.WORSE


def _format_summary(pair: Compared, gains: Sequence[str], findings: Sequence[CodeFinding]) -> str:
    """Returns the summary of a kernel that passes: unchanged or other machine code, and `gains`, what became better."""
    if pair.same_machine_code and pair.same_launch:
        return "unchanged"
    if pair.same_machine_code:
        text = "the same machine code, launched differently"
    else:
        known = pair.new.isa_hash and pair.old.isa_hash
        text = "other machine code" if known else "machine code whose hash is not known"
    if gains:
        text += f"; better: {', '.join(gains)}; update the baseline to keep it"
    elif not findings:
        text += ", nothing worse"
    decoded = pair.new.instructions and not pair.new.undecoded
    return text if decoded else f"{text}; not all instructions could be checked"


def _describe_not_comparable(pair: Compared) -> str:
    makers = f"{pair.stored.compiler} made the baseline, {pair.now.compiler} this kernel"
    return (
        f"not comparable: {makers}: "
        f"{'; '.join(list_compiler_differences(pair)) or 'none of the fields that a compiler may change differs'}"
    )


def _join_findings(findings: Sequence[CodeFinding]) -> str:
    """Returns the findings in one line: 'occupancy: 3 -> 2 waves per SIMD; 96 -> 104 VGPRs'."""
    return "; ".join(_format_finding(finding) for finding in findings)


def _format_finding(finding: CodeFinding) -> str:
    text = format_change(finding.before, finding.after) if finding.before else finding.after
    name = KIND_WORDS.get(finding.kind, finding.kind)
    return text if name in text else f"{name}: {text}"
