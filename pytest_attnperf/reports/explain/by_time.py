"""Explains verdicts that a time decides (SAME, FASTER, SLOWER, UNDECIDED, ENVIRONMENT), a time and what ran (MOVED,
DRIFT, STALE) or another cost (GREW), and cases that are not gated."""

from __future__ import annotations

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.reports.explain import steps
from pytest_attnperf.reports.explain.facts import NextStep, Told, Words
from pytest_attnperf.reports.text.figures import format_change, one_line
from pytest_attnperf.results import CaseResult

NAME_LIMIT = 200


def explain_same(told: Told) -> Words:
    """Returns sentences and next steps for a SAME case: the change is within the allowed limit."""
    case = told.case
    sentences = [
        f"The result is right, and the call takes {_describe_change(told)}.",
        f"That is within the {_format_allowed(told)} that this test allows, so it passes.",
        _describe_detection_limit(told, "It does not mean that nothing changed: a slowdown"),
    ]
    if case.second:
        sentences.append("The first look showed a larger change; the second, in other processes, did not confirm it.")
    sentences += _machine_code(case)
    return Words(tuple(filter(None, sentences)), (steps.suggest_repeat(case), steps.suggest_history(told)))


def explain_faster(told: Told) -> Words:
    """Returns sentences and next steps for a FASTER case: it is faster than stored, beyond threshold and noise."""
    case = told.case
    sentences = [
        f"The result is right, and the call takes {_describe_change(told)}.",
        "That is more than the threshold and more than the noise, so it is real, or the machine has changed.",
        "The test passes. Until the faster time is stored, the gate does not notice a return to the slower one.",
        "It is no sign of skipped work by itself: the result was proven. A faster case is proven once more on new "
        "inputs, and timed while they change.",
        *_machine_code(case),
    ]
    return Words(
        tuple(sentences),
        (steps.suggest_recording(case, "keep the faster time as the new baseline:"), steps.suggest_repeat(case)),
    )


def explain_slower(told: Told) -> Words:
    """Returns sentences and next steps for a SLOWER case: pairs or two looks confirm the slowdown."""
    case = told.case
    sentences = [f"The result is right, and the call takes {_describe_change(told)}."]
    sentences += _by_pairs(told) if case.pairs else _by_looks(told)
    sentences += _machine_code(case)
    sentences += _another_path(case)
    next_steps = [
        steps.suggest_bisect(told),
        steps.suggest_repeat(case),
        *steps.suggest_accept(told),
        steps.suggest_quarantine(),
    ]
    if not case.pairs:
        next_steps.insert(0, steps.suggest_side_by_side(told))
    return Words(tuple(sentences), tuple(next_steps))


def explain_undecided(told: Told) -> Words:
    """Returns sentences and next steps for an UNDECIDED case: within noise, unknown noise, or out of time."""
    case = told.case
    if filter_notes(case.reasons, NoteKind.BUDGET):
        return _explain_out_of_time(told)
    if case.ratio is None or case.threshold is None:
        return _explain_noise_unknown(told)
    units = "pairs" if case.pairs else "processes"
    sentences = [
        f"The result is right, and the call takes {_describe_change(told)}.",
        f"That is more than the {_format_allowed(told)} that this test allows. But only from "
        f"{format_change(case.threshold)} on is it certain that the code is slower; below that, it may be chance.",
        f"It is neither passed nor failed: the true change lies between {_format_interval_ends(case)} 95 times in 100.",
        _describe_detection_limit(told, "It does not mean that the kernel is fine: a slowdown"),
        f"More {units} lower that limit; how many would decide it, and how long they take, is below.",
        *_machine_code(case),
    ]
    first = () if case.pairs else (steps.suggest_side_by_side(told),)
    return Words(
        tuple(filter(None, sentences)),
        (*first, steps.suggest_repeat(case), steps.suggest_doctor(), steps.suggest_quarantine()),
    )


def explain_environment(told: Told) -> Words:
    """Returns sentences and next steps for an ENVIRONMENT case: the machine or the toolchain changed, too."""
    case = told.case
    grown = filter_notes(case.reasons, NoteKind.COST_GREW)
    said = ", but costs that its test gates grew." if grown else ", which is more than noise."
    sentences = [f"The result is right, and the call takes {_describe_change(told)}{said}"]
    sentences += map(_format_sentence, grown)
    moved = filter_notes(case.reasons, NoteKind.TOOLCHAIN)
    if moved:
        changes = one_line(moved[0].about, NAME_LIMIT)
        sentences += [
            f"But the toolchain is not the one that the baseline was recorded with: {changes}.",
            "A stored time cannot show whether the code or the toolchain is the cause, so the test does not fail.",
            "This does not prove the code innocent: with the old toolchain it could be as slow.",
        ]
    else:
        sentences += [
            "But the canary, a fixed kernel that does not change with your code, became slower too. Without that "
            "share the case would be within its limit.",
            "So the machine changed: another GPU of the product, its power cap, its temperature, or another job.",
            "This does not prove the code innocent: the machine's shift could hide a smaller slowdown.",
        ]
    sentences += _machine_code(case)
    after = steps.suggest_recording(case, "if only the environment changed, permanently:")
    return Words(tuple(sentences), (steps.suggest_side_by_side(told), steps.suggest_doctor(), after))


def explain_grew(told: Told) -> Words:
    """Returns sentences and next steps for a GREW case: no slower, but another cost of it exceeds the stored one."""
    case = told.case
    sentences = [
        f"The result is right, and the call takes {_describe_change(told)}: its time does not fail it.",
        "But it costs more than its test allows (costs=), in every process of both looks:",
        *map(_format_sentence, filter_notes(case.reasons, NoteKind.COST_GREW)),
        "A cost counts as grown only where the least of the new processes exceeds the greatest stored one.",
    ]
    keep = steps.suggest_recording(case, "if it is wanted, store it:")
    return Words(tuple(sentences), (steps.suggest_bisect(told), steps.suggest_repeat(case), keep))


def explain_moved(told: Told) -> Words:
    """Returns sentences and next steps for a MOVED case: slower, though it ran the very code of its baseline."""
    case = told.case
    sentences = [
        f"The result is right, and the call takes {_describe_change(told)}.",
        "But the machine code, its launches, the configuration and every source file are those of the baseline: "
        "the same code cannot become slower by itself.",
        "So the machine changed: another GPU of the product, its clocks, its temperature, or another job.",
        *map(_format_sentence, filter_notes(case.reasons, NoteKind.PINNED)),
        "A change of a data file outside the source folders, an environment variable or a library is not detected.",
    ]
    after = steps.suggest_recording(case, "to add this GPU to those of the baseline:")
    return Words(tuple(sentences), (steps.suggest_doctor(), steps.suggest_side_by_side(told), after))


def explain_drift(told: Told) -> Words:
    """Returns sentences and next steps for a DRIFT case: slower because an autotuner chose another configuration."""
    case = told.case
    sentences = [f"The result is right, and the call takes {_describe_change(told)}."]
    for reason in filter_notes(case.reasons, NoteKind.PINNED):
        sentences.append(f"But an autotuner chose another configuration: {one_line(reason.about, NAME_LIMIT)}.")
        sentences.append(_format_sentence(reason))
    sentences += [
        "The sources are those of the baseline, so they are not the reason: an autotuner takes what was fastest "
        "in a few milliseconds.",
        "Users of the kernel may get the slower choice, too: --attnperf-fail-on=drift makes this fail the test.",
    ]
    again = NextStep("time the stored choice:", steps.format_pytest_command(case, "--attnperf-pin-config"))
    keep = steps.suggest_recording(case, "to keep the new choice, with its time:")
    return Words(tuple(sentences), (again, steps.suggest_side_by_side(told), keep))


def explain_stale(told: Told) -> Words:
    """Returns sentences and next steps for a STALE case: its baseline entry was recorded with other sources."""
    case = told.case
    sentences = [
        "The result is right, and its time was not judged.",
        "This run has the sources of the base revision, but the baseline was recorded with other ones.",
        "So the slowdown came before this change. The entry should have been recorded again then.",
        *map(_format_sentence, filter_notes(case.reasons, NoteKind.SOURCES)),
    ]
    again = steps.suggest_recording(case, "record it again, in a change of its own:")
    return Words(tuple(sentences), (again, steps.suggest_bisect(told)))


def explain_recorded(told: Told) -> Words:
    """Returns sentences and next steps for a RECORDED case: it was measured and stored, and not judged."""
    case = told.case
    first = ", in place of a time that cannot be compared" if case.reasons else ", the first of its case"
    over = f", {format_change(case.ratio)} against what was stored before" if case.ratio else first
    count = len(case.first)
    return Words(
        (
            f"The case was proven right, measured in {count} fresh process{'es' * (count != 1)} and stored{over}.",
            "Recording judges nothing: later runs are compared with the measured time.",
            "If it is slower than before, the creep guard keeps the fastest time and reports it.",
            *_another_path(case),
        ),
        (steps.suggest_repeat(case), steps.suggest_history(told)),
    )


def explain_right(told: Told) -> Words:
    """Returns sentences and next steps for a RIGHT case: it was proven right and no time was compared."""
    case = told.case
    if case.unchanged:
        return Words(
            (
                "The result is right, and the case was not timed: its machine code, launches and configuration are "
                "those of its baseline, with the same toolchain and machine.",
                "The same code on the same machine takes the same time, so the case counts as judged.",
                "It is not a measurement: it would not show a slower machine or slower inputs.",
            ),
            (NextStep("time it anyway:", steps.format_pytest_command(case)),),
        )
    why = f" ({one_line(case.summary, NAME_LIMIT)})" if case.summary else ""
    return Words(
        (
            f"The result is right, and no time was compared{why}.",
            "The run did not gate it: it ran without --attnperf, with timed=False, as a calibration, on all GPUs at "
            "once, or in a process that may not gate.",
            "It says nothing about speed.",
        ),
        (NextStep("time it and compare it with its baseline:", steps.format_pytest_command(case)),),
    )


def _format_sentence(reason: str) -> str:
    """Returns a reason in one line, with a capital at its beginning and a full stop at its end."""
    text = one_line(reason, NAME_LIMIT)
    return f"{text[:1].upper()}{text[1:]}."


def _describe_change(told: Told) -> str:
    """Returns e.g. '6.1 % longer than when its baseline was recorded: 26.1 us now, 24.6 us then', to follow 'takes'."""
    case = told.case
    there, then = ("on the base side", "there") if case.pairs else ("when its baseline was recorded", "then")
    if case.ratio is None or case.median_us is None or case.baseline_us is None:
        return "a time that was not compared"
    size = format_change(case.ratio).lstrip("+-")
    way = "longer than" if case.ratio > 1 else "less time than"
    if size == "0.0 %":
        size, way = "as long", "as"
    now, before = format_time(case.median_us), format_time(case.baseline_us)
    return f"{size} {way} {there}: {now} now, {before} {then}"


def _format_allowed(told: Told) -> str:
    tolerated = told.facts.tolerated
    return "slowdown" if tolerated is None else format_change(tolerated)


def _describe_detection_limit(told: Told, begin: str) -> str:
    limit = told.case.detection_limit
    if limit is None:
        return f"{begin} of any size could be missed here, because the noise is too large."
    return f"{begin} smaller than {format_change(1 + limit).lstrip('+')} could be missed here."


def _format_interval_ends(case: CaseResult) -> str:
    if case.interval is None:
        return "unknown limits"
    return " and ".join(format_change(end) for end in case.interval)


def _by_looks(told: Told) -> list[str]:
    case = told.case
    fresh = len(case.second)
    stored = f"{len(case.stored_us)} stored processes" + (
        f" of {one_line(case.stored_at, 40)}" if case.stored_at else ""
    )
    return [
        f"Two looks agree: the first made it a suspect, and {fresh} other fresh process{'es' * (fresh != 1)}, which "
        f"alone decide, put the change between {_format_interval_ends(case)} (95 %).",
        f"Unchanged code goes beyond {format_change(case.threshold)} in {_format_alarm_share(told)} of such "
        f"looks, so it is not "
        "noise and not one slow process.",
        f"It can still be the machine: the {stored} ran at another time, maybe on another GPU.",
    ]


def _by_pairs(told: Told) -> list[str]:
    case = told.case
    return [
        f"Both revisions ran interleaved on the same device in the same minutes, in {len(case.pairs)} pairs of fresh "
        f"processes: the change lies between {_format_interval_ends(case)} (95 %).",
        f"Unchanged code goes beyond {format_change(case.threshold)} in {_format_alarm_share(told)} of such looks.",
        _between_sides(case),
    ]


def _between_sides(case: CaseResult) -> str:
    """Returns a sentence on how the base side and the candidate, run in turns, differ: by toolchain or source tree."""
    against = one_line(case.against, NAME_LIMIT)
    releases = filter_notes(case.notes, NoteKind.RELEASES)
    if releases:
        return (
            f"It is not the clock, the heat or the day, which both sides shared; it may be the toolchain, which is not "
            f"that of {against}: {one_line(releases[0].about, NAME_LIMIT)}."
        )
    return (
        f"It is not the driver, the clock, the heat or the day, which {against} shared: it is what differs between the "
        "two trees."
    )


def _format_alarm_share(told: Told) -> str:
    share = told.facts.share
    return "few" if share is None else f"less than {100 * share:.2g} %"


def _machine_code(case: CaseResult) -> list[str]:
    """Returns at most one sentence on whether the machine code or launches changed; [] if there is nothing to say."""
    if filter_notes(case.notes, NoteKind.UNCHANGED):
        return [
            "The machine code and its launches are the same as before, so the kernel's code is not what changed: look "
            "at the machine, at noise, and at the values passed to it."
        ]
    if filter_notes(case.notes, NoteKind.CHANGED, NoteKind.CHANGED_SIDE):
        return ["What ran differs from before, as listed below: look there first."]
    known = any(launch.isa_hash for launch in case.launches)
    if case.verdict in (Verdict.SLOWER, Verdict.UNDECIDED) and case.launches and not known:
        return ["Whether its machine code changed is not known: a library's kernels do not show it."]
    return []


def _another_path(case: CaseResult) -> list[str]:
    found = filter_notes(case.reasons, NoteKind.OTHER_PATH)
    return [f"The library took another path: {one_line(found[0].about, NAME_LIMIT)}."] if found else []


def _explain_out_of_time(told: Told) -> Words:
    case = told.case
    proven = bool(case.checks or case.first)
    sentences = [
        f"The run ended its time before this case was decided: {one_line(case.summary, NAME_LIMIT)}.",
        f"Its first look showed {format_change(case.ratio)}, so it is a suspect, and no second look followed."
        if case.ratio is not None
        else "No look measured its time.",
        "The result was proven right." if proven else "Nothing is proven, not even that its result is right.",
        "It has not passed: a suspect without a second look may be a slowdown or noise.",
    ]
    alone = NextStep("alone, without a budget:", steps.format_pytest_command(case))
    return Words(tuple(sentences), (alone, steps.suggest_side_by_side(told), steps.suggest_quarantine()))


def _explain_noise_unknown(told: Told) -> Words:
    case = told.case
    sentences = [
        f"The result is right, and the call takes {_describe_change(told)}.",
        "Whether that is much is not known: the spread between processes of unchanged code is unknown, because no "
        f"case of this timer has two {'pairs' if case.pairs else 'stored processes'}.",
        "It is neither passed nor failed, and no number of fresh runs can decide it before the noise is known.",
    ]
    again = steps.suggest_recording(case, "record the baseline in several fresh processes, whose spread is the noise:")
    return Words(tuple(sentences), (again, steps.suggest_side_by_side(told)))
