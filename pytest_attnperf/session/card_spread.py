"""Compares the cards of one or several runs, all of one product, and finds those that are slow.

Where cases have processes on several cards, each case gives the offset of each of its cards from the mean of the
others. Where every case ran on one card only, its ratio to the stored time takes the place of that; the cards' cases
are then different ones. The unit is the case. The centre is a mean without the lowest and the highest fifth (Yuen,
Biometrika 61, 1974), so that one slow case makes no slow card; chances are one-sided and corrected by Holm's steps over
all cards (Scand. J. Statist. 6, 1979).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.gate.limits import format_percent
from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.records.card_offsets import CardOffset, MeasuredCard
from pytest_attnperf.records.gpus import GpuRecord
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.session.side_by_side import is_possible
from pytest_attnperf.stats.card_components import CardComponents, compute_components, group_by_card
from pytest_attnperf.stats.quantiles import upper_quantile, upper_tail

SHARED = "the same cases on the other cards"

RATIOS = "what is stored, against other cases on the other cards"

Processes = Mapping[str, Sequence[ProcessSummary]]

CASES_MIN = 3
"""Fewest cases that a card must share with another before it may be called slow."""

CASES_EACH_MIN = 5
"""Fewest cases on either side where the cards ran different cases."""

TRIMMED = 0.2

CHANCE = 0.01
"""Accepted chance, over all cards of a run, that any of equally fast cards is called slow."""

SLOW_MIN = 0.01
"""Smallest slowdown, as a fraction, of a slow card: less is normal within a product. Four H200s differ by 0.3 %."""

ERROR_LEAST = 1e-5
"""Smallest standard error, of a log. Stored times have five digits: equal ones must not give a chance of zero."""


@dataclass(frozen=True)
class CardSpreads:
    """All cards of some runs, the slowest first.

    by           what offsets are relative to, as text; '' without offsets
    why_not      why some or all cards have no offset
    components   of variance between cards and processes; None without cases that ran on several
    """

    cards: tuple[MeasuredCard, ...]
    by: str = ""
    why_not: str = ""
    components: CardComponents | None = None


def card_spreads(runs: Sequence[RunResult]) -> CardSpreads:
    """Returns the cards of these runs, which must be of one product, with their offsets from each other."""
    processes = _collect_processes(runs)
    measured: dict[str, list[ProcessSummary]] = {}
    for held in processes.values():
        for process in held:
            if process.device_id:
                measured.setdefault(process.device_id, []).append(process)
    if not measured:
        return CardSpreads((), why_not="no process says which card it ran on")
    offsets, by = offsets_of_shared(processes), SHARED
    if not offsets:
        offsets, by = offsets_of_ratios(_collect_ratios(runs)), RATIOS
    found = {offset.device_id: offset for offset in offsets}
    cards = [_make_card(name, held, processes, runs, found.get(name)) for name, held in measured.items()]
    cards.sort(key=lambda card: (card.offset is None, -card.offset.offset if card.offset else 0.0, card.device_id))
    return CardSpreads(
        tuple(cards),
        by if offsets else "",
        _reason_not_compared(len(measured), len(offsets)),
        compute_components(processes),
    )


def slow_card_lines(run: RunResult) -> list[str]:
    """Returns a line for every card of the run that is slower than its other cards beyond chance; [] if none is."""
    spreads = card_spreads([run])
    return [describe_slow_card(card, spreads.by) for card in spreads.cards if card.slow]


def describe_slow_card(card: MeasuredCard, by: str) -> str:
    """Returns e.g. 'card GPU-1a2b is slow: +3.1 % (95 %: ...) in 20 cases, compared with ...'."""
    assert card.offset is not None
    low, high = (f"{100 * end:+.1f} %" for end in card.offset.interval95)
    return (
        f"card {card.device_id} is slow: {100 * card.offset.offset:+.1f} % (95 %: {low} .. {high}) in "
        f"{card.offset.cases} cases, compared with {by}; attnperf compare --by gpu shows the cards side by side"
    )


def _collect_processes(runs: Sequence[RunResult]) -> dict[str, list[ProcessSummary]]:
    """Returns '<case> <timer>' -> processes of recordings and first looks (second looks are left out: a slow first one
    selects them). Counts a run that is listed twice once."""
    found: dict[str, list[ProcessSummary]] = {}
    for case in _collect_cases(runs):
        for process in case.first if is_possible(*(process.median_us for process in case.first)) else ():
            found.setdefault(f"{case.key} {process.timer}", []).append(process)
    return found


def _collect_cases(runs: Sequence[RunResult]) -> Iterator[CaseResult]:
    seen: set[str] = set()
    for run in runs:
        if not run.run_id or run.run_id not in seen:
            seen.add(run.run_id)
            yield from run.cases


def _collect_ratios(runs: Sequence[RunResult]) -> dict[str, list[float]]:
    """Returns card -> [first measured time / stored time, ...], one per case whose first look ran on that card only."""
    found: dict[str, list[float]] = {}
    for case in _collect_cases(runs):
        cards = {process.device_id for process in case.first}
        times = (*case.stored_us, *(process.median_us for process in case.first))
        if len(cards) == 1 and case.stored_us and is_possible(*times):
            now = statistics.median(process.median_us for process in case.first)
            found.setdefault(cards.pop(), []).append(now / statistics.median(case.stored_us))
    return found


def _make_card(
    name: str,
    held: Sequence[ProcessSummary],
    processes: Processes,
    runs: Sequence[RunResult],
    offset: CardOffset | None,
) -> MeasuredCard:
    clocks = [process.clock_mhz for process in held if process.clock_mhz is not None]
    record = next((gpu for run in runs for gpu in run.gpus if gpu.device_id == name), GpuRecord(name))
    alone = next((run.device_state for run in runs if _find_only_card(run) == name and run.device_state), None)
    return MeasuredCard(
        name,
        cases=sum(any(process.device_id == name for process in group) for group in processes.values()),
        clock_mhz=statistics.median(clocks) if clocks else None,
        power_cap_w=record.power_cap_w,
        temperature_c=alone.after.get("temperature_c", "") if alone else "",
        partition="/".join(filter(None, (record.compute_partition, record.memory_partition))),
        offset=offset,
    )


def _find_only_card(run: RunResult) -> str:
    """Returns the id of the only GPU that first measurements ran on; '' if there are several, or none."""
    cards = {process.device_id for case in run.cases for process in case.first}
    return cards.pop() if len(cards) == 1 else ""


def _reason_not_compared(cards: int, judged: int) -> str:
    if cards == 1:
        return "one card measured all cases: there is no other to compare it with"
    if judged == cards:
        return ""
    lacking = "these cards" if not judged else f"{cards - judged} of {cards} cards"
    return (
        f"too few cases to compare {lacking}: it needs {CASES_MIN} cases with processes on several cards "
        f"(--update-baselines and --attnperf-calibrate spread them), or {CASES_EACH_MIN} gated cases on either side"
    )


def render_legend(spreads: CardSpreads) -> list[str]:
    """Returns lines that explain the figures of the table of cards, and why some have none."""
    if not spreads.by:
        return [spreads.why_not] if spreads.why_not else []
    lines = [
        f"offset: compared with {spreads.by}, mean over cases without the outer fifths; slow: beyond chance over all "
        f"cards (Holm, 1 %), and by {format_percent(SLOW_MIN)} or more"
    ]
    found = spreads.components
    if found is not None:
        common, own, process = (f"{100 * part**0.5:.2f} %" for part in (found.common, found.own, found.process))
        within = f"{process} between processes of one card" if found.process_degrees else "one process per card"
        lines.append(
            f"standard deviations over {found.cases} cases on {found.cards} cards: {common} between cards in all cases "
            f"alike, {own} more in single cases, {within}"
        )
    return [*lines, spreads.why_not] if spreads.why_not else lines


@dataclass(frozen=True)
class _Centre:
    """A trimmed mean of logs, its standard error with its degrees of freedom, and the number of cases."""

    value: float
    error: float
    degrees: int
    cases: int


def offsets_of_shared(cases: Mapping[str, Sequence[ProcessSummary]]) -> tuple[CardOffset, ...]:
    """Returns each card's offset from the others in cases that ran on it and on another card, slowest first. Leaves
    out cards with fewer than CASES_MIN such cases."""
    by_card = _collect_differences(cases)
    return _judge_cards({card: _compute_centre(values) for card, values in by_card.items() if len(values) >= CASES_MIN})


def _collect_differences(cases: Mapping[str, Sequence[ProcessSummary]]) -> dict[str, list[float]]:
    """Returns card -> [log of its time / the others' time, ...], one per case that ran on it and on another card."""
    by_card: dict[str, list[float]] = {}
    for processes in cases.values():
        cells = {card: statistics.fmean(logs) for card, logs in group_by_card(processes).items() if card}
        for card, value in cells.items() if len(cells) > 1 else ():
            others = statistics.fmean(cells[other] for other in cells if other != card)
            by_card.setdefault(card, []).append(value - others)
    return by_card


def offsets_by_case(runs: Sequence[RunResult]) -> dict[str, list[float]]:
    """Returns card -> its offsets from the other cards as fractions, one per case that ran on it and on another card,
    sorted: what the offsets of `card_spreads` by SHARED are means of."""
    found = _collect_differences(_collect_processes(runs))
    return {card: sorted(math.expm1(value) for value in values) for card, values in found.items()}


def offsets_of_ratios(ratios: Mapping[str, Sequence[float]]) -> tuple[CardOffset, ...]:
    """Returns each card's offset from the ratios to stored times (card -> ratios) of other cases on other cards,
    slowest first. Leaves out a card if it, or all others together, have fewer than CASES_EACH_MIN ratios."""
    logs = {card: [math.log(ratio) for ratio in values] for card, values in ratios.items() if card}
    found = {}
    for card, values in logs.items():
        others = [value for other, held in logs.items() if other != card for value in held]
        if min(len(values), len(others)) >= CASES_EACH_MIN:
            found[card] = _subtract_centres(_compute_centre(values), _compute_centre(others))
    return _judge_cards(found)


def _compute_centre(values: Sequence[float]) -> _Centre:
    """Returns the trimmed mean (without the TRIMMED share at each end) and its standard error (winsorised variance)."""
    cut = math.floor(TRIMMED * len(values))
    ordered = sorted(values)
    kept = ordered[cut : len(ordered) - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    error = math.sqrt(statistics.variance(winsorised) * (len(values) - 1) / (len(kept) * (len(kept) - 1)))
    return _Centre(statistics.fmean(kept), max(error, ERROR_LEAST), len(kept) - 1, len(values))


def _subtract_centres(one: _Centre, other: _Centre) -> _Centre:
    squares = one.error**4 / one.degrees + other.error**4 / other.degrees
    error = math.hypot(one.error, other.error)
    return _Centre(one.value - other.value, error, max(1, math.floor(error**4 / squares + 1e-9)), one.cases)


def _judge_cards(centres: Mapping[str, _Centre]) -> tuple[CardOffset, ...]:
    """Returns each card's offset, slowest first; `slow` is set where Holm's test over all cards is significant."""
    chances = {card: upper_tail(centre.value / centre.error, centre.degrees) for card, centre in centres.items()}
    slow: set[str] = set()
    for step, card in enumerate(sorted(chances, key=lambda card: chances[card])):
        if chances[card] > CHANCE / (len(chances) - step):
            break
        slow.add(card)
    found = [_make_offset(card, centre, beyond=card in slow) for card, centre in centres.items()]
    return tuple(sorted(found, key=lambda offset: -offset.offset))


def _make_offset(card: str, centre: _Centre, *, beyond: bool) -> CardOffset:
    half = upper_quantile(0.025, centre.degrees) * centre.error
    low, middle, high = (math.expm1(centre.value + part) for part in (-half, 0.0, half))
    return CardOffset(card, middle, (low, high), centre.cases, beyond and middle >= SLOW_MIN)
