"""Planted keys: query rows that one key dominates, at every edge a kernel may get wrong.

With random inputs a row of 32,768 keys gives each about 1/32,768 of the weight, so a kernel that drops the last one is
wrong by less than bf16 rounds. A planted row is aligned with one key, which then holds most of its softmax weight:
dropping the key, counting it twice or letting a forbidden one through moves the whole output row by about its own
size. Three kinds of rows are planted, in every (batch, head):

    seen        a row anywhere, aligned with a key at an edge that it sees
    diagonal    causal: a row aligned with the last key it sees, so a mask short by one shows
    forbidden   causal: a row aligned with the first key it does not see, so a mask long by one shows

Edges are the first and the last key and both sides of multiples of 16, 32, 64 and 128 (tile and page sizes) near the
start, the middle and the end. Each row carries one plant. Where rows are too few for all of them, heads and batches
take different ones in turn, and the seed decides which come first, so that seeds cover all.
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


def plans(seq_q: int, seq_kv: int, *, causal: bool, seed: int, lanes: int) -> list[list[Plant]]:
    """Sets of plants, each with distinct rows, that `lanes` (batch, head) pairs take in turn; fixed by the seed.

    The last and the first key come before all others, unless there is room for so few that this would keep the others
    out for every seed: then half of the seeds start anywhere.
    """
    rng = random.Random(seed)
    seen = _seen(seq_q, seq_kv, causal=causal)
    sides = [_pinned(seq_q, seq_kv, beyond) for beyond in (0, 1)] if causal else [[]]
    count = math.ceil((len(seen) + max(map(len, sides))) / seq_q)
    made = [_plans_of_side(seen, side, seq_q, count, lanes, rng) for side in sides]
    # Lanes take sides in turn, so that two heads plant both sides of the mask.
    return [plan for together in zip(*made, strict=True) for plan in together]


def plant(q: torch.Tensor, k: torch.Tensor, *, causal: bool, seed: int) -> None:
    """Align rows of q (B, Sq, H, D) with keys of k (B, Skv, Hk, D), in place, in fp32.

    Planted keys keep their direction and are made c sqrt(D) long, c being 1 but for small D. A planted row becomes
    q = (t / c) k_j / |k_j|, whose scaled score with key j is t, and with any other key is normal with standard
    deviation t / (c sqrt(D)). The others' expected sum of exponentials is then Skv exp(t^2 / (2 c^2 D)), so t solves
    t = ln Skv + t^2 / (2 c^2 D) + MARGIN; where D is too small for a solution, c makes up for it.
    """
    import torch

    batch, seq_q, heads, head_dim = q.shape
    group = heads // k.shape[2]
    chosen = plans(seq_q, k.shape[1], causal=causal, seed=seed, lanes=batch * heads)
    target, stretch = target_score(k.shape[1], head_dim)
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


def target_score(seq_kv: int, head_dim: int) -> tuple[float, float]:
    """(t, c) of `plant`: the score of a planted key, and its length in units of sqrt(D)."""
    above = math.log(seq_kv) + MARGIN
    # t - t^2 / 2D = above needs D >= 2 * above; a quarter more keeps away from the double root.
    effective = max(float(head_dim), 2.5 * above)
    target = effective - math.sqrt(effective * effective - 2.0 * effective * above)
    return target, math.sqrt(effective / head_dim)


def _plans_of_side(
    seen: list[Task], pinned: list[Task], seq_q: int, count: int, lanes: int, rng: random.Random
) -> list[list[Plant]]:
    """`count` plans that start at evenly spaced tasks: enough of them for every task to find a row."""
    leading, others = [seen[-1], *seen[:-1][:1]], seen[1:-1] + pinned
    rng.shuffle(others)
    tasks = leading + others
    if lanes * seq_q < 2 * len(leading) and rng.random() < 0.5:
        rng.shuffle(tasks)
    reserved = {rows.start for rows, _ in pinned}
    starts = [number * len(tasks) // count for number in range(count)]
    return [_place(tasks[start:] + tasks[:start], seq_q, reserved, rng) for start in starts]


def _seen(seq_q: int, seq_kv: int, *, causal: bool) -> list[Task]:
    """(rows that see the key, key) for every edge, in order."""
    offset = seq_kv - seq_q
    return [(range(max(0, key - offset) if causal else 0, seq_q), key) for key in edges(seq_kv)]


def _pinned(seq_q: int, seq_kv: int, beyond: int) -> list[Task]:
    """(the one row, key) at edges of the rows and of the keys: the last key seen, or with `beyond` 1 the next one."""
    offset = seq_kv - seq_q
    rows = set(edges(seq_q)) | {key - offset for key in edges(seq_kv) if key >= offset}
    return [(range(row, row + 1), row + offset + beyond) for row in sorted(rows) if row + offset + beyond < seq_kv]


def _place(tasks: list[Task], seq_q: int, reserved: set[int], rng: random.Random) -> list[Plant]:
    """Give each task a free row of its range, in order, until the rows are used up; tasks without one are left out.

    reserved   rows that some task needs: others take them only where nothing else is free
    """
    used: set[int] = set()
    placed = []
    for rows, key in tasks:
        if len(used) == seq_q:
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
