"""Planted keys: query rows that one key dominates, at every edge a kernel may get wrong.

With random inputs a row of 32,768 keys gives each about 1/32,768 of the weight, so a kernel that drops the last one is
wrong by less than bf16 rounds. A planted row is aligned with one key, which then holds most of its softmax weight:
dropping the key, counting it twice or letting a forbidden one through moves the whole output row by about its own
size. These kinds of rows are planted, in every (batch, head):

    seen        a row anywhere, aligned with a key at an edge that it sees
    diagonal    causal: a row aligned with the last key it sees, so a mask short by one shows
    forbidden   causal: a row aligned with the first key it does not see, so a mask long by one shows
    oldest      window: a row aligned with the first key it sees, so a window short by one shows
    expired     window: a row aligned with the last key it does not see any more, so a window long by one shows

Edges are the first and the last key and both sides of multiples of 16, 32, 64 and 128 (tile and page sizes) near the
start, the middle and the end; with a window also of the part of the keys that any row sees. Each row carries one plant,
and a row that sees no key none. Where rows are too few for all of them, heads and batches take different ones in turn,
and the seed decides which come first, so that seeds cover all.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

TILES = (16, 32, 64, 128)
MARGIN = 1.5
"""How far, in nats, the planted score lies above the log-sum-exp expected of all others: a weight of about 0.8. High
enough that losing the key moves the row by most of its size, low enough that counting it twice still does."""


@dataclass(frozen=True)
class Plant:
    """Query row `row` is aligned with key `key`."""

    row: int
    key: int


Task = tuple[range, int]
"""(rows that may carry it, key)."""


def edges(length: int) -> list[int]:
    """Positions at edges of a sequence, at most 26, ordered: 0, the last, both sides of tile edges."""
    found = {0, length - 1}
    for tile in TILES:
        for edge in (tile, (length // 2) // tile * tile, (length - 1) // tile * tile):
            found |= {position for position in (edge - 1, edge) if 0 <= position < length}
    return sorted(found)


def plans(seq_q: int, seq_kv: int, *, causal: bool, seed: int, lanes: int, window: int = 0) -> list[list[Plant]]:
    """Sets of plants, each with distinct rows, that `lanes` (batch, head) pairs take in turn; fixed by the seed.

    The last and the first key that are seen come before all others, unless there is room for so few that this would
    keep the others out for every seed: then half of the seeds start anywhere. Every other set holds keys that its rows
    must not see, one of each kind before all others; for a single lane all sets hold both.
    """
    rng = random.Random(seed)
    mask = _Mask(seq_q, seq_kv, causal, window)
    seen = _seen(mask)
    limits, beyond = ([_pinned(mask, step) for step in (0, 1)]) if causal else ([], [])
    sides = [(limits, []), (beyond, beyond)] if causal and lanes > 1 else [(limits + beyond, beyond)]
    count = math.ceil((len(seen) + max(sum(map(len, side)) for side, _ in sides)) / len(mask.rows))
    made = [_plans_of_side(mask, seen, side, first, count, lanes, rng) for side, first in sides]
    # Lanes take sides in turn, so that two heads plant both sides of the mask.
    return [plan for together in zip(*made, strict=True) for plan in together]


def plant(q: torch.Tensor, k: torch.Tensor, *, causal: bool, seed: int, window: int = 0) -> None:
    """Align rows of q (B, Sq, H, D) with keys of k (B, Skv, Hk, D), in place, in fp32.

    Planted keys keep their direction and are made c sqrt(D) long, c being 1 but for small D. A planted row becomes
    q = (t / c) k_j / |k_j|, whose scaled score with key j is t, and with any other key is normal with standard
    deviation t / (c sqrt(D)). The others' expected sum of exponentials is then n exp(t^2 / (2 c^2 D)), n being the keys
    a row sees, so t solves t = ln n + t^2 / (2 c^2 D) + MARGIN; where D is too small for a solution, c makes up for it.
    """
    import torch

    batch, seq_q, heads, head_dim = q.shape
    group = heads // k.shape[2]
    seq_kv = k.shape[1]
    chosen = plans(seq_q, seq_kv, causal=causal, seed=seed, lanes=batch * heads, window=window)
    target, stretch = target_score(min(seq_kv, window or seq_kv), head_dim)
    keys = sorted({item.key for plan in chosen for item in plan})
    k[:, keys] *= stretch * math.sqrt(head_dim) / k[:, keys].norm(dim=-1, keepdim=True)
    lanes = torch.arange(batch * heads, device=q.device)
    for number, plan in enumerate(chosen):
        lane = lanes[number :: len(chosen)]
        if not plan or not lane.numel():
            continue
        row, key = (
            torch.tensor(column, device=q.device)[None, :]
            for column in ([item.row for item in plan], [item.key for item in plan])
        )
        b, h = (lane // heads)[:, None], (lane % heads)[:, None]
        q[b, row, h] = k[b, key, h // group] * (target / (stretch * stretch * math.sqrt(head_dim)))


def target_score(keys_seen: int, head_dim: int) -> tuple[float, float]:
    """(t, c) of `plant`: the score of a planted key, and its length in units of sqrt(D)."""
    above = math.log(keys_seen) + MARGIN
    # t - t^2 / 2D = above needs D >= 2 * above; a quarter more keeps away from the double root.
    effective = max(float(head_dim), 2.5 * above)
    target = effective - math.sqrt(effective * effective - 2.0 * effective * above)
    return target, math.sqrt(effective / head_dim)


@dataclass(frozen=True)
class _Mask:
    """Which keys a row i sees: all, or if causal up to i + offset, or with a window the last ones of these."""

    seq_q: int
    seq_kv: int
    causal: bool
    window: int

    @property
    def offset(self) -> int:
        return self.seq_kv - self.seq_q

    @property
    def rows(self) -> range:
        """Rows that see a key."""
        return range(max(0, -self.offset) if self.causal else 0, self.seq_q)

    @property
    def first_key(self) -> int:
        """The first key that any row sees."""
        return max(0, self.offset - self.window + 1) if self.window else 0

    def rows_seeing(self, key: int) -> range:
        """Rows that see the key."""
        first = max(0, key - self.offset) if self.causal else 0
        return range(first, min(self.seq_q, key - self.offset + self.window) if self.window else self.seq_q)


def _plans_of_side(
    mask: _Mask,
    seen: list[Task],
    side: list[list[Task]],
    first: list[list[Task]],
    count: int,
    lanes: int,
    rng: random.Random,
) -> list[list[Plant]]:
    """`count` plans that start at evenly spaced tasks: enough of them for every task to find a row.

    seen     tasks of any row that sees the key
    side     tasks of one row, by kind
    first    the kinds of which one task each comes first
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
    return [_place(tasks[start:] + tasks[:start], len(mask.rows), reserved, rng) for start in starts]


def _one_of_each(kinds: list[list[Task]], avoid: Task, rng: random.Random) -> list[Task]:
    """A task of each kind, on rows of their own where that is possible, and if it still is, not on that of `avoid`."""
    chosen: list[Task] = []
    for kind in sorted(filter(None, kinds), key=len):  # the one with the fewest rows has the first choice
        own = [task for task in kind if all(task[0] != other for other, _ in chosen)] or kind
        chosen.append(rng.choice([task for task in own if task[0] != avoid[0]] or own))
    rng.shuffle(chosen)
    return chosen


def _seen(mask: _Mask) -> list[Task]:
    """(rows that see the key, key) for every edge of the keys, in order."""
    first = mask.first_key
    keys = set(edges(mask.seq_kv)) | {first + key for key in edges(mask.seq_kv - first)}
    return [(rows, key) for key in sorted(keys) if (rows := mask.rows_seeing(key))]


def _pinned(mask: _Mask, beyond: int) -> list[list[Task]]:
    """(the one row, key) at edges of the rows and of the keys: the last key seen and, with a window, the first one.

    They are listed by kind. With `beyond` 1 the keys are their neighbours, which the row does not see.
    """
    kinds = []
    for limit, outwards in ((0, 1), (1 - mask.window, -1)) if mask.window else ((0, 1),):
        rows = set(edges(mask.seq_q)) | {key - mask.offset - limit for key in edges(mask.seq_kv)}
        keys = ((row, row + mask.offset + limit + beyond * outwards) for row in sorted(rows) if row in mask.rows)
        kinds.append([(range(row, row + 1), key) for row, key in keys if 0 <= key < mask.seq_kv])
    return kinds


def _place(tasks: list[Task], room: int, reserved: set[int], rng: random.Random) -> list[Plant]:
    """Give each task a free row of its range, in order, until the rows are used up; tasks without one are left out.

    room       rows there are
    reserved   rows that some task needs: others take them only where nothing else is free
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
