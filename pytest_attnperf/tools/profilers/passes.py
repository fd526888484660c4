"""How many forward passes (steps) a profile holds: inferred from counts of calls, and checked against their order.

Counts. A kernel that runs k times in every pass has a number of calls that divides by the passes. The passes are a
number P that some kernels have as their calls (witnesses: they run once per pass) and that nearly all dispatches
belong to kernels whose calls divide by it. Several numbers may fit: a transformer's layers look like passes too, but
then what runs once per pass does not divide. So the number that explains most dispatches is taken, and of equal ones
the largest.

Order. The dispatches that fit, cut into P stretches of equal length, must hold the same kernels the same number of
times each, and what runs once per pass must come at the same place in each. Two benchmarks one after the other have
fitting counts, and fail here; so do a prefill whose layers number as many as some kernel's calls, and a trace that
ends within a pass.

Layers of one pass repeat as passes do. Where attention runs once in each stretch and other kernels less often, it is
left open which of the two they are.

Copies and fills by the runtime are left out: loading a model makes them too.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.profiles import ForwardPasses

FITTING_SHARE = 0.95
"""Of the dispatches, which must belong to kernels whose calls divide by the passes."""

WITNESSES = 2
"""Kernels that run once per pass, where only counts are known; one is enough where the order confirms it."""

DISPLACED_SHARE = 0.02
"""Of the dispatches, which may lie in another stretch than they should: queues run beside each other."""

DRIFT_SHARE = 0.10
"""Of a stretch, by which the place of a kernel that runs once in each may vary."""

TRIED = 8
"""Candidates whose order is looked at, those that explain most first."""

NAME_CHARACTERS = 80


@dataclass(frozen=True)
class Calls:
    """What is known of the calls of one device.

    counts       calls by kernel; the runtime's copies and fills are not among them
    attention    which of these kernels are attention
    order        of kernels as numbers, as they began; None where only counts are known
    numbers      number of each kernel in `order`
    apart        calls of the runtime's copies and fills, by name: they take no part, but are told where they do not fit
    whose        'on Agent 4, the busiest of 2 devices'; '' where there is one device
    """

    counts: Mapping[str, int]
    attention: Collection[str] = ()
    order: Sequence[int] | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    apart: Mapping[str, int] = field(default_factory=dict)
    whose: str = ""


@dataclass(frozen=True)
class PassesFound:
    """The answer, and the place in `Calls.order` of the first kernel of every pass; empty where the order is unknown
    or does not confirm."""

    passes: ForwardPasses
    begins: tuple[int, ...] = ()


def find_passes(calls: Calls, *, passes: int | None = None, layers: int | None = None) -> PassesFound:
    """Infer what is not given. A given number is kept and compared, never replaced."""
    found, how, begins = _infer_passes(calls, layers) if passes is None else _compare_given(calls, passes, layers)
    counted = f"counted {calls.whose}" if calls.whose else ""
    if found is None:
        return PassesFound(ForwardPasses(None, _join_parts(how, counted), layers))
    depth, layers_how = _infer_layers(calls, found, layers)
    odd = tuple(
        _describe_odd_kernel(name, count, found, of_runtime=of_runtime)
        for count, name, of_runtime in sorted(
            [(count, name, False) for name, count in calls.counts.items()]
            + [(count, name, True) for name, count in calls.apart.items()],
            key=lambda row: (-row[0], row[1]),
        )
        if count % found
    )
    return PassesFound(ForwardPasses(found, _join_parts(how, layers_how, counted), depth, odd), begins)


def _describe_odd_kernel(name: str, count: int, passes: int, *, of_runtime: bool) -> str:
    text = f"{cut_name(name)}: {count:,} calls do not divide by {passes} passes"
    return Note(NoteKind.COPIES, f"{text} (copies and fills come from loading a model, too)") if of_runtime else text


def _join_parts(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _infer_passes(calls: Calls, layers: int | None) -> tuple[int | None, str, tuple[int, ...]]:
    total = sum(calls.counts.values())
    if len(calls.counts) < 2:
        return None, "no passes inferred: that needs at least two kernels", ()
    if layers and layers == _most_attention(calls):
        begins = _find_stretches(calls, 1)[0] if calls.order is not None else ()
        return 1, f"1 pass: {layers:,} calls of attention are the {layers} layers given", begins
    candidates = _list_candidates(calls, total, layers)
    needed = WITNESSES if calls.order is None else 1
    fitting = [found for found in candidates if found.share >= FITTING_SHARE and found.witnesses >= needed]
    if not fitting:
        return None, f"no passes inferred: {_describe_nearest(candidates)}", ()
    if calls.order is None:
        count, how, begins = _choose_by_counts(candidates, fitting)
        return (count, how, begins) if count is None else _or_layers(calls, count, how, begins)
    for found in fitting[:TRIED]:
        begins, same = _find_stretches(calls, found.count)
        if begins:
            how = f"{found}; the order of dispatches confirms it: {same}"
            return _or_layers(calls, found.count, how, begins)
    return None, f"no passes inferred: {fitting[0]}, but they do not come in as many equal stretches", ()


def _or_layers(calls: Calls, count: int, how: str, begins: tuple[int, ...]) -> tuple[int | None, str, tuple[int, ...]]:
    """A number that fits, unless what repeats may as well be the layers of one pass: then none, or that is said."""
    attention = _most_attention(calls)
    rare = sorted((calls_of, name) for name, calls_of in calls.counts.items() if calls_of < count)
    if (attention and attention != count) or not (attention or rare):
        return count, how, begins
    less = f"{len(rare)} {'kernel runs' if len(rare) == 1 else 'kernels run'} less often" if rare else ""
    if attention and rare:
        example = f"{cut_name(rare[0][1])}: {rare[0][0]:,}"
        how = f"{count} stretches with one call of attention each may be passes, or layers of one, since {less}"
        return None, f"no passes inferred: {how} ({example}); --passes or --layers tells", ()
    why = "each has one call of attention" if attention else less
    return count, f"{how}; {why}: were these layers of one pass, --passes 1 would say so", begins


def _most_attention(calls: Calls) -> int:
    return max((calls.counts[name] for name in calls.attention), default=0)


def _choose_by_counts(
    candidates: Sequence[_Candidate], fitting: Sequence[_Candidate]
) -> tuple[int | None, str, tuple[int, ...]]:
    """The best one, unless one kernel alone says that each of these is a part of a pass, a layer for instance."""
    best, most = fitting[0], candidates[0]
    if most.share > best.share and best.count % most.count == 0:
        how = f"{best.count} or {most.count}, which one kernel alone speaks for; counts without their order do not tell"
        return None, f"no passes inferred: {how}", ()
    others = f"; {fitting[1].count} would fit too" if len(fitting) > 1 else ""
    return best.count, f"{best}; from counts alone, without their order{others}", ()


@dataclass(frozen=True)
class _Candidate:
    count: int
    share: float
    witnesses: int
    why: str = ""

    def __str__(self) -> str:
        text = f"{self.count} passes: the calls of kernels with {self.share:.1%} of the dispatches divide by it"
        return f"{text}, {self.why or f'and {_run_that_often(self.witnesses)}'}"


def _list_candidates(calls: Calls, total: int, layers: int | None) -> list[_Candidate]:
    """Those that explain most first; layers that are given speak for a number before any witness."""
    numbers = Counter(calls.counts.values())
    found = [
        _Candidate(
            count, sum(each * kernels for each, kernels in numbers.items() if each % count == 0) / total, witnesses
        )
        for count, witnesses in numbers.items()
        if count > 1
    ]
    found.sort(key=lambda each: (-each.share, -each.count))
    attention = _most_attention(calls)
    if layers and attention and attention % layers == 0 and attention > layers:
        count = attention // layers
        share = sum(each * kernels for each, kernels in numbers.items() if each % count == 0) / total
        why = f"and {attention:,} calls of attention are {count} times the {layers} layers given"
        found.insert(0, _Candidate(count, share, WITNESSES, why))
    return found


def _describe_nearest(candidates: Sequence[_Candidate]) -> str:
    several = [found for found in candidates if found.witnesses >= WITNESSES] or candidates
    if not several:
        return "every kernel ran once"
    best = several[0]
    return (
        f"nearest is {best.count}, by which the calls of kernels with {best.share:.1%} of the dispatches divide, and "
        f"{_run_that_often(best.witnesses)}; needed are {FITTING_SHARE:.0%} and {WITNESSES} kernels"
    )


def _compare_given(calls: Calls, passes: int, layers: int | None) -> tuple[int, str, tuple[int, ...]]:
    """What speaks for and against a number that was given."""
    total = sum(calls.counts.values())
    share = sum(count for count in calls.counts.values() if count % passes == 0) / total if total else 0.0
    begins = _find_stretches(calls, passes)[0] if calls.order is not None and share >= FITTING_SHARE else ()
    inferred, how, _ = _infer_passes(calls, layers)
    given = f"{passes} {'pass' if passes == 1 else 'passes'} as given"
    fitting = f"{given}: the calls of kernels with {share:.1%} of the dispatches divide by it"
    if inferred == passes:
        return passes, f"{fitting}, and as inferred: {how}", begins
    return passes, f"{fitting}; {'inferred are ' if inferred else ''}{how}", begins


def _find_stretches(calls: Calls, passes: int) -> tuple[tuple[int, ...], str]:
    """Places in the order where passes begin, and how alike they are; ((), '') where they are not."""
    fits = {calls.numbers[name] for name, count in calls.counts.items() if count % passes == 0}
    order = calls.order or ()
    places = array("q", (place for place, kernel in enumerate(order) if kernel in fits))
    length = len(places) // passes
    if not length:
        return (), ""
    kernels = array("q", map(order.__getitem__, places))
    stretches = [kernels[first : first + length] for first in range(0, length * passes, length)]
    begins = tuple(places[0 : length * passes : length])
    if all(stretch == stretches[0] for stretch in stretches):
        return begins, f"{passes} times the same {length:,} dispatches"
    each = Counter({kernel: count // passes for kernel, count in Counter(kernels).items()})
    displaced = sum((Counter(stretch) - each).total() for stretch in stretches)
    if displaced > DISPLACED_SHARE * len(kernels) or _has_drift(calls, kernels, passes, length):
        return (), ""
    return begins, f"{passes} stretches of {length:,} dispatches, {displaced} of them in another than they should be"


def _has_drift(calls: Calls, kernels: Sequence[int], passes: int, length: int) -> bool:
    """Whether most kernels that run once per pass come at another place in some of them."""
    once = {calls.numbers[name] for name, count in calls.counts.items() if count == passes}
    offsets: dict[int, list[int]] = {kernel: [] for kernel in once}
    for place, kernel in enumerate(kernels):
        if kernel in once:
            offsets[kernel].append(place - length * len(offsets[kernel]))
    allowed = max(2.0, DRIFT_SHARE * length)
    drifting = sum(max(places) - min(places) > allowed for places in offsets.values())
    return 2 * drifting > len(once)


def _infer_layers(calls: Calls, passes: int, layers: int | None) -> tuple[int | None, str]:
    """Layers of each pass: what every kernel of attention runs per pass, where all run equally often."""
    attention = sorted({calls.counts[name] for name in calls.attention})
    if layers is not None:
        expected = passes * layers
        if not attention:
            return layers, f"{layers} layers as given; no kernel of attention to compare with"
        if any(count % expected == 0 for count in (*attention, sum(calls.counts[name] for name in calls.attention))):
            return layers, f"{layers} layers as given fit the calls of attention"
        said = ", ".join(f"{count:,}" for count in attention)
        return layers, f"{layers} layers as given do not fit: attention has {said} calls, {expected:,} expected"
    if len(attention) > 1 and all(count % passes == 0 for count in attention) and attention[0] > passes:
        each = " and ".join(f"{count // passes:,}" for count in attention)
        return None, f"attention runs {each} times per pass on average: one may hold several forward passes"
    if len(attention) != 1 or attention[0] % passes or attention[0] == passes:
        return None, ""
    found = attention[0] // passes
    part = next((each for each in _list_parts(calls, passes) if found % each == 0 and found > each), 0)
    if part:
        which = f"{found} layers, or {part} forward passes of {found // part} layers"
        return None, f"{attention[0]:,} calls of attention: each of the {passes} has {which}"
    return found, f"{attention[0]:,} calls of attention = {passes} passes x {found} layers"


def _list_parts(calls: Calls, passes: int) -> list[int]:
    """Numbers of equal parts that a pass may have, by what runs once in each: micro-batches of a training step."""
    total = sum(calls.counts.values())
    candidates = _list_candidates(calls, total, None)
    fitting = [found for found in candidates if found.share >= FITTING_SHARE and found.witnesses >= WITNESSES]
    return [found.count // passes for found in fitting if found.count > passes and found.count % passes == 0]


def _run_that_often(kernels: int) -> str:
    return "1 kernel runs that often" if kernels == 1 else f"{kernels} kernels run that often"


def cut_name(name: str) -> str:
    """Cut a kernel's name to what a sentence can hold."""
    return name if len(name) <= NAME_CHARACTERS else name[: NAME_CHARACTERS - 3] + "..."
