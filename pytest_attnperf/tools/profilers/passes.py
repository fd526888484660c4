"""Infers how many forward passes (steps) a profile holds: from the order of its dispatches, else from counts of calls.

Order: passes are the longest repeating run of kernels, whatever stands before, between and after its repeats: a model
that loads first calls some kernels of its passes, too, so no count of a whole profile need divide. Layers of one pass
repeat as passes do. If attention runs once in each repeat and other kernels run outside, the result stays open. Copies
and fills by the runtime are left out, because loading a model makes them too.

Counts, of statistics without an order: if a kernel runs k times in every pass, the passes divide its calls. The result
is a number P that some kernels have as their calls (witnesses: they run once per pass), and that divides the calls of
the kernels with nearly all dispatches. The number that explains most dispatches is taken, and of equal ones the
largest. If the best of all numbers is one that a single kernel supports, the result stays open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.profiles import ForwardPasses
from pytest_attnperf.reports.run.profile_figures import cut_middle
from pytest_attnperf.tools.profilers.repeats import Repeats, encode_kernels, find_repeats

FITTING_SHARE = 0.95
"""Least share of dispatches of kernels whose calls are divisible by the passes."""

WITNESSES = 2
"""Least kernels that run once per pass."""

LEAST_SHARE = 0.5
"""Least share of dispatches within passes, where no kernel of these is attention: loading has loops, too."""

NAME_CHARACTERS = 80


@dataclass(frozen=True)
class Calls:
    """The kernel calls of one device.

    counts       calls by kernel, without the runtime's copies and fills
    attention    the kernels among them that are attention; without these, softmax, a step of it
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
    """The passes, and the indices in `Calls.order` of the first kernel of every pass and behind its last one; empty if
    the order is unknown or shows no passes."""

    passes: ForwardPasses
    begins: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


def find_passes(calls: Calls, *, passes: int | None = None, layers: int | None = None) -> PassesFound:
    """Returns the number of forward passes and of layers in each, with reasons; None for one that cannot be inferred. A
    given number is kept and compared with the inferred one, never replaced."""
    found = _infer_passes(calls, passes, layers) if passes is None else _compare_given(calls, passes, layers)
    counted = f"counted {calls.whose}" if calls.whose else ""
    if found.count is None:
        return PassesFound(ForwardPasses(None, _join_parts(found.how, counted), layers))
    inside = _count_inside(calls, found.begins, found.ends) if found.begins else calls
    if layers is None and _count_inside(calls, found.ends[:-1], found.begins[1:]).attention:
        depth, layers_how = None, "attention runs between them, too: their layers are not known"
    else:
        depth, layers_how = _infer_layers(inside, found.count, layers)
    odd = tuple(
        _describe_odd_kernel(name, count, found.count, of_runtime=of_runtime)
        for count, name, of_runtime in sorted(
            [(count, name, False) for name, count in inside.counts.items() if not found.begins]
            + [(count, name, True) for name, count in calls.apart.items()],
            key=lambda row: (-row[0], row[1]),
        )
        if count % found.count
    )
    how = _join_parts(found.how, layers_how, counted)
    return PassesFound(ForwardPasses(found.count, how, depth, odd), found.begins, found.ends)


@dataclass(frozen=True)
class _Inferred:
    """A number of passes, the reason in words, and where in the order they begin and end."""

    count: int | None
    how: str
    begins: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


def _count_inside(calls: Calls, begins: Sequence[int], ends: Sequence[int]) -> Calls:
    """Returns the calls from each of `begins` to its end, by kernel."""
    names = {number: name for name, number in calls.numbers.items()}
    inside: Counter[int] = Counter()
    for begin, end in zip(begins, ends, strict=True):
        inside.update((calls.order or ())[begin:end])
    counts = {names[number]: count for number, count in inside.items() if number in names}
    return Calls(counts, [name for name in calls.attention if name in counts])


def _describe_odd_kernel(name: str, count: int, passes: int, *, of_runtime: bool) -> str:
    text = f"{cut_name(name)}: {count:,} calls do not divide by {passes} passes"
    return Note(NoteKind.COPIES, f"{text} (copies and fills come from loading a model, too)") if of_runtime else text


def _join_parts(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _infer_passes(calls: Calls, passes: int | None, layers: int | None) -> _Inferred:
    if len(calls.counts) < 2 and passes is None:
        return _Inferred(None, "no passes inferred: that needs at least two kernels")
    if calls.order is not None:
        return _find_in_order(calls, calls.order, passes, layers)
    if layers and layers == _most_attention(calls):
        return _Inferred(1, f"1 pass: {layers:,} calls of attention are the {layers} layers given")
    candidates = _list_candidates(calls, sum(calls.counts.values()), layers)
    fitting = [found for found in candidates if found.share >= FITTING_SHARE and found.witnesses >= WITNESSES]
    if not fitting:
        return _Inferred(None, f"no passes inferred: {_describe_nearest(candidates)}")
    count, how = _choose_by_counts(candidates, fitting)
    if count is None:
        return _Inferred(None, how)
    rare = sorted((calls_of, name) for name, calls_of in calls.counts.items() if calls_of < count)
    return _or_layers(_Inferred(count, how), _most_attention(calls) / count, _describe_rare(rare))


def _find_in_order(calls: Calls, order: Sequence[int], passes: int | None, layers: int | None) -> _Inferred:
    """Returns the passes that the order of dispatches shows; None as their count if it shows none."""
    places = [place for place, kernel in enumerate(order) if kernel >= 0]
    if not places:
        return _Inferred(None, "no passes inferred: only copies and fills ran")
    whole = (places[0],), (places[-1] + 1,)
    if passes == 1 or (layers and layers == _most_attention(calls)):
        how = f"1 pass: {layers:,} calls of attention are the {layers} layers given" if passes is None else "1 pass"
        return _Inferred(1, how, *whole)
    attention = frozenset(chr(calls.numbers[name]) for name in calls.attention)
    text = encode_kernels([order[place] for place in places])
    found = find_repeats(text, needed=attention, passes=passes) or find_repeats(text, needed=attention)
    if found is None:
        return _Inferred(None, "no passes inferred: no run of two kernels or more repeats")
    most = max((found.unit.count(kernel) for kernel in attention), default=0)
    group = _choose_group(len(found.begins), most, passes, layers)
    ends = found.ends[group - 1 :: group]
    begins = found.begins[::group][: len(ends)]
    placed = tuple(places[begin] for begin in begins), tuple(places[end - 1] + 1 for end in ends)
    between = sum(placed[0][1:]) - sum(placed[1][:-1])
    outside = [placed[0][0], between, len(order) - placed[1][-1]]
    how = _describe_repeats(found, group, outside)
    if not most and found.covered < LEAST_SHARE * len(text):
        how = f"no passes inferred: {how}; that is no half of the dispatches, and none of it is attention"
        return _Inferred(None, f"{how}; give --passes")
    shown = _Inferred(len(begins), f"{len(begins)} {'pass' if len(begins) == 1 else 'passes'}: {how}", *placed)
    others = len(text) - found.covered
    less = f"{others:,} {'kernel runs' if others == 1 else 'kernels run'} outside" if others else ""
    return shown if passes or layers else _or_layers(shown, most, less)


def _choose_group(repeats: int, attention: int, passes: int | None, layers: int | None) -> int:
    """Returns how many repeats are one pass by the numbers given: layers alone repeat as passes do."""
    if passes and repeats % passes == 0:
        return repeats // passes
    if layers and attention and layers % attention == 0 and repeats >= layers // attention:
        return layers // attention
    return 1


def _describe_repeats(found: Repeats, group: int, outside: Sequence[int]) -> str:
    times, length = len(found.begins) // group, len(found.unit) * group
    if found.displaced:
        text = f"{times} stretches of {length:,} dispatches, {found.displaced:,} of them in a wrong one"
    else:
        text = f"{times} times the same {length:,} dispatches in one order"
    said = [f"{count:,} {where}" for count, where in zip(outside, ("before", "between", "after"), strict=True) if count]
    return f"{text}, with {' and '.join(said)} them" if said else text


def _or_layers(found: _Inferred, attention: float, less: str) -> _Inferred:
    """Returns what was found if each of its repeats is a pass. If they may be layers of one pass, the number is None,
    or the reason says so.

    attention   calls of attention in each repeat
    less        what runs outside or less often, in words; '' if nothing does
    """
    if (attention and attention != 1) or not (attention or less):
        return found
    if attention and less:
        how = f"{found.count} stretches with one call of attention each may be passes, or layers of one, since {less}"
        return _Inferred(None, f"no passes inferred: {how}; give --passes or --layers")
    why = "each has one call of attention" if attention else less
    return replace(found, how=f"{found.how}; {why}: if these are layers of one pass, give --passes 1")


def _describe_rare(rare: Sequence[tuple[int, str]]) -> str:
    """Returns how many kernels run less often, with the first as an example; '' if there are none."""
    if not rare:
        return ""
    count, name = rare[0]
    return f"{len(rare)} {'kernel runs' if len(rare) == 1 else 'kernels run'} less often ({cut_name(name)}: {count:,})"


def _most_attention(calls: Calls) -> int:
    return max((calls.counts[name] for name in calls.attention), default=0)


def _choose_by_counts(candidates: Sequence[_Candidate], fitting: Sequence[_Candidate]) -> tuple[int | None, str]:
    """Returns the number of passes and the reason in words, of the best candidate in `fitting`. The number is None if
    the best of all `candidates` divides it, so that its passes may be parts of passes, such as layers."""
    best, most = fitting[0], candidates[0]
    if most.share > best.share and best.count % most.count == 0:
        how = f"{best.count} or {most.count}, which only one kernel supports; counts without the order cannot decide"
        return None, f"no passes inferred: {how}"
    others = f"; {fitting[1].count} would fit too" if len(fitting) > 1 else ""
    return best.count, f"{best}; from counts alone, without their order{others}"


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


def _compare_given(calls: Calls, passes: int, layers: int | None) -> _Inferred:
    """Returns the given number of passes, the evidence for and against it in words, and where passes begin."""
    given = f"{passes} {'pass' if passes == 1 else 'passes'} as given"
    if calls.order is not None:
        found = _infer_passes(calls, passes, layers)
        if found.count == passes:
            return replace(found, how=f"{given}: {found.how}")
        return _Inferred(passes, f"{given}; {'the order shows ' if found.count else ''}{found.how}")
    total = sum(calls.counts.values())
    share = sum(count for count in calls.counts.values() if count % passes == 0) / total if total else 0.0
    inferred = _infer_passes(calls, None, layers)
    fitting = f"{given}: the calls of kernels with {share:.1%} of the dispatches divide by it"
    if inferred.count == passes:
        return _Inferred(passes, f"{fitting}, and as inferred: {inferred.how}")
    return _Inferred(passes, f"{fitting}; {'inferred are ' if inferred.count else ''}{inferred.how}")


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
    """Returns a kernel's name in 80 characters: a longer one without its middle, because names differ at their ends."""
    return cut_middle(name, NAME_CHARACTERS)
