"""Planted keys: query rows that one key dominates, at every edge a kernel may get wrong.

With random inputs a row of 32,768 keys gives each about 1/32,768 of the weight, so dropping the last key changes less
than the rounding of bf16. A planted row is aligned with one key, which then holds most of its softmax weight:
dropping the key, counting it twice or letting a forbidden one through moves the whole output row by about its own
size. These kinds of rows are planted, in every (batch, head):

    seen        a row anywhere, aligned with a key at an edge that it sees
    diagonal    causal: a row aligned with the last key it sees, so a mask short by one shows
    forbidden   causal: a row aligned with the first key it does not see, so a mask long by one shows
    oldest      window: a row aligned with the first key it sees, so a window short by one shows
    expired     window: a row aligned with the last key before its window, so a window long by one shows

Edges are the first and the last key and both sides of multiples of 16, 32, 64 and 128 (tile and page sizes) near the
start, the middle and the end; with a window also of the part of the keys that any row sees. Each row carries one plant;
a row that sees no key carries none. If there are too few rows, heads and batches take different plants in turn, and
the seed decides which come first, so that seeds cover all.

With ALiBi a key is planted only within the reach of its head, where the slope subtracts at most REACH_NATS: a lost key
further away shows in a head of a smaller slope. With a bias, that of a planted key is PLANTED_BIAS, so that losing it
shows too. Between packed sequences `plant_strangers` plants keys of the neighbours.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.workloads import loud_rows
from pytest_attnperf.workloads.attention_math import alibi_sum

if TYPE_CHECKING:
    import torch

TILES = (16, 32, 64, 128)
MARGIN = 1.5
"""How far, in nats, the planted score is above the expected log-sum-exp of all others: a weight of about 0.8. High
enough that losing the key moves the row by most of its size, low enough that counting it twice still does."""

REACH_NATS = 8.0
"""Largest amount that ALiBi may subtract from a planted score, which is then at most about 20: f16 holds it to 0.01."""

PLANTED_BIAS = 2.0
"""In nats; without it a weight of 0.8 becomes 0.35. Exact in every dtype of a bias."""

LOUD_TRIES = 4
"""Number of rows that are tried: with few dimensions, some have a third key with a similar score."""


@dataclass(frozen=True)
class Plant:
    """A plant: query row `row` is aligned with key `key`."""

    row: int
    key: int


Task = tuple[range, int]
"""(rows that may carry it, key)."""


def list_edges(length: int) -> list[int]:
    """Returns, in order, up to 26 positions where kernels fail: first, last, and both sides of some tile edges."""
    found = {0, length - 1}
    for tile in TILES:
        for edge in (tile, (length // 2) // tile * tile, (length - 1) // tile * tile):
            found |= {position for position in (edge - 1, edge) if 0 <= position < length}
    return sorted(found)


def make_plans(
    seq_q: int, seq_kv: int, *, causal: bool, seed: int, lanes: int, window: int = 0, reach: int = 0
) -> list[list[Plant]]:
    """Returns sets of plants (row, key that is to dominate it), which `lanes` (batch, head) pairs take in turn.

    The last and the first key that are seen come before all others. If there are too few rows, the others would never
    be planted: then half of the seeds shuffle the order. Under a causal mask every other set holds keys that its rows
    must not see, first one beyond each edge of the mask; for a single lane all sets hold both. With `reach` no key is
    further than that many keys from its row's own position, row + Skv - Sq.
    """
    rng = random.Random(seed)
    mask = _Mask(seq_q, seq_kv, causal, window, reach or seq_q + seq_kv)
    seen = _list_seen_tasks(mask)
    limits, beyond = ([_list_pinned_tasks(mask, step) for step in (0, 1)]) if causal else ([], [])
    sides = [(limits, []), (beyond, beyond)] if causal and lanes > 1 else [(limits + beyond, beyond)]
    count = math.ceil((len(seen) + max(sum(map(len, side)) for side, _ in sides)) / len(mask.rows))
    made = [_plans_of_side(mask, seen, side, first, count, lanes, rng) for side, first in sides]
    # Lanes take sides in turn, so that two heads plant both sides of the mask.
    return [plan for together in zip(*made, strict=True) for plan in together]


def plant_keys(
    q: torch.Tensor,
    k: torch.Tensor,
    *,
    causal: bool,
    seed: int,
    window: int = 0,
    slopes: Sequence[float] = (),
    bias: torch.Tensor | None = None,
    loud: bool = False,
) -> None:
    """Aligns rows of q (B, Sq, H, D) with keys of k (B, Skv, Hk, D), in place, in fp32; sets their bias (H, Sq, Skv).

    Planted keys keep their direction and get the length c sqrt(D), where c is 1 except for small D. A planted row
    becomes q = (t / c) k_j / |k_j|. Its scaled score with key j is t, and with any other key is normal with standard
    deviation t / (c sqrt(D)). The others' expected sum of exponentials is then n exp(t^2 / (2 c^2 D)), for a row that
    sees n keys, so t solves t = ln n + t^2 / (2 c^2 D) + MARGIN; if D is too small for a solution, c is larger.

    With ALiBi n is the sum of exp(-slope distance), and t is higher by what the slope subtracts from the planted key. A
    bias drawn from N(0, 1) multiplies the expected sum by exp(1/2), and t is lower by PLANTED_BIAS.

    loud   make one of the planted rows loud (see `loud_rows`)
    """
    import torch

    (batch, seq_q, heads, head_dim), seq_kv = q.shape, k.shape[1]
    group = heads // k.shape[2]
    made = _group_by_lane(seq_q, seq_kv, batch, heads, causal=causal, seed=seed, window=window, slopes=slopes)
    chosen = [(lanes, plan) for lanes, plan in made if lanes and plan]
    shift = 0.0 if bias is None else 0.5 - PLANTED_BIAS
    ordinary = math.log(min(seq_kv, window or seq_kv)) + MARGIN + shift
    mask = _Mask(seq_q, seq_kv, causal, window, seq_q + seq_kv)
    above = [
        [mask.alibi_logsum(item, slopes[lanes[0] % heads]) + MARGIN if slopes else ordinary for item in plan]
        for lanes, plan in chosen
    ]
    highest = max(itertools.chain(*above))
    stretch = _compute_stretch(highest, head_dim)
    keys = sorted({item.key for _, plan in made for item in plan})
    k[:, keys] *= stretch * math.sqrt(head_dim) / k[:, keys].norm(dim=-1, keepdim=True)
    unit = stretch * stretch * math.sqrt(head_dim)
    planted = [
        (lane, item.row, item.key, _compute_target(level, highest, head_dim) / unit)
        for (lanes, plan), levels in zip(chosen, above, strict=True)
        for item, level in zip(plan, levels, strict=True)
        for lane in lanes
    ]
    *places, targets = zip(*planted, strict=True)
    lane, row, key = torch.tensor(places).to(q.device)  # all at once: a copy for every plan takes longer than the draw
    b, h = lane // heads, lane % heads
    q[b, row, h] = k[b, key, h // group] * torch.tensor(targets).to(q.device)[:, None]
    if bias is not None:
        bias[h, row, key] = PLANTED_BIAS
    if loud and loud_rows.has_loud_row(seed, batch * heads * seq_q):
        _make_loud(q, k, chosen, mask, seed=seed, above=REACH_NATS if slopes else 0.0)


def _make_loud(
    q: torch.Tensor,
    k: torch.Tensor,
    chosen: Sequence[tuple[list[int], list[Plant]]],
    mask: _Mask,
    *,
    seed: int,
    above: float,
) -> None:
    """Changes one planted row of q, in place, so that its scores overflow exp in fp32: one that sees its planted key
    and has no similar third key. Tries LOUD_TRIES rows, and changes none if all fail."""
    rng, (heads, head_dim) = random.Random(f"loud row {seed}"), q.shape[2:]
    seen = [
        (lane, item)
        for lanes, plan in chosen
        for item in plan
        if item.key in mask.keys_seen(item.row)
        for lane in lanes
    ]
    for lane, item in rng.sample(seen, min(len(seen), LOUD_TRIES)):
        b, h = divmod(lane, heads)
        second = loud_rows.find_neighbour(item.key, mask.keys_seen(item.row))
        pair = [item.key] if second is None else [item.key, second]
        keys = k[b, :, h // (heads // k.shape[2])]
        if (row := loud_rows.make_query(keys, pair, head_dim**-0.5, above)) is not None:
            q[b, item.row, h] = row
            return


def _group_by_lane(
    seq_q: int, seq_kv: int, batch: int, heads: int, *, causal: bool, seed: int, window: int, slopes: Sequence[float]
) -> list[tuple[list[int], list[Plant]]]:
    """Returns (lanes, their plants), also ([], plants) that no lane takes; lane = batch index * heads + head. With
    ALiBi `slopes` every head has its own plants, from its own seed."""
    kinds = [(seed, 0, range(batch * heads))]
    if slopes:
        lanes = range(batch * heads)
        kinds = [(seed + head, max(1, int(REACH_NATS / slopes[head])), lanes[head::heads]) for head in range(heads)]
    found = []
    for own_seed, reach, lanes in kinds:
        made = make_plans(seq_q, seq_kv, causal=causal, seed=own_seed, lanes=len(lanes), window=window, reach=reach)
        found += [(list(lanes[number :: len(made)]), plan) for number, plan in enumerate(made)]
    return found


def plant_strangers(q: torch.Tensor, k: torch.Tensor, slices: Sequence[tuple[slice, slice]], *, seed: int) -> None:
    """Aligns a row of every packed sequence with the first key of the next one, and its first row with the last key of
    the one before, in place. q is (Tq, H, D), k (Tk, Hk, D); `slices` are (rows, keys) of every sequence.

    A row that sees a key of another sequence then shows. These plants use one head each, and replace those of
    `plant_keys` there. With a single head there is none of the second kind; a single row of a single head is not
    changed.
    """
    rng = random.Random(seed)
    heads, head_dim = q.shape[1:]
    group = heads // k.shape[1]
    for number, (rows, keys) in enumerate(slices):
        target, stretch = target_score(keys.stop - keys.start, head_dim)
        head, row = (seed + number) % heads, rng.randrange(rows.start, rows.stop)
        strangers = (
            [(row, keys.stop, head)] if number + 1 < len(slices) and heads * (rows.stop - rows.start) > 1 else []
        )
        if number and heads > 1:
            strangers.append((rows.start, keys.start - 1, (head + 1) % heads))
        for row, key, head in strangers:
            direction = k[key, head // group] / k[key, head // group].norm()
            q[row, head] = direction * (target / stretch)


def target_score(keys_seen: int, head_dim: int) -> tuple[float, float]:
    """Returns (t, c), without ALiBi or bias, for rows that see `keys_seen` keys: the score that gives a key most of the
    weight, and the length of such a key / sqrt(D), at least 1."""
    above = math.log(keys_seen) + MARGIN
    return _compute_target(above, above, head_dim), _compute_stretch(above, head_dim)


def _effective_dim(highest: float, head_dim: int) -> float:
    """Returns c^2 D, c being a planted key's length / sqrt(D): D, or more if `highest` is large. t - t^2 / 2D = above
    needs D >= 2 * above; a quarter more keeps away from the double root."""
    return max(float(head_dim), 2.5 * highest)


def _compute_stretch(highest: float, head_dim: int) -> float:
    """Returns c, a planted key's length / sqrt(D), at least 1, for `highest`, the largest `above` of all plants."""
    return math.sqrt(_effective_dim(highest, head_dim) / head_dim)


def _compute_target(above: float, highest: float, head_dim: int) -> float:
    """Returns the score t = above + t^2 / (2 c^2 D) of a planted key, c sqrt(D) long; `above` is ln(keys seen) +
    MARGIN."""
    effective = _effective_dim(highest, head_dim)
    return effective - math.sqrt(effective * effective - 2.0 * effective * above)


@dataclass(frozen=True)
class _Mask:
    """The keys that a row i sees: all, or if causal those up to i + offset, or with a window the last of these."""

    seq_q: int
    seq_kv: int
    causal: bool
    window: int
    reach: int
    """Largest distance of a planted key from row + offset."""

    @property
    def offset(self) -> int:
        return self.seq_kv - self.seq_q

    @property
    def rows(self) -> range:
        """Rows that see at least one key."""
        return range(max(0, -self.offset) if self.causal else 0, self.seq_q)

    @property
    def first_key(self) -> int:
        """Index of the first key that any row sees."""
        return max(0, self.offset - self.window + 1) if self.window else 0

    def rows_seeing(self, key: int) -> range:
        """Returns the rows that see the key and are within `reach` keys of it."""
        own = key - self.offset
        first = max(0, own if self.causal else own - self.reach)
        return range(first, min(self.seq_q, own + self.reach + 1, own + (self.window or self.seq_kv + self.seq_q)))

    def keys_seen(self, row: int) -> range:
        """Returns the keys that a row sees."""
        last = min(row + self.offset, self.seq_kv - 1) if self.causal else self.seq_kv - 1
        return range(max(0, row + self.offset - self.window + 1) if self.window else 0, last + 1)

    def alibi_logsum(self, item: Plant, slope: float) -> float:
        """Returns what ALiBi subtracts from the planted key's score, plus ln n; n is the sum of exp(-slope distance)
        over the keys that the plant's row sees."""
        position = item.row + self.offset
        return slope * abs(position - item.key) + math.log(alibi_sum(slope, position, self.keys_seen(item.row)))


def _plans_of_side(
    mask: _Mask,
    seen: list[Task],
    side: list[list[Task]],
    first: list[list[Task]],
    count: int,
    lanes: int,
    rng: random.Random,
) -> list[list[Plant]]:
    """Returns `count` lists of plants. All place the same tasks (rows of which one is to be aligned with the key, key),
    each from another task on, so that together every task gets a row.

    seen     tasks whose rows are all those that see the key
    side     tasks with a single row, by kind
    first    kinds of which one task each is placed first
    """
    pinned = [task for kind in side for task in kind]
    leading, others = [seen[-1], *seen[:-1][:1]], seen[1:-1] + pinned
    rng.shuffle(others)
    if ahead := _one_of_each(first, seen[-1], rng):
        others = [task for task in others if task not in ahead]
        leading = leading + ahead if lanes == 1 and rng.random() < 0.5 else ahead + leading
    tasks = leading + others
    if lanes * len(mask.rows) < 2 * len(leading) and rng.random() < 0.5:
        rng.shuffle(tasks)
    reserved = {rows.start for rows, _ in pinned}
    starts = [number * len(tasks) // count for number in range(count)]
    return [_place_tasks(tasks[start:] + tasks[:start], len(mask.rows), reserved, rng) for start in starts]


def _one_of_each(kinds: list[list[Task]], avoid: Task, rng: random.Random) -> list[Task]:
    """Returns a task (rows, key) of each kind, shuffled; if possible on different rows, and not on `avoid`'s."""
    chosen: list[Task] = []
    for kind in sorted(filter(None, kinds), key=len):  # the one with the fewest rows has the first choice
        own = [task for task in kind if all(task[0] != other for other, _ in chosen)] or kind
        chosen.append(rng.choice([task for task in own if task[0] != avoid[0]] or own))
    rng.shuffle(chosen)
    return chosen


def _list_seen_tasks(mask: _Mask) -> list[Task]:
    """Returns (rows that see the key, key) for every key at an edge that some row sees, in the order of keys."""
    first = mask.first_key
    keys = set(list_edges(mask.seq_kv)) | {first + key for key in list_edges(mask.seq_kv - first)}
    return [(rows, key) for key in sorted(keys) if (rows := mask.rows_seeing(key))]


def _list_pinned_tasks(mask: _Mask, beyond: int) -> list[list[Task]]:
    """Returns tasks (the one row, key) at edges of rows and keys, by kind: the last key that the row sees and, with a
    window, the first. With `beyond` 1 the keys are the next ones outside, which the row does not see."""
    kinds = []
    limits = [(0, 1), (1 - mask.window, -1)] if mask.window else [(0, 1)]
    for limit, outwards in [(limit, outwards) for limit, outwards in limits if -limit < mask.reach]:
        rows = set(list_edges(mask.seq_q)) | {key - mask.offset - limit for key in list_edges(mask.seq_kv)}
        keys = ((row, row + mask.offset + limit + beyond * outwards) for row in sorted(rows) if row in mask.rows)
        kinds.append([(range(row, row + 1), key) for row, key in keys if 0 <= key < mask.seq_kv])
    return kinds


def _place_tasks(tasks: list[Task], room: int, reserved: set[int], rng: random.Random) -> list[Plant]:
    """Gives each task (rows, key) a free one of its rows, in order; returns these plants. Tasks without a free row are
    left out.

    room       number of rows; it stops when all are used
    reserved   rows that some task needs: others take them only if nothing else is free
    """
    used: set[int] = set()
    placed = []
    for rows, key in tasks:
        if len(used) == room:
            break
        row = _free_row(rows, used | reserved, rng)
        row = _free_row(rows, used, rng) if row is None else row
        if row is not None:
            used.add(row)
            placed.append(Plant(row, key))
    return placed


def _free_row(rows: range, taken: set[int], rng: random.Random) -> int | None:
    start = rng.randrange(len(rows))
    return next((row for row in itertools.chain(rows[start:], rows[:start]) if row not in taken), None)
