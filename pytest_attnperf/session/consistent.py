"""Checks whether the figures of a results file can be a run's: recomputes what must follow from the samples.

A file may come from a job that runs code nobody has read. These checks detect contradictions, not invention: samples
that were made up from the start contradict nothing.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pytest_attnperf.correctness.budget import LAST_CALL, LAST_REPLAY, PLANTED, TIMED, UNPLANTED, list_problems
from pytest_attnperf.records import CheckReport, DeviceInfo, ErrorFigures, ProcessSummary, Tolerance
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.results import CaseResult
from pytest_attnperf.stats.pair_ratios import STORED_QUADS_MAX
from pytest_attnperf.stats.summaries import STORED_BLOCKS_MAX, centre_of, method_of

ROUNDING = 1.2e-4
"""Relative: a median of numbers of five digits, itself rounded to five, has an error of at most 1e-4."""

TELLING_VALUES = 4
"""Number of different values in one process from which on no other process has the same in the same order. Of the 3,295
processes in baselines/sm_90 no two have the same blocks, and the fewest different values in one are 4."""

Centre = Callable[[Sequence[float], int], float]
"""Returns the time of a process, from its blocks and the number of its placements."""

IDENTITY = ("arch", "product", "compute_units")
"""Fields of a fingerprint that a run's device also has."""


def find_contradictions(case: CaseResult, device: DeviceInfo, stored: Sequence[ProcessSummary] = ()) -> list[str]:
    """Returns why the figures of a timed case in a results file cannot all be true, as texts; [] if they can be.

    stored   the processes of its baseline: none of them can be a process of this run
    """
    if case.fingerprint is None or case.figures is None or not case.first:
        return ["there is no time to judge: the case has no process, no fingerprint, or no figures of its workload"]
    found = list(_identity_problems(case.fingerprint.must_match, device))
    must_match = case.fingerprint.must_match
    timer = must_match.get("timer", "")
    centre = centre_of if must_match.get("method", method_of(timer)) == method_of(timer) else _centre_of_method_1
    looks = [("first look", case.first), ("second look", case.second), ("stored choice", case.pinned)]
    looks += [("look at costs", case.costly)]
    for name, processes in looks:
        for number, process in enumerate(processes, start=1):
            found += [f"{name}, process {number}: {text}" for text in _process_problems(process, timer, centre)]
    found += [
        f"pair {number}: {text}" for number, pair in enumerate(case.pairs, 1) for text in _pair_problems(pair, timer)
    ]
    for name, processes in case.canary.items():
        found += [f"canary {name}: {text}" for process in processes for text in _canary_problems(process)]
    return [
        *found,
        *_find_repeated_processes([*case.first, *case.second, *case.pinned, *case.costly], stored),
        *_find_repeated_pairs(case.pairs),
    ]


def find_shared_process(ours: Sequence[ProcessSummary], theirs: Sequence[ProcessSummary]) -> ProcessSummary | None:
    """Returns the first process of `ours` that stands in `theirs`, too: it has the blocks of one there, and these
    cannot be equal by chance, or its id and card are equal as well. None if none does."""
    blocks = {process.block_us for process in theirs if _is_telling(process.block_us)}
    known = {_identify_process(process) for process in theirs}
    shared = (one for one in ours if one.block_us in blocks or _identify_process(one) in known)
    return next(shared, None)


def _identify_process(process: ProcessSummary) -> tuple[str, str, tuple[float, ...]]:
    return process.process, process.device_id, process.block_us


def note_contradiction(what: str) -> Note:
    """Returns the note 'figures contradict each other: ...', a reason of a case whose figures cannot all be true."""
    return Note(NoteKind.CONTRADICTED, f"figures contradict each other: {what}")


def list_proof_gaps(checks: Sequence[CheckReport], allowed: Tolerance | None) -> list[str]:
    """Returns why a case is not proven right, judged again from the errors and budgets of its checks; [] if it is.

    allowed   the tolerance that its baseline was stored with: it replaces a looser one of the checks
    """
    if not checks or not any(check.figures for check in checks):
        return ["no output was compared with a reference, which proves nothing"]
    found: list[str] = []
    for check in checks:
        wrong = [*check.problems]
        wrong += list_problems([_budget_of(figures, check.tolerance, allowed) for figures in check.figures])
        found += wrong or [note_contradiction(text) for text in _proof_problems(check)]
    return list(dict.fromkeys(found))


def _proof_problems(check: CheckReport) -> Iterator[str]:
    """Yields why the figures of this check cannot be those of one passed proof, as texts."""
    compared: dict[str, Counter[str]] = {TIMED: Counter(), PLANTED: Counter(), LAST_CALL: Counter()}
    for one in check.figures:
        where = f"{one.check}: {one.output!r}"
        if not all(math.isfinite(value) for pair in one.budgets for value in pair):
            yield f"{where} has an error or a budget that is not finite"
        gap = abs(one.worst_got - one.worst_expected)
        if one.max_error < gap * (1 - ROUNDING):
            yield f"{where} has a stated error of {one.max_error:.3g}, but its worst values differ by {gap:.3g}"
        kind = PLANTED if one.check.startswith(UNPLANTED) else one.check.replace(LAST_REPLAY, LAST_CALL)
        if kind in compared:
            compared[kind][one.output] += 1
    for output in dict.fromkeys(name for outputs in compared.values() for name in outputs):
        if compared[TIMED][output] != compared[PLANTED][output]:
            yield (
                f"{output!r} was compared {compared[TIMED][output]} times on {TIMED} and {compared[PLANTED][output]} "
                f"times on {PLANTED}; a proof compares both equally often, so a figure was removed"
            )
        elif not compared[TIMED][output]:
            yield f"{output!r} was compared after the last run only: the figures of the proof were removed"


def _budget_of(figures: ErrorFigures, own: Tolerance, allowed: Tolerance | None) -> ErrorFigures:
    """Returns the figures with budgets reduced from the check's tolerance `own` to `allowed`, if that is smaller.

    A budget is multiplier x error + step: reducing it in proportion never takes off too little.
    """
    share = 1.0 if allowed is None else allowed.for_output(figures.output) / own.for_output(figures.output)
    if share >= 1:
        return figures
    return replace(
        figures,
        max_budget=figures.max_budget * share,
        rms_budget=figures.rms_budget * share,
        line_budget=figures.line_budget * share,
    )


def _identity_problems(must_match: dict[str, str], device: DeviceInfo) -> Iterator[str]:
    for field in IDENTITY:
        ours = getattr(device, field)
        if field in must_match and ours and must_match[field] != str(ours):
            yield f"{field} is {must_match[field]} in the case's fingerprint and {ours} in the run's device"


def _process_problems(process: ProcessSummary, timer: str, centre: Centre) -> Iterator[str]:
    """Yields contradictions in one process's figures, as texts; `centre` computes its time by its method version."""
    if process.timer != timer:
        yield f"its timer is {process.timer!r}, the fingerprint's {timer!r}"
    if not process.block_us:
        yield "it has no blocks, so its median cannot be recomputed"
        return
    figures = (process.median_us, process.min_us, process.mean_us, *process.block_us)
    if not all(map(_is_time, figures)):
        yield "a time is not finite and positive"
        return
    blocks, whole = process.block_us, len(process.block_us) < STORED_BLOCKS_MAX
    if whole and (process.placements < 1 or len(blocks) % process.placements):
        yield f"{len(blocks)} blocks do not divide into {process.placements} placements"
        return
    low, high = [centre(blocks, process.placements)] * 2 if whole else _quarter_means(blocks)
    if not _is_between(process.median_us, low, high):
        yield f"its median is stated as {process.median_us:g} us, but its blocks give {_format_range(low, high)} us"
    least, mean = min(blocks), statistics.fmean(blocks)
    if process.min_us > least * (1 + ROUNDING) or (whole and not _is_between(process.min_us, least, least)):
        yield f"its minimum is stated as {process.min_us:g} us, but its blocks give {least:g} us"
    if whole and not _is_between(process.mean_us, mean, mean):
        yield f"its mean is stated as {process.mean_us:g} us, but its blocks give {mean:g} us"


def _centre_of_method_1(blocks: Sequence[float], placements: int) -> float:
    """Returns the mean over memory placements of each one's median: the `graph` timer's time before method 2."""
    each = len(blocks) // placements
    return statistics.fmean(statistics.median(blocks[place * each :][:each]) for place in range(placements))


def _quarter_means(values: Sequence[float]) -> tuple[float, float]:
    """Returns (mean of the smallest quarter, mean of the largest quarter of the values).

    A process's time must lie between them, also if it kept only some of its blocks, so that their memory placements
    are not known."""
    ordered, quarter = sorted(values), max(1, len(values) // 4)
    return statistics.fmean(ordered[:quarter]), statistics.fmean(ordered[-quarter:])


def _pair_problems(pair: PairSummary, timer: str) -> Iterator[str]:
    """Yields contradictions in the figures of one pair of processes, as texts; `timer` is the fingerprint's."""
    if pair.timer != timer:
        yield f"its timer is {pair.timer!r}, the fingerprint's {timer!r}"
    if not all(map(_is_time, (pair.ratio, pair.base_us, pair.new_us, *pair.quad_ratios))):
        yield "a time or a ratio is not finite and positive"
        return
    if len(pair.quad_ratios) != min(pair.quads, STORED_QUADS_MAX) or not pair.quad_ratios:
        yield f"it states {pair.quads} quads and has {len(pair.quad_ratios)}"
        return
    low, high = (math.exp(end) for end in _quarter_means([math.log(ratio) for ratio in pair.quad_ratios]))
    if not _is_between(pair.ratio, low, high):
        yield f"its ratio is stated as {pair.ratio:g}, but its quads give {_format_range(low, high)}"


def _canary_problems(process: ProcessSummary) -> Iterator[str]:
    if not all(map(_is_time, (process.median_us, process.min_us, process.mean_us))):
        yield "a time is not finite and positive"


def _find_repeated_processes(processes: Sequence[ProcessSummary], stored: Sequence[ProcessSummary]) -> Iterator[str]:
    """Yields a text if two processes, or one and a stored one, have the same blocks: real times are never all equal."""
    blocks = [process.block_us for process in processes if _is_telling(process.block_us)]
    if len(set(blocks)) < len(blocks):
        yield "the same process twice: two processes have the same blocks"
    if set(blocks) & {process.block_us for process in stored}:
        yield "the same process twice: one is a process of the stored baseline, block for block"


def _find_repeated_pairs(pairs: Sequence[PairSummary]) -> Iterator[str]:
    quads = [pair.quad_ratios for pair in pairs if _is_telling(pair.quad_ratios)]
    if len(set(quads)) < len(quads):
        yield "the same pair twice: two pairs have the same quads"


def _is_telling(values: Sequence[float]) -> bool:
    """Returns whether equal values in two processes cannot be chance: TELLING_VALUES or more differ from each other. A
    stable time gives the same five digits in any process."""
    return len(set(values)) >= TELLING_VALUES


def _is_time(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _is_between(value: float, low: float, high: float) -> bool:
    return low * (1 - ROUNDING) <= value <= high * (1 + ROUNDING)


def _format_range(low: float, high: float) -> str:
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
