"""What a verdict means that no time has decided, in words: wrong, implausible, broken, not able, or not comparable."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_attnperf.records import ErrorFigures
from pytest_attnperf.records.notes import NoteKind, kind_of
from pytest_attnperf.reports.explain import steps
from pytest_attnperf.reports.explain.facts import NextStep, Told, Words
from pytest_attnperf.reports.text.commands import format_repeat_command
from pytest_attnperf.reports.text.figures import format_us, one_line
from pytest_attnperf.results import CaseResult

TEXT_LIMIT = 400
PLANTED = "replay"
"""Part of the names of checks whose inputs hold planted keys."""


@dataclass(frozen=True)
class Cause:
    """What a reason of the gate tells a reader: `kind` is that of the reason, the sentences say what it means."""

    kind: NoteKind
    name: str
    sentences: tuple[str, ...]


NOT_COMPARABLE = (
    Cause(
        NoteKind.FOREIGN,
        "foreign code",
        (
            "Modules or libraries of another tree were loaded, so the time is not that of this tree's kernels.",
            "Usual causes: an editable install of another checkout, a PYTHONPATH, a conftest that changes sys.path.",
            "The files stand below; uninstall, or run from the tree that they belong to.",
        ),
    ),
    Cause(
        NoteKind.OTHER_PRODUCT,
        "another machine",
        (
            "A baseline exists, of another product of this architecture: times of two products say nothing of each "
            "other.",
            "Nothing is wrong with the code as far as anybody knows; it was proven right.",
        ),
    ),
    Cause(
        NoteKind.OTHER_PATH,
        "another path of a library",
        (
            "The library's dispatcher took another path than for the baseline, and the case is not slower by it: the "
            "two times are of different kernels, and one says nothing of the other.",
            "If the new path is wanted, record the baseline again; if not, look for why it was taken: a version, a "
            "shape table, a build that failed.",
        ),
    ),
    Cause(
        NoteKind.MIXED_PATHS,
        "mixed paths",
        (
            "The processes of one recording took different paths of a library, so no later time is of them all.",
            "Nothing is stored. Pin the choice (--attnperf-pin-config, or the library's own switch) and record again.",
        ),
    ),
    Cause(
        NoteKind.WORKLOAD,
        "workload definition",
        (
            "The workload of this name is not the one that the baseline was recorded with: another shape, mask, "
            "layout or count of bytes stands behind the same id.",
            "That is a change of the test, not of the kernel: if it is wanted, record the baseline again.",
        ),
    ),
    Cause(
        NoteKind.PROCESSES,
        "too few processes",
        ("The stored entry has too few processes for its centre to be trusted; record it again.",),
    ),
    Cause(
        NoteKind.BASE_SIDE,
        "the base side",
        (
            "The base side gave no time that this one can be held against: it is wrong there, runs on another device "
            "or with another timer, or its workload is another one.",
            "Nothing is known of a change, and nothing is wrong on this side.",
        ),
    ),
)
"""Of INCOMPARABLE, in the order in which they are looked for."""

MACHINE = Cause(
    NoteKind.MACHINE,
    "another machine or method",
    (
        "The baseline was recorded on a machine, or by a method, whose times cannot be held against these: product, "
        "compute units, partition, power cap, timer or cache state differ.",
        "Nothing is wrong with the code as far as anybody knows; it was proven right.",
    ),
)

RAISED_THERE = Cause(
    NoteKind.PLAIN,
    "the base side raised",
    (
        "The case raised on the base side, so that there is nothing to hold this side's time against.",
        "Nothing is wrong on this side.",
    ),
)

TOO_GOOD = (
    Cause(
        NoteKind.BELOW_FLOOR,
        "below the floor",
        (
            "The call took less time than the device needs to move the bytes or to do the arithmetic of the workload, "
            "by the vendor's figures. Either the work is not done, or the time is not of the work.",
            "Usual causes: a workload that counts more work than there is; results remembered between calls; a kernel "
            "that is still running when the time is taken.",
        ),
    ),
    Cause(
        NoteKind.REMEMBERS,
        "remembered results",
        (
            "The call is fast only while it gets the inputs of the call before: with inputs that change before every "
            "call it takes several times as long. What was timed is a memory of the result, not the work.",
            "Usual causes: a cache keyed by address or by shape, a flag that says 'already computed'.",
        ),
    ),
    Cause(
        NoteKind.NO_STORE,
        "no store",
        (
            "The machine code of the kernel holds no instruction that leaves anything behind, so it cannot have made "
            "the result that was proven. Something else made it, and this time is not of that.",
        ),
    ),
    Cause(
        NoteKind.NO_MATRIX,
        "no matrix instructions",
        (
            "The backend promises matrix instructions (MFMA, WMMA), and no kernel of the call holds one for this "
            "architecture: a fallback was compiled, and it was its time that was measured.",
            "Usual causes: a data type or a tile that the compiler cannot use them for, another architecture than "
            "meant.",
        ),
    ),
)
"""Of SUSPICIOUS."""

DIED = (
    "The process of the case ended without an answer; it was replaced, and the other cases went on.",
    "Usual causes: an illegal memory access, an abort inside a library, the system's memory limit.",
)

BROKEN = (
    Cause(
        NoteKind.CONTRADICTED,
        "contradicting figures",
        ("The results file contradicts itself, so nothing in it is believed: it was edited, or made up.",),
    ),
    Cause(
        NoteKind.OUT_OF_MEMORY,
        "out of memory",
        ("The device ran out of memory: proving a case takes several times its inputs and outputs beside them.",),
    ),
    Cause(
        NoteKind.NO_ANSWER,
        "no answer in time",
        (
            "The worker gave no answer within its limit and was ended: it hangs, or compiles for longer than the "
            "limit.",
            "Usual causes: a first compilation (warm it ahead: attnperf warm), a kernel that never ends, a device that "
            "is gone.",
        ),
    ),
    Cause(NoteKind.KILLED, "the process died", DIED),
    Cause(NoteKind.DIED, "the process died", DIED),
)
"""Of ERROR."""


def explain_incorrect(told: Told) -> Words:
    """Which output, by how much, and where."""
    case = told.case
    worst = find_worst_figures(case)
    said = next((p for check in case.checks for p in check.problems), case.summary)
    sentences = ["The result is wrong, so its time says nothing, and none is judged."]
    sentences += [f"{_format_clause(said)}."] if worst is None else _describe_worst_output(worst)
    sentences.append(
        "It is not noise: the allowance is that of the same computation done plainly in this precision, and exact "
        "references do not scatter."
    )
    seeded = NextStep(
        "the same inputs again (the seed is in the command):", format_repeat_command(case.reproduce, case.nodeid)
    )
    proof = NextStep("correctness alone, without any timing:", f"pytest {steps.quote_word(case.nodeid)}")
    return Words(tuple(sentences), (seeded if case.reproduce else steps.suggest_repeat(case), proof))


def explain_suspicious(told: Told) -> Words:
    """Which rule it breaks."""
    case = told.case
    cause = _find_cause(TOO_GOOD, case)
    sentences = [
        "The result was proven right, but the time, or the machine code, cannot be what it is taken for.",
        f"{_format_clause(case.summary)}.",
        *(cause.sentences if cause else ()),
        "It is not a slowdown, and no threshold makes it pass: a wrong time would be stored as the best one.",
    ]
    profile = NextStep("see what ran:", steps.format_pytest_command(case.nodeid, "--attnperf-profile"))
    return Words(tuple(sentences), (profile, steps.suggest_repeat(case), steps.suggest_doctor()))


def explain_error(told: Told) -> Words:
    """What broke."""
    case = told.case
    cause = _find_cause(BROKEN, case)
    sentences = [
        "The case broke before it could be judged, so nothing is said of its result or its time.",
        f"{_format_clause(case.summary)}.",
        *(cause.sentences if cause else ()),
        "The end of the worker's log stands below." if case.log else "No worker's log came with it.",
    ]
    alone = NextStep("correctness alone, in a process of its own:", f"pytest {steps.quote_word(case.nodeid)}")
    return Words(tuple(sentences), (alone, steps.suggest_repeat(case), steps.suggest_doctor()))


def explain_unsupported(told: Told) -> Words:
    """The backend says that it cannot; and whether it could before."""
    case = told.case
    if case.skipped:
        return _explain_skipped(told)
    if case.fails:
        sentences = (
            f"The backend says that it cannot run this: {_format_clause(case.summary, lower=True)}.",
            "It could before: a baseline, or the base side, has a time for it. A case must not disappear by calling "
            "itself unsupported, so the test fails.",
            "Usual causes: a package is not installed here, a build failed, a check of shapes or of the architecture "
            "became narrower.",
            "If it is meant to go, remove its entry from the baseline with a reason in the commit.",
        )
        return Words(sentences, (steps.suggest_repeat(case), steps.suggest_doctor()))
    why = "; ".join(one_line(reason, TEXT_LIMIT) for reason in case.reasons) or one_line(case.summary, TEXT_LIMIT)
    return Words(
        (
            f"The backend says that it cannot run this, and why: {why or 'it does not say'}.",
            "The test is skipped. Nothing is stored for the case, so nothing is lost by it.",
            "It is not a failure, and not a proof either: the case was not run.",
        ),
        (steps.suggest_repeat(case), steps.suggest_doctor()),
    )


def _explain_skipped(told: Told) -> Words:
    """A mark, a fixture or the test itself left the case out."""
    case = told.case
    before = (
        "A baseline, or the base side, has a time for it: leaving a case out is no way to pass, so the test fails."
        if case.fails
        else "Nothing is stored for the case, so nothing is lost by it; it was not run, and nothing is proven."
    )
    why = one_line(case.skipped, TEXT_LIMIT)
    return Words((f"A skip mark, a fixture or the test itself skips it: {why}.", before), (steps.suggest_repeat(case),))


def explain_incomparable(told: Told) -> Words:
    """Why the two sides say nothing of each other."""
    case = told.case
    cause = find_comparison_cause(case)
    sentences = [
        "What was measured cannot be held against what is stored, or against the base side: neither passed nor failed.",
        f"{_format_clause(case.summary)}.",
        *cause.sentences,
    ]
    next_steps = [steps.suggest_side_by_side(told)] if cause.kind is not NoteKind.FOREIGN and not case.against else []
    record = steps.suggest_recording(case.nodeid, "if it is to stay so, record a baseline for it:")
    return Words(tuple(sentences), (*next_steps, record, steps.suggest_repeat(case)))


def explain_no_baseline(told: Told) -> Words:
    """Nothing is stored."""
    case = told.case
    timed = f" It took {format_us(case.median_us)} us per call." if case.median_us is not None else ""
    if case.new:
        return Words(
            (
                f"The result is right, and {one_line(case.against)} does not have the case.{timed}",
                "It is new there, or was renamed: a run of whole suites names what that side has and this one lacks.",
                "It does not fail, and is not passed: there is nothing that it could be slower than.",
            ),
            (
                steps.suggest_recording(
                    case.nodeid, "record a baseline with the change that brings it, on an idle machine:"
                ),
            ),
        )
    return Words(
        (
            f"The result is right, and nothing is stored that its time could be held against.{timed}",
            "Usual causes: a new case, a renamed workload or backend, a device that no baseline was recorded on.",
            "It is not passed: a case without a baseline may be any amount slower than it was.",
        ),
        (
            steps.suggest_recording(case.nodeid, "record one, on an idle machine:"),
            steps.suggest_side_by_side(told),
            NextStep(
                "keep one on this machine only:", steps.format_pytest_command(case.nodeid, "--attnperf-record-local")
            ),
        ),
    )


def find_comparison_cause(case: CaseResult) -> Cause:
    """Which of the causes of INCOMPARABLE this is."""
    found = _find_cause(NOT_COMPARABLE, case)
    return found or (RAISED_THERE if case.against and not case.pairs else MACHINE)


def find_worst_figures(case: CaseResult) -> ErrorFigures | None:
    """The output that is furthest beyond its budget; None where every compared one is within."""
    beyond = [figures for check in case.checks for figures in check.figures if compute_excess(figures) > 1]
    return max(beyond, key=compute_excess, default=None)


def compute_excess(figures: ErrorFigures) -> float:
    """Error over budget, the largest of all; infinite for a NaN or an Inf that should not be."""
    if figures.nan_count or figures.inf_count or figures.finite_count:
        return math.inf
    shares = [_divide_by_budget(error, budget) for error, budget in figures.budgets]
    return math.inf if any(math.isnan(share) for share in shares) else max(shares)


def _divide_by_budget(error: float, budget: float) -> float:
    if budget > 0:
        return error / budget
    return 0.0 if error == 0 else math.inf


def _describe_worst_output(worst: ErrorFigures) -> list[str]:
    name = f"Output '{one_line(worst.output)}' of the check '{one_line(worst.check)}'"
    if math.isinf(compute_excess(worst)):
        counts = ((worst.nan_count, "NaN"), (worst.inf_count, "Inf"), (worst.finite_count, "finite values"))
        held = ", ".join(f"{count} {kind}" for count, kind in counts if count) or "an error that is no number"
        sentences = [f"{name} holds {held} among {worst.elements} elements where the reference does not."]
        if worst.nan_count:
            sentences.append(
                "Outputs are filled with NaN before each checked call: one that is never written stays NaN."
            )
    else:
        sentences = [
            f"{name} is off by {worst.max_error:.3g} where {worst.max_budget:.3g} is allowed, "
            f"{_divide_by_budget(worst.max_error, worst.max_budget):.3g} times its budget, and by "
            f"{worst.rms_error:.3g} in the "
            f"root mean square ({_divide_by_budget(worst.rms_error, worst.rms_budget):.3g} times)."
        ]
        if not worst.line_error <= worst.line_budget:
            sentences.append(
                f"On {one_line(worst.line)} alone it is off by {worst.line_error:.3g} in the root mean square, "
                f"{_divide_by_budget(worst.line_error, worst.line_budget):.3g} times what is allowed there."
            )
    if worst.worst_index:
        got, wanted = f"{worst.worst_got:.6g}", f"{worst.worst_expected:.6g}"
        sentences.append(f"The worst element is {list(worst.worst_index)}: got {got}, expected {wanted}.")
    return [*sentences, *_describe_box(worst), *_describe_planted_keys(worst)]


def _describe_box(worst: ErrorFigures) -> list[str]:
    if not worst.beyond_count or len(worst.beyond_first) != len(worst.beyond_last) or not worst.beyond_first:
        return []
    ends = zip(worst.beyond_first, worst.beyond_last, strict=True)
    box = ", ".join(str(first) if first == last else f"{first}:{last + 1}" for first, last in ends)
    return [
        f"{worst.beyond_count} of {worst.elements} elements are beyond, all in [{box}]: a box that ends at a multiple "
        "of a tile, or at the last rows, points to a mask or a tail; one batch or head, to an offset."
    ]


def _describe_planted_keys(worst: ErrorFigures) -> list[str]:
    if PLANTED not in worst.check:
        return []
    return [
        "The inputs of this check hold planted keys, each of which dominates one row at an edge (first, last, tile "
        "borders, mask, window): a whole wrong row means that its key was dropped, counted twice or let through."
    ]


def _find_cause(causes: tuple[Cause, ...], case: CaseResult) -> Cause | None:
    kinds = {kind_of(reason) for reason in case.reasons}
    if case.fault is not None and case.fault.kind == NoteKind.OUT_OF_MEMORY.value:
        kinds.add(NoteKind.OUT_OF_MEMORY)
    return next((cause for cause in causes if cause.kind in kinds), None)


def _format_clause(text: str, *, lower: bool = False) -> str:
    """A summary as the inside of a sentence."""
    clean = one_line(text, TEXT_LIMIT).strip().rstrip(".") or "no more is said of it"
    return clean if lower else clean[:1].upper() + clean[1:]
