"""The first facts of every report: how many cases of each verdict, where, compared with what, and which was slowest."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.reports.text.figures import format_change, format_interval, one_line
from pytest_attnperf.results import EXPIRED, GATED, CaseResult, RunResult

if TYPE_CHECKING:
    from pytest_attnperf.reports.run.joined import Joined

ORDER = (
    Verdict.INCORRECT,
    Verdict.ERROR,
    Verdict.SUSPICIOUS,
    Verdict.WORSE,
    Verdict.SLOWER,
    Verdict.GREW,
    Verdict.UNDECIDED,
    Verdict.ENVIRONMENT,
    Verdict.INCOMPARABLE,
    Verdict.NO_BASELINE,
    Verdict.STALE,
    Verdict.DRIFT,
    Verdict.MOVED,
    Verdict.UNSUPPORTED,
    Verdict.SAME,
    Verdict.FASTER,
    Verdict.RECORDED,
    Verdict.RIGHT,
)
"""Verdicts, worst first."""

WORDS = {Verdict.NO_BASELINE: "without baseline", Verdict.RIGHT: "right, not gated"}
JUDGED = frozenset(
    {
        *(Verdict.SAME, Verdict.FASTER, Verdict.SLOWER, Verdict.UNDECIDED, Verdict.ENVIRONMENT),
        *(Verdict.MOVED, Verdict.DRIFT, Verdict.GREW),
    }
)
"""Verdicts whose change against the baseline can be the slowest."""

UNRESOLVED = frozenset({Verdict.UNDECIDED, Verdict.NO_BASELINE, Verdict.INCOMPARABLE, Verdict.ENVIRONMENT})
"""Verdicts that neither pass nor fail; strict runs fail by them."""

EXCUSED = frozenset({Verdict.MOVED, Verdict.DRIFT, Verdict.STALE})
"""Verdicts of cases that are slower than stored, but not by this change. They fail only on request."""

COMPARED = GATED | {Verdict.UNDECIDED}
"""Verdicts of compared cases. Without any of them nothing has passed."""

STORED = "baselines"
"""Mode of a run that is made of stored baselines. It measured nothing."""

DID = {"update": "RECORDED", "calibrate": "CALIBRATED", "check": "CHECKED", STORED: "STORED BASELINES"}
"""The word for a run that compares nothing, by its mode."""

NAME_LIMIT = 200
COMMIT_LENGTH = 12
UNKNOWN = "unknown"
"""The commit of a tree without git history."""

QUARANTINED, UNCHANGED, NEW = "quarantined", "unchanged", "new"
"""Words under which cases are counted apart: no failure, not timed, or missing on the base side."""

FAILS_BY_ITSELF = frozenset(
    {Verdict.SLOWER, Verdict.GREW, Verdict.WORSE, Verdict.INCORRECT, Verdict.ERROR, Verdict.SUSPICIOUS}
)
"""Verdicts that fail even without an expired quarantine."""

_RANK = {verdict: rank for rank, verdict in enumerate(ORDER)}


def rank_verdict(verdict: Verdict) -> int:
    """Returns the position of a verdict from the worst (0) to the best."""
    return _RANK[verdict]


def format_verdict_word(verdict: Verdict) -> str:
    """Returns the verdict as the word after a count: 'slower' in '2 slower', 'without baseline' in '1 without
    baseline'."""
    return WORDS.get(verdict, verdict.value.lower())


def format_result_word(result: CaseResult | CodeResult) -> str:
    """Returns the word under which a result is counted: its verdict's, or quarantined, unchanged or new. A case that
    fails only because its quarantine has expired is counted as that."""
    if isinstance(result, CaseResult):
        expired = bool(filter_notes(result.reasons, NoteKind.EXPIRED))
        if result.fails and expired and result.verdict not in FAILS_BY_ITSELF:
            return EXPIRED
        if not result.fails and (result.quarantined or result.unchanged):
            return QUARANTINED if result.quarantined else UNCHANGED
        if is_new(result):
            return NEW
    return format_verdict_word(result.verdict)


def is_unresolved(case: CaseResult) -> bool:
    """Returns whether the case fails a strict run: neither passed nor failed, and neither quarantined nor new."""
    return case.verdict in UNRESOLVED and not case.quarantined and not is_new(case)


def is_reported(case: CaseResult) -> bool:
    """Returns whether a report explains a case even if it did not fail: it is unresolved, or MOVED, DRIFT or STALE
    without a quarantine."""
    return is_unresolved(case) or (case.verdict in EXCUSED and not case.quarantined)


def is_new(case: CaseResult) -> bool:
    """Returns whether a case is NO_BASELINE because the base side does not have it, and does not fail."""
    return case.new and case.verdict is Verdict.NO_BASELINE and not case.fails


def only_new(run: RunResult) -> bool:
    """Returns whether a complete run gated nothing because all its timed cases are new (the base side lacks them)."""
    untimed = (Verdict.UNSUPPORTED, Verdict.RIGHT)
    plain = all(is_new(case) or case.verdict in untimed for case in run.cases)
    return run.complete and not run.gated and not run.code and plain and any(map(is_new, run.cases))


def verdict_text(case: CaseResult) -> str:
    """Returns the verdict, with a remark if that applies: 'RIGHT, not timed', 'SLOWER, quarantined', 'SAME,
    unchanged'."""
    said = format_result_word(case)
    if said in (EXPIRED, QUARANTINED, UNCHANGED, NEW):
        return f"{case.verdict.value}, {said}"
    if case.verdict is Verdict.RIGHT and case.median_us is None:
        return f"{case.verdict.value}, not timed"
    return case.verdict.value


def quarantined_lines(cases: Iterable[CaseResult]) -> list[str]:
    """Returns a line per quarantined case, worst first: 'prefill/...: SLOWER, quarantined: LINK until DATE'."""
    held = sort_worst_first(case for case in cases if case.quarantined)
    return [f"{case.key}: {case.verdict.value}, quarantined: {case.quarantined}" for case in held]


def sort_worst_first(cases: Iterable[CaseResult]) -> list[CaseResult]:
    """Returns the cases sorted: failing ones first, then by verdict, the slowest of each verdict first; ties by
    name."""
    return sorted(
        cases, key=lambda case: (not case.fails, rank_verdict(case.verdict), -(case.ratio or 0.0), str(case.key))
    )


def find_slowest(cases: Sequence[CaseResult]) -> CaseResult | None:
    """Returns the SLOWER case with the largest ratio, else the judged case with the largest one above 1, else None."""
    judged = [case for case in cases if case.verdict in JUDGED and case.ratio is not None and case.ratio > 1]
    failing = [case for case in judged if case.verdict is Verdict.SLOWER]
    return max(failing or judged, key=lambda case: case.ratio or 0.0, default=None)


def format_verdict_counts(verdicts: Iterable[Verdict]) -> str:
    """Returns the number of each verdict, worst first: '2 slower, 1 undecided, 41 same'; 'no cases' for none."""
    counted = Counter(verdicts)
    return (
        ", ".join(f"{counted[verdict]} {format_verdict_word(verdict)}" for verdict in ORDER if counted[verdict])
        or "no cases"
    )


def format_result_counts(results: Iterable[CaseResult | CodeResult]) -> str:
    """Returns the number of results by word, worst first, quarantined, new and unchanged apart: '1 slower, 2 new, 30
    unchanged'; 'no cases' for none."""
    found = Counter(map(format_result_word, results))
    words = [EXPIRED, *(format_verdict_word(verdict) for verdict in ORDER)]
    at = words.index(format_verdict_word(Verdict.UNSUPPORTED))
    words[at:at] = [QUARANTINED, NEW]
    return ", ".join(f"{found[name]} {name}" for name in [*words, UNCHANGED] if found[name]) or "no cases"


def verdict_word(joined: Joined) -> str:
    """Returns the outcome of all runs in a word: FAILED, INCOMPLETE, NO CASES, PASSED, or QUARANTINED if every case is.
    If nothing was compared: RECORDED, CALIBRATED, CHECKED, STORED BASELINES or NOT COMPARED. A quarantined case has not
    passed; an unchanged one has."""
    verdicts = {shown.case.verdict for shown in joined.cases if not shown.case.quarantined}
    verdicts |= {result.verdict for result in joined.code}
    if joined.has_failed or joined.failed_by:
        return "FAILED"
    if not all(run.complete for run in joined.runs):
        return "INCOMPLETE"
    if not joined.cases and not joined.code:
        return "NO CASES"
    if not verdicts:
        return QUARANTINED.upper()
    if verdicts & COMPARED or any(shown.case.unchanged for shown in joined.cases):
        return "PASSED"
    did = {DID.get(run.mode, "NOT COMPARED") for run in joined.runs}
    return did.pop() if len(did) == 1 else "NOT COMPARED"


def format_device(run: RunResult) -> str:
    """Returns the arch and product of the run's device: 'sm_90/h200'; '' if nothing was measured."""
    return "" if run.device is None else f"{run.device.arch}/{run.device.product}"


def format_comparison_base(run: RunResult) -> str:
    """Returns what the cases were compared with: the base side's name, or the most frequent commit of the baselines.

    Returns '' if nothing was compared, or if it is not known.
    """
    if run.against:
        return one_line(run.against, NAME_LIMIT)
    stored = (case.stored_commit for case in run.cases if case.stored_us)
    commits = Counter(commit for commit in stored if commit not in ("", UNKNOWN))
    if not commits:
        return ""
    (most, _), *others = commits.most_common()
    more = f" and {len(others)} more commit{'s' * (len(others) != 1)}" if others else ""
    commit, plus, dirty = one_line(most, NAME_LIMIT).partition("+")
    return f"{commit[:COMMIT_LENGTH]}{plus}{dirty[:COMMIT_LENGTH]}{more}"


def verdict_line(run: RunResult) -> str:
    """Returns the run in one line: '2 slower, 41 same on sm_90/h200 against 4f2c1ab; slowest: prefill/... +6.1 %'."""
    device, base = format_device(run), format_comparison_base(run)
    where = f" on {one_line(device)}" if device else ""
    line = f"{format_result_counts(run.cases)}{where}{f' against {base}' if base else ''}"
    worst = find_slowest(run.cases)
    if worst is None:
        return line
    interval = format_interval(worst.interval)
    spread = f" ({interval})" if interval else ""
    return f"{line}; slowest: {one_line(str(worst.key), NAME_LIMIT)} {format_change(worst.ratio)}{spread}"


def list_compared(cases: Iterable[CaseResult]) -> list[CaseResult]:
    """Returns the cases with a ratio or a detection limit: those that were compared with a baseline or base side."""
    return [case for case in cases if case.ratio is not None or case.detection_limit is not None]


def median_detection_limit(cases: Iterable[CaseResult]) -> float | None:
    """Returns the slowdown, as a fraction, that at least half of the compared cases had enough processes to detect.

    Returns None if nothing was compared, or if the noise of more than half of the cases hides any slowdown.
    """
    limits = [math.inf if case.detection_limit is None else case.detection_limit for case in list_compared(cases)]
    # With two middle values, the lower one: exactly half of the cases detect it.
    median = statistics.median_low(limits) if limits else math.inf
    return median if math.isfinite(median) else None
