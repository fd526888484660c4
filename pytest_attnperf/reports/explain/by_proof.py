"""Explains verdicts that no time decides: wrong, implausible, broken, unsupported, or not comparable."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.records.notes import NoteKind, kind_of
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.reports.explain import steps
from pytest_attnperf.reports.explain.facts import NextStep, Told, Words
from pytest_attnperf.reports.explain.wrong_results import (
    describe_garbage,
    describe_planting,
    describe_worst_output,
    find_worst_figures,
)
from pytest_attnperf.reports.text.commands import format_repeat_command
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult

TEXT_LIMIT = 400


@dataclass(frozen=True)
class Cause:
    """The meaning of a reason that the gate gave. `kind` is the reason's kind; the sentences explain it to a reader."""

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
            "The files are listed below; uninstall, or run from the tree that they belong to.",
        ),
    ),
    Cause(
        NoteKind.OTHER_PRODUCT,
        "another machine",
        (
            "A baseline exists, of another product of this architecture: times of two products cannot be compared.",
            "Nothing is wrong with the code as far as anybody knows; it was proven right.",
        ),
    ),
    Cause(
        NoteKind.OTHER_PATH,
        "another path of a library",
        (
            "The library's dispatcher took another path than for the baseline, and the case is not slower. The two "
            "times are of different kernels, so they cannot be compared.",
            "If the new path is wanted, record the baseline again; if not, look for why it was taken: a version, a "
            "shape table, a build that failed.",
        ),
    ),
    Cause(
        NoteKind.MIXED_PATHS,
        "mixed paths",
        (
            "The processes of one recording took different paths of a library, so no later time fits all of them.",
            "Nothing is stored. Pin the choice (--attnperf-pin-config, or the library's own switch) and record again.",
        ),
    ),
    Cause(
        NoteKind.WORKLOAD,
        "workload definition",
        (
            "The workload of this name differs from the one that the baseline was recorded with: another shape, mask, "
            "layout or count of bytes has the same id.",
            "That is a change of the test, not of the kernel: if it is wanted, record the baseline again.",
        ),
    ),
    Cause(
        NoteKind.PROCESSES,
        "too few processes",
        ("The stored entry has too few processes for a reliable median; record it again.",),
    ),
    Cause(
        NoteKind.BASE_SIDE,
        "the base side",
        (
            "The base side has no time to compare this one with: it is wrong there, runs on another device or with "
            "another timer, or its workload differs.",
            "So a change is not known. Nothing is wrong on this side.",
        ),
    ),
)
"""Causes of INCOMPARABLE, in the order in which they are checked."""

MACHINE = Cause(
    NoteKind.MACHINE,
    "another machine or method",
    (
        "The baseline was recorded on a machine, or by a method, whose times cannot be compared with these: product, "
        "compute units, partition, power cap, timer or cache state differ.",
        "Nothing is wrong with the code as far as anybody knows; it was proven right.",
    ),
)

RAISED_THERE = Cause(
    NoteKind.PLAIN,
    "the base side raised",
    (
        "The case raised an error on the base side, so there is nothing to compare this side's time with.",
        "Nothing is wrong on this side.",
    ),
)

TOO_GOOD = (
    Cause(
        NoteKind.BELOW_FLOOR,
        "below the floor",
        (
            "The call took less time than the device needs to move the bytes or to do the arithmetic of the workload, "
            "by the vendor's figures. Either the work is not done, or the time does not cover it.",
            "Usual causes: a workload that counts more work than there is; results cached between calls; a kernel "
            "that is still running when the time is taken.",
        ),
    ),
    Cause(
        NoteKind.REMEMBERS,
        "remembered results",
        (
            "The call is fast only while its inputs stay the same: with inputs that change before every call it takes "
            "several times as long. What was timed is a cached result, not the work.",
            "Usual causes: a cache keyed by address or by shape, a flag that says 'already computed'.",
        ),
    ),
    Cause(
        NoteKind.NO_STORE,
        "no store",
        (
            "The machine code of the kernel has no store instruction, so it cannot have written the result that was "
            "proven. Something else wrote it, and this time does not cover that.",
        ),
    ),
    Cause(
        NoteKind.NO_MATRIX,
        "no matrix instructions",
        (
            "The backend promises matrix instructions (MFMA, WMMA), and no kernel of the call holds one for this "
            "architecture: a fallback was compiled and measured.",
            "Usual causes: a data type or a tile that the compiler cannot use them for, or the wrong architecture.",
        ),
    ),
)
"""Causes of SUSPICIOUS."""

DIED = (
    "The process of the case ended without an answer; it was replaced, and the other cases went on.",
    "Usual causes: an illegal memory access, an abort inside a library, the system's memory limit.",
)

BROKEN = (
    Cause(
        NoteKind.CONTRADICTED,
        "contradicting figures",
        ("The results file contradicts itself, so none of it is used: it was edited or made up.",),
    ),
    Cause(
        NoteKind.OUT_OF_MEMORY,
        "out of memory",
        ("The device ran out of memory: proving a case needs several times the memory of its inputs and outputs.",),
    ),
    Cause(
        NoteKind.NO_ANSWER,
        "no answer in time",
        (
            "The worker gave no answer within its limit and was killed: it hangs, or compiles for longer than the "
            "limit.",
            "Usual causes: a first compilation (warm it ahead: pytest --attnperf-warm), a kernel that never ends, a "
            "lost device.",
        ),
    ),
    Cause(NoteKind.KILLED, "the process died", DIED),
    Cause(NoteKind.DIED, "the process died", DIED),
)
"""Causes of ERROR."""


def explain_incorrect(told: Told) -> Words:
    """Returns sentences and next steps for an INCORRECT case: which output is wrong, by how much, and where."""
    case = told.case
    worst = find_worst_figures(case)
    said = next((p for check in case.checks for p in check.problems), case.summary)
    sentences = ["The result is wrong, so its time means nothing and is not judged."]
    sentences += [f"{_format_clause(said)}."] if worst is None else describe_worst_output(worst)
    sentences += [] if worst is None else describe_planting(case, worst)
    sentences += describe_garbage(case)
    sentences.append(
        "It is not noise: the allowed error comes from the plain computation in the same precision, and the "
        "reference is exact."
    )
    seeded = NextStep(
        "the same inputs again (the seed is in the command):", format_repeat_command(case.reproduce, case.nodeid)
    )
    proof = NextStep("correctness alone, without any timing:", steps.format_proof_command(case))
    return Words(tuple(sentences), (seeded if case.reproduce else steps.suggest_repeat(case), proof))


def explain_suspicious(told: Told) -> Words:
    """Returns sentences and next steps for a SUSPICIOUS case: which rule its time or its machine code breaks."""
    case = told.case
    cause = _find_cause(TOO_GOOD, case)
    sentences = [
        "The result was proven right, but the time or the machine code is not plausible.",
        f"{_format_clause(case.summary)}.",
        *(cause.sentences if cause else ()),
        "It is not a slowdown, and no threshold makes it pass: a wrong time would be stored as the best one.",
    ]
    profile = NextStep("see what ran:", steps.format_pytest_command(case, "--attnperf-profile"))
    return Words(tuple(sentences), (profile, steps.suggest_repeat(case), steps.suggest_doctor()))


def explain_error(told: Told) -> Words:
    """Returns sentences and next steps for an ERROR case: what broke before it could be judged."""
    case = told.case
    cause = _find_cause(BROKEN, case)
    sentences = [
        "The case broke before it could be judged, so nothing is known about its result or its time.",
        f"{_format_clause(case.summary)}.",
        *(cause.sentences if cause else ()),
        "The end of the worker's log is below." if case.log else "There is no worker's log.",
    ]
    alone = NextStep("correctness alone, in a process of its own:", steps.format_proof_command(case))
    return Words(tuple(sentences), (alone, steps.suggest_repeat(case), steps.suggest_doctor()))


def explain_unsupported(told: Told) -> Words:
    """Returns sentences and next steps for an UNSUPPORTED case: why it cannot run here, and whether it could before."""
    case = told.case
    if case.skipped:
        return _explain_skipped(told)
    if case.fails:
        sentences = (
            f"The backend says that it cannot run this: {_format_clause(case.summary, lower=True)}.",
            "It could before: a baseline, or the base side, has a time for it. A supported case must not disappear, "
            "so the test fails.",
            "Usual causes: a package is not installed here, a build failed, a check of shapes or of the architecture "
            "became narrower.",
            "If it is no longer wanted, remove its entry from the baseline with a reason in the commit.",
        )
        return Words(sentences, (steps.suggest_repeat(case), steps.suggest_doctor()))
    why = "; ".join(one_line(reason, TEXT_LIMIT) for reason in case.reasons) or one_line(case.summary, TEXT_LIMIT)
    return Words(
        (
            f"The backend says that it cannot run this, and why: {why or 'it does not say'}.",
            "The test is skipped. Nothing is stored for the case, so nothing is lost by it.",
            "It is neither a failure nor a proof: the case was not run.",
        ),
        (steps.suggest_repeat(case), steps.suggest_doctor()),
    )


def _explain_skipped(told: Told) -> Words:
    """Returns sentences and next steps for a case that a mark, a fixture or the test itself skipped."""
    case = told.case
    before = (
        "A baseline, or the base side, has a time for it. A skipped case does not pass, so the test fails."
        if case.fails
        else "Nothing is stored for the case, so nothing is lost by it; it was not run, and nothing is proven."
    )
    why = one_line(case.skipped, TEXT_LIMIT)
    return Words((f"A skip mark, a fixture or the test itself skips it: {why}.", before), (steps.suggest_repeat(case),))


def explain_incomparable(told: Told) -> Words:
    """Returns sentences and next steps for an INCOMPARABLE case: why its time cannot be compared."""
    case = told.case
    cause = find_comparison_cause(case)
    sentences = [
        "The measured time cannot be compared with the stored one, or with the base side: neither passed nor failed.",
        f"{_format_clause(case.summary)}.",
        *cause.sentences,
    ]
    next_steps = [steps.suggest_side_by_side(told)] if cause.kind is not NoteKind.FOREIGN and not case.against else []
    record = steps.suggest_recording(case, "if this is the new normal, record a baseline:")
    return Words(tuple(sentences), (*next_steps, record, steps.suggest_repeat(case)))


def explain_no_baseline(told: Told) -> Words:
    """Returns sentences and next steps for a case without a stored time, or that the base side does not have."""
    case = told.case
    timed = f" It took {format_time(case.median_us)} per call." if case.median_us is not None else ""
    if case.new:
        return Words(
            (
                f"The result is right, and {one_line(case.against)} does not have the case.{timed}",
                "It is new there, or was renamed: a run of whole suites names what that side has and this one lacks.",
                "It neither fails nor passes: there is no time to compare it with.",
            ),
            (
                steps.suggest_recording(
                    case, "record a baseline together with the change that adds it, on an idle machine:"
                ),
            ),
        )
    return Words(
        (
            f"The result is right, and no stored time exists to compare it with.{timed}",
            "Usual causes: a new case, a renamed workload or backend, a device that no baseline was recorded on.",
            "It has not passed: without a baseline, any slowdown could be hidden.",
        ),
        (
            steps.suggest_recording(case, "record one, on an idle machine:"),
            steps.suggest_side_by_side(told),
            NextStep("keep one on this machine only:", steps.format_pytest_command(case, "--attnperf-record-local")),
        ),
    )


def find_comparison_cause(case: CaseResult) -> Cause:
    """Returns why a case is INCOMPARABLE, by its reasons; without one, an error of the base side or another machine."""
    found = _find_cause(NOT_COMPARABLE, case)
    return found or (RAISED_THERE if case.against and not case.pairs else MACHINE)


def _find_cause(causes: tuple[Cause, ...], case: CaseResult) -> Cause | None:
    kinds = {kind_of(reason) for reason in case.reasons}
    if case.fault is not None and case.fault.kind == NoteKind.OUT_OF_MEMORY.value:
        kinds.add(NoteKind.OUT_OF_MEMORY)
    return next((cause for cause in causes if cause.kind in kinds), None)


def _format_clause(text: str, *, lower: bool = False) -> str:
    """Returns a summary in one line without its full stop, as part of a sentence; its first letter small if `lower`."""
    clean = one_line(text, TEXT_LIMIT).strip().rstrip(".") or "no details are known"
    return clean if lower else clean[:1].upper() + clean[1:]
