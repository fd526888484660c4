"""Infers how many forward passes (steps) a profile holds, from counts of calls, and checks the number by their order.

Counts: if a kernel runs k times in every pass, the passes divide its calls. The result is a number P that some kernels
have as their calls (witnesses: they run once per pass), and that divides the calls of the kernels with nearly all
dispatches. Several numbers may fit. A transformer's layers look like passes too, but then the calls of kernels that run
once per pass are not divisible. So the number that explains most dispatches is taken, and of equal ones the largest.

Order: the dispatches that fit are cut into P stretches of equal length. Each must hold the same kernels the same number
of times, and kernels that run once per pass must be at the same place in each. This check fails for two benchmarks in
sequence, whose counts fit; for a prefill whose number of layers is the number of some kernel's calls; and for a trace
that ends within a pass.

Layers of one pass repeat as passes do. If attention runs once in each stretch and other kernels less often, the result
stays open. Copies and fills by the runtime are left out, because loading a model makes them too.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.profiles import ForwardPasses

FITTING_SHARE = 0.95
"""Least share of dispatches of kernels whose calls are divisible by the passes."""

WITNESSES = 2
"""Least kernels that run once per pass if only counts are known; one is enough if the order confirms it."""

DISPLACED_SHARE = 0.02
"""Largest share of dispatches in a wrong stretch, which parallel queues cause."""

DRIFT_SHARE = 0.10
"""Largest variation of the place of a kernel that runs once per stretch, as a share of the stretch."""

TRIED = 8
"""Most candidates whose order is checked, those that explain most first."""

NAME_CHARACTERS = 80


@dataclass(frozen=True)
class Calls:
    """The kernel calls of one device.

    counts       calls by kernel, without the runtime's copies and fills
    attention    the kernels among them that are attention
    order        numbers of the kernels, ordered by start; None if only counts are known
    numbers      number of each kernel in `order`
    apart        calls of the runtime's copies and fills, by name: not used, but reported if they do not fit
    whose        'on Agent 4, the busiest of 2 devices'; '' if there is one device
    """

    counts: Mapping[str, int]
    attention: Collection[str] = ()
    order: Sequence[int] | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    apart: Mapping[str, int] = field(default_factory=dict)
    whose: str = ""


@dataclass(frozen=True)
class PassesFound:
    """The passes, and the index in `Calls.order` of the first kernel of every pass; empty if the order is unknown or
    does not confirm the passes."""

    passes: ForwardPasses
    begins: tuple[int, ...] = ()


def find_passes(calls: Calls, *, passes: int | None = None, layers: int | None = None) -> PassesFound:
    """Returns the number of forward passes and of layers in each, with reasons; None for one that cannot be inferred. A
    given number is kept and compared with the inferred one, never replaced."""
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
    """Returns (number of passes, reason in words, indices where passes begin), if dispatches repeat `count` times. If
    the repeats may be layers of one pass, the number is None and the indices (), or the reason says so."""
    attention = _most_attention(calls)
    rare = sorted((calls_of, name) for name, calls_of in calls.counts.items() if calls_of < count)
    if (attention and attention != count) or not (attention or rare):
        return count, how, begins
    less = f"{len(rare)} {'kernel runs' if len(rare) == 1 else 'kernels run'} less often" if rare else ""
    if attention and rare:
        example = f"{cut_name(rare[0][1])}: {rare[0][0]:,}"
        how = f"{count} stretches with one call of attention each may be passes, or layers of one, since {less}"
        return None, f"no passes inferred: {how} ({example}); give --passes or --layers", ()
    why = "each has one call of attention" if attention else less
    return count, f"{how}; {why}: if these are layers of one pass, give --passes 1", begins


def _most_attention(calls: Calls) -> int:
    return max((calls.counts[name] for name in calls.attention), default=0)


def _choose_by_counts(
    candidates: Sequence[_Candidate], fitting: Sequence[_Candidate]
) -> tuple[int | None, str, tuple[int, ...]]:
    """Returns (number of passes, reason in words, ()) of the best candidate in `fitting`. The number is None if the
    best of all `candidates` divides it, so that its passes may be parts of passes, such as layers."""
    best, most = fitting[0], candidates[0]
    if most.share > best.share and best.count % most.count == 0:
        how = f"{best.count} or {most.count}, which only one kernel supports; counts without the order cannot decide"
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
    """Returns possible numbers of passes: first one that follows from given layers, then the others by the share of
    dispatches that are of kernels whose calls they divide, largest first."""
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
        f"nearest is {best.count}: the calls of kernels with {best.share:.1%} of the dispatches divide by it, and "
        f"{_run_that_often(best.witnesses)}; needed are {FITTING_SHARE:.0%} and {WITNESSES} kernels"
    )


def _compare_given(calls: Calls, passes: int, layers: int | None) -> tuple[int, str, tuple[int, ...]]:
    """Returns the given number of passes, the evidence for and against it in words, and where passes begin."""
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
    """Returns the indices of `Calls.order` where passes begin, and how equal they are; ((), '') if unequal."""
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
    return begins, f"{passes} stretches of {length:,} dispatches, {displaced} of them in a wrong one"


def _has_drift(calls: Calls, kernels: Sequence[int], passes: int, length: int) -> bool:
    """Returns whether most kernels that run once per pass change their place by more than 10 % of a pass."""
    once = {calls.numbers[name] for name, count in calls.counts.items() if count == passes}
    offsets: dict[int, list[int]] = {kernel: [] for kernel in once}
    for place, kernel in enumerate(kernels):
        if kernel in once:
            offsets[kernel].append(place - length * len(offsets[kernel]))
    allowed = max(2.0, DRIFT_SHARE * length)
    drifting = sum(max(places) - min(places) > allowed for places in offsets.values())
    return 2 * drifting > len(once)


def _infer_layers(calls: Calls, passes: int, layers: int | None) -> tuple[int | None, str]:
    """Returns (layers of each pass, reason in words). Keeps given `layers`; else takes the attention calls per pass;
    None if that is no whole number above 1, or if several attention kernels or equal parts make it unclear."""
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
    """Returns the numbers of equal parts, such as micro-batches, into which a pass may be divided: those in which most
    kernels run equally often."""
    total = sum(calls.counts.values())
    candidates = _list_candidates(calls, total, None)
    fitting = [found for found in candidates if found.share >= FITTING_SHARE and found.witnesses >= WITNESSES]
    return [found.count // passes for found in fitting if found.count > passes and found.count % passes == 0]


def _run_that_often(kernels: int) -> str:
    return "1 kernel runs that often" if kernels == 1 else f"{kernels} kernels run that often"


def cut_name(name: str) -> str:
    """Cuts a kernel's name to 80 characters, with '...' at the end of a longer one."""
    return name if len(name) <= NAME_CHARACTERS else name[: NAME_CHARACTERS - 3] + "..."
