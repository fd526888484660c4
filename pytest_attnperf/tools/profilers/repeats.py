"""Finds the longest repeating run of a sequence of kernels, whatever stands before, between and after its repeats.

The sequence is a string with one character per dispatch. Runs of 1, 2, 4, ... dispatches get numbers, each from the two
halves that it consists of (Karp, Miller and Rosenberg, 1972). The most frequent runs of a length are extended to both
sides as far as their occurrences agree. That gives units; one that repeats within itself is reduced to its period. The
unit that shortens the sequence most is the result.

Queues beside each other displace dispatches. So what stands between exact repeats is divided into parts of a unit's
length, which count as repeats if nearly all their dispatches are those of the unit.

A sequence of n takes O(n log n) operations, most of them within str, map and dict.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice, pairwise, repeat
from operator import add, mul

DISPLACED_SHARE = 0.02
"""Largest share of a repeat's dispatches that are missing or foreign, which parallel queues cause."""

SEEDS = 4
"""Most runs of each length that are extended: the most frequent one of each set of kernels."""

CHANCE = 0.05
"""Most expected number of as many repeats of a unit among kernels in random order."""

MOSTLY = 0.8
"""Share of dispatches within repeats from which these are no chance, and no unit is looked for that holds more."""

LOOKED_AT = 64
"""Most runs of each length that are looked at for these."""

FEW_LAYERS = 4
"""Least repeats of a unit in another one from which they are no passes between which something repeats by chance."""

NEIGHBOURS = 16
"""Most pairs of occurrences whose common extension is measured."""

JUDGED = 12
"""Most units whose repeats are placed, those that hold most dispatches first."""


@dataclass(frozen=True)
class Repeats:
    """The repeats of one unit.

    begins      index of the first dispatch of every repeat
    ends        index behind the last one
    displaced   dispatches of repeats that the unit has not, or that are missing in them
    unit        the unit's dispatches, a character each
    """

    begins: tuple[int, ...]
    ends: tuple[int, ...]
    displaced: int
    unit: str

    @property
    def covered(self) -> int:
        """Dispatches within the repeats."""
        return sum(self.ends) - sum(self.begins)

    @property
    def between(self) -> int:
        """Dispatches between the first repeat and the last that belong to none."""
        return self.ends[-1] - self.begins[0] - self.covered


def encode_kernels(kernels: Sequence[int]) -> str:
    """Returns a string with one character for each kernel's number, from 0 on."""
    return "".join(map(chr, kernels))


def find_repeats(text: str, *, needed: frozenset[str] = frozenset(), passes: int | None = None) -> Repeats | None:
    """Returns the repeats of the unit that shortens a sequence most, if each were written as one character and the unit
    once; None if nothing of two kernels or more repeats more often than by chance. A unit whose repeats stand side by
    side in another one is a part of it, such as a layer of a pass, and gives way to it.

    needed   characters of which a unit must contain one, if any unit does, such as the kernels of attention
    passes   number of repeats that the result must have; None for any
    """
    found = [one for one in _list_repeats(text, needed) if len(one.begins) > 1 and passes in (None, len(one.begins))]
    found = [one for one in found if not _is_chance(text, one)]
    found.sort(key=lambda one: (_count_saved(text, one), -len(one.unit), -one.between), reverse=True)
    best = found[0] if found else None
    for one in found[1:]:
        if best is not None and _is_part(best, one):
            best = one
    return best


def _is_part(layer: Repeats, whole: Repeats) -> bool:
    """Returns whether the repeats of a unit stand side by side in another one, as layers do in a pass. Passes do, too,
    where what runs between them repeats by chance: then the other one has few of them, but not all, or nothing new."""
    if layer.unit * 2 not in whole.unit or 2 * whole.covered < layer.covered:
        return False
    each = whole.unit.count(layer.unit)
    is_new = not set(whole.unit) <= set(layer.unit)
    return each >= FEW_LAYERS or (is_new and each * len(whole.begins) >= MOSTLY * len(layer.begins))


def _list_repeats(text: str, needed: frozenset[str]) -> list[Repeats]:
    """Returns the repeats of the units that hold most dispatches, and those between the kernels that run least."""
    units = sorted({unit for unit in _list_units(text) if len(set(unit)) > 1}, key=lambda unit: (-len(unit), unit))
    wanted = [unit for unit in units if needed.intersection(unit)] or units
    wanted.sort(key=lambda unit: (-text.count(unit) * len(unit), len(unit)))
    found = [place_repeats(text, unit) for unit in wanted[:JUDGED]]
    if all(one.covered < MOSTLY * len(text) for one in found):
        rare = sorted((calls, kernel) for kernel, calls in Counter(text).items() if calls > 2)[:JUDGED]
        near = [_place_between(text, kernel) for _, kernel in rare]
        found += [one for one in near if len(set(one.unit)) > 1 and (not needed or needed.intersection(one.unit))]
    return found


def _is_chance(text: str, found: Repeats) -> bool:
    """Returns whether kernels in random order, each as often as it runs, would repeat as the unit does: side by side if
    its repeats are, else anywhere. Repeats that hold nearly everything are none."""
    if found.covered >= MOSTLY * len(text):
        return False
    calls = Counter(text)
    once = sum(each * math.log(calls[kernel] / len(text)) for kernel, each in Counter(found.unit).items())
    if found.covered < MOSTLY * (found.ends[-1] - found.begins[0]):
        once += math.log(len(text))
    return math.log(len(text)) + (len(found.begins) - 1) * once > math.log(CHANCE)


def _count_saved(text: str, found: Repeats) -> int:
    """Returns the dispatches that need not be told once the unit is known. Repeats behind which kernels of one call per
    unit stand alone do not count: a run that begins within one pass and ends within the next repeats where passes are
    of two kinds, too."""
    once = {kernel for kernel, calls in Counter(found.unit).items() if calls == 1}
    between = [text[end:begin] for end, begin in zip(found.ends, found.begins[1:], strict=False)]
    cut = sum(2 * len(gap) < len(found.unit) and not once.isdisjoint(gap) for gap in between)
    return found.covered - found.displaced - (cut + 1) * len(found.unit)


def _place_between(text: str, kernel: str) -> Repeats:
    """Returns the stretches from one call of a kernel to the next that are nearly equal to that of median length."""
    places = [at for at, one in enumerate(text) if one == kernel]
    stretches = sorted((other - one, one) for one, other in pairwise(places))
    length, at = stretches[len(stretches) // 2]
    unit = text[at : at + length]
    kernels, slack = Counter(unit), int(DISPLACED_SHARE * length)
    begins, ends, displaced = [], [], 0
    for begin in places:
        end = next((place for place in places[bisect_right(places, begin) :][:1]), min(begin + length, len(text)))
        odd = _count_foreign(text[begin:end], kernels)
        if odd <= slack:
            begins.append(begin)
            ends.append(end)
            displaced += odd
    return Repeats(tuple(begins), tuple(ends), displaced, unit)


def place_repeats(text: str, unit: str) -> Repeats:
    """Returns where a unit repeats in a sequence: every exact repeat from the left, and nearly equal ones between."""
    exact, at = [], text.find(unit)
    while at >= 0:
        exact.append(at)
        at = text.find(unit, at + len(unit))
    begins: list[int] = []
    ends: list[int] = []
    displaced, reached = 0, 0
    for start in (*exact, len(text)):
        is_last = start == len(text)
        for begin, end, odd in _find_near(text[reached:start], unit, from_right=not begins, is_open=is_last):
            begins.append(reached + begin)
            ends.append(reached + end)
            displaced += odd
        if not is_last:
            begins.append(start)
            ends.append(start + len(unit))
        reached = min(start + len(unit), len(text))
    return Repeats(tuple(begins), tuple(ends), displaced, unit)


def _find_near(gap: str, unit: str, *, from_right: bool, is_open: bool) -> Iterator[tuple[int, int, int]]:
    """Yields (begin, end, foreign dispatches) of nearly equal repeats in what stands before the first exact repeat
    (`from_right`), between two, or after the last (`is_open`). Between two it must be whole repeats."""
    length = len(unit)
    slack = int(DISPLACED_SHARE * length)
    parts = round(len(gap) / length)
    if not parts or not slack:
        return
    if not (from_right or is_open) and abs(len(gap) - parts * length) > slack * parts:
        return
    kernels = Counter(unit)
    found = []
    for number in range(parts):
        if from_right:
            begin, end = max(0, len(gap) - (number + 1) * length), len(gap) - number * length
        elif is_open:
            begin, end = number * length, min((number + 1) * length, len(gap))
        else:
            begin, end = number * len(gap) // parts, (number + 1) * len(gap) // parts
        part = gap[begin:end]
        odd = _count_foreign(part, kernels)
        if odd <= slack and len(part) >= length - slack and not _has_drift(part, unit, slack):
            found.append((begin, end, odd))
        elif from_right or is_open:
            break
        else:
            return
    once = {kernel for kernel, calls in kernels.items() if calls == 1}
    if found:
        whole = Counter(gap[min(found)[0] : max(found)[1]])
        if all(whole[kernel] == len(found) for kernel in once):
            yield from sorted(found)


def _has_drift(part: str, unit: str, slack: int) -> bool:
    """Returns whether a part has a kernel that the unit has not, or a kernel of one call per unit at another place.
    Over the edges, the next repeat follows."""
    calls = Counter(unit)
    once = {kernel: place for place, kernel in enumerate(unit) if calls[kernel] == 1}
    if not calls.keys() >= set(part):
        return True
    for place, kernel in enumerate(part):
        apart = abs(place - once.get(kernel, place))
        if min(apart, abs(len(unit) - apart)) > max(2, slack):
            return True
    return False


def _count_foreign(part: str, kernels: Counter[str]) -> int:
    """Returns the larger number of dispatches that one of both has and the other has not."""
    own = Counter(part)
    return max((own - kernels).total(), (kernels - own).total())


def _list_units(text: str) -> Iterator[str]:
    """Yields candidates for the repeating unit, each reduced to its smallest period."""
    numbers = array("q", map(ord, text))
    length, many = 1, max(len(text), 1 << 21)
    while 2 * length <= len(text):
        seeds = _choose_seeds(text, numbers, length)
        if not seeds:
            return
        is_done = False
        for places in seeds:
            for unit in _extend_run(text, places, length):
                root = _turn_unit(text, unit[: find_period(unit)])
                yield root
                is_done |= _holds_most(text, root)
        if is_done:
            return
        halves = map(add, map(mul, numbers, repeat(many)), islice(numbers, length, None))
        known: dict[int, int] = {}
        numbers = array("q", map(known.setdefault, halves, count()))
        length *= 2


def _turn_unit(text: str, unit: str) -> str:
    """Returns a unit turned so that its repeats, side by side, begin with the kernel that runs least; of several, with
    one that lets them end where the sequence ends, else the earliest. Turns it as far as no repeat is lost."""
    first = text.find(unit)
    length, before, repeats = len(unit), 0, 1
    while before < min(first, length - 1) and text[first - before - 1] == unit[-before - 1]:
        before += 1
    while text.startswith(unit, first + repeats * length):
        repeats += 1
    begin, end = first - before, first + repeats * length
    while end < len(text) and text[end] == unit[(end - first) % length]:
        end += 1
    places = range(begin, min(begin + (end - begin) % length, begin + length - 1) + 1)
    calls = {kernel: text.count(kernel) for kernel in set(text[begin : places[-1] + 1])}
    chosen = min(places, key=lambda place: (calls[text[place]], (len(text) - place) % length > 0, place))
    return text[chosen : chosen + length]


def _holds_most(text: str, unit: str) -> bool:
    """Returns whether all repeats of a unit stand side by side and hold half of the sequence, so that no longer unit,
    whose repeats would hold more than one of these each, is left to find."""
    repeats = text.count(unit)
    return 2 * repeats * len(unit) >= len(text) and text.startswith(unit * repeats, text.find(unit))


def _choose_seeds(text: str, numbers: Sequence[int], length: int) -> list[list[int]]:
    """Returns the places of the most frequent runs of a length, one run of each set of two or more kernels; places of
    one run do not overlap. Every kernel is a run of length 1."""
    frequent = Counter(numbers)
    last: dict[int, int] = {}
    places: dict[int, list[int]] = {}
    for at, number in enumerate(numbers):
        if frequent[number] > 1 and at >= last.get(number, -length) + length:
            last[number] = at
            places.setdefault(number, []).append(at)
    found: dict[frozenset[str], list[int]] = {}
    ranked = sorted((each for each in places.values() if len(each) > 1), key=lambda each: (-len(each), each[0]))
    if length == 1:
        return ranked[:LOOKED_AT]
    for each in ranked[:LOOKED_AT]:
        kernels = frozenset(text[each[0] : each[0] + length])
        if len(kernels) > 1:
            found.setdefault(kernels, each)
        if len(found) == SEEDS:
            break
    return list(found.values())


def _extend_run(text: str, places: Sequence[int], length: int) -> Iterator[str]:
    """Yields units around the run at `places`: as far as few, half and nearly all neighbouring occurrences agree."""
    pairs = list(pairwise(places))
    step = -(-len(pairs) // NEIGHBOURS)
    measured = []
    for one, other in pairs[::step]:
        right = _measure_right(text, one, other, other - one)
        measured.append((right, _measure_left(text, one, other, other - one - right), one))
    by_right, lefts = sorted(measured), sorted(left for _, left, _ in measured)
    for pick in {0, len(measured) // 2, len(measured) - 1}:
        right, left, at = by_right[pick]
        yield text[at - left : at + max(right, length)]
        yield text[max(0, at - lefts[pick]) : at + max(right, length)]


def _measure_right(text: str, one: int, other: int, most: int) -> int:
    """Returns how many characters from two places on are equal, at most `most`."""
    low, high = 0, min(most, len(text) - other)
    while low < high:
        middle = (low + high + 1) // 2
        if text[one + low : one + middle] == text[other + low : other + middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _measure_left(text: str, one: int, other: int, most: int) -> int:
    """Returns how many characters before two places are equal, at most `most`."""
    low, high = 0, min(most, one)
    while low < high:
        middle = (low + high + 1) // 2
        if text[one - middle : one - low] == text[other - middle : other - low]:
            low = middle
        else:
            high = middle - 1
    return low


def find_period(unit: str) -> int:
    """Returns the smallest number of characters after which a unit repeats, the last time perhaps in part; its own
    length if less than a quarter of it repeats."""
    length = len(unit)
    period = unit.find(unit[: -(-length // 4)], 1)
    while 0 < period <= length * 3 // 4:
        if unit.startswith(unit[period:]):
            return period
        period = unit.find(unit[: -(-length // 4)], period + 1)
    return length
