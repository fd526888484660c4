"""Planted keys in an attention layer: one key dominates the query of a token, at every edge a kernel may get wrong.

This is as in `planted_keys`, but the inputs of a layer are x, not queries and keys. Weights are not changed. The token
of a planted row is changed just enough to give its query in one head a given score with one key, which then holds most
of the weight there. A row carries a plant in one head, or in several if E has room for them. Kinds:

    seen        a key at an edge that the row sees: a filled one, or that of an earlier new token
    diagonal    the row's own key, so a mask short by one shows
    forbidden   the key of the next new token, so a mask long by one shows

Edges are `planted_keys.list_edges` of all positions, and both sides of the first new one. The last filled key, the
first key, the last row's own key and one more of each kind come first. Where there is not even room for these,
sequences and seeds rotate them, and half of the seeds shuffle all tasks. The token of a key is not changed, so a row is
either planted or the key of others, and seeds change which. Heads take plants in turn; where rows are many, several
heads take the same one. One head of H moves 'out' by about 1 / sqrt(H) of a value, many times the rounding.

A filled key that is too short to dominate a row is made longer. Keys of new tokens keep their length: with a head_dim
below 32 some get less of the weight.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pytest_attnperf.workloads.planted_keys import MARGIN, list_edges
from pytest_attnperf.workloads.precision import full_fp32_matmul
from pytest_attnperf.workloads.rope import rotate

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.workloads.block import Block
    from pytest_attnperf.workloads.block_inputs import BlockInputs

HEADS_PER_ROW = 8
HIDDEN_PER_HEAD = 40
"""A row carries at most one plant per HIDDEN_PER_HEAD elements: a plant adds about t^2, some 60, to a token's squared
length, which is E before. A decode step of E = 128 has room for the three that come first."""
SWEEPS = 3
"""One sweep is exact for a key that does not depend on the row and for a single plant; each divides the error by 10."""
ABOVE = MARGIN + 0.5
"""Excess of a planted score over ln n + t^2 / 2 |k|^2. The random part of a planted query adds 0.5 to the expected
log-sum-exp of the other keys: half its variance, which is 1."""


class GrowingLayer(Protocol):
    """What plants depend on of a layer whose cache grows: fields of `Block`."""

    @property
    def batch(self) -> int: ...  # noqa: D102
    @property
    def seq(self) -> int: ...  # noqa: D102
    @property
    def past(self) -> int: ...  # noqa: D102
    @property
    def heads(self) -> int: ...  # noqa: D102
    @property
    def hidden(self) -> int: ...  # noqa: D102
    @property
    def length(self) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class BlockPlant:
    """A plant: row `row` of a sequence is aligned with key `key` in a head."""

    batch: int
    row: int
    head: int
    key: int


Task = tuple[range, int]
"""(rows that may carry it, key)."""


def choose_plants(block: GrowingLayer, seed: int) -> list[BlockPlant]:
    """Returns the plants of this seed: which row of x is aligned with which key, in which head, to put most weight on
    it. No row has two plants in one head, or is both planted and the key of another row."""
    return [
        BlockPlant(batch, row, head, key)
        for batch in range(block.batch)
        for row, head, key in _place_plants(block, batch, seed)
    ]


def plant_block(block: Block, parts: BlockInputs, seed: int) -> None:
    """Changes rows of `parts.x`, and the length of some filled keys, in place, so that each planted key gets most of
    the weight of its row in its head."""
    import torch

    plants = choose_plants(block, seed)
    if not plants:
        return
    _stretch_filled(block, parts, plants)
    where = sorted({(item.batch, item.row) for item in plants})
    number = {place: index for index, place in enumerate(where)}
    device = parts.x.device
    batch, row = (torch.tensor(column, dtype=torch.long, device=device) for column in zip(*where, strict=True))
    tokens = parts.x[batch, row].float()
    with full_fp32_matmul(), torch.no_grad():
        heads = []
        for head in sorted({item.head for item in plants}):
            own = [item for item in plants if item.head == head]
            rows = torch.tensor([number[item.batch, item.row] for item in own], device=device)
            heads.append(_make_head_plants(block, parts, own, rows))
        for _, head_plants in itertools.product(range(SWEEPS), heads):
            head_plants.align(tokens)
    parts.x[batch, row] = tokens.to(parts.x.dtype)


def _stretch_filled(block: Block, parts: BlockInputs, plants: list[BlockPlant]) -> None:
    """Makes planted keys of the cache longer, in place, if they are too short to dominate a row that sees every key."""
    import torch

    group = block.heads // block.kv_heads
    found = sorted({(item.batch, item.key, item.head // group) for item in plants if item.key < block.past})
    if not found:
        return
    places = tuple(torch.tensor(column, device=parts.x.device) for column in zip(*found, strict=True))
    keys = parts.k_cache[places].float()
    # t - t^2 / 2 |k|^2 = above needs |k|^2 >= 2 above; a quarter more keeps away from the double root.
    wanted = 2.5 * (math.log(block.length) + ABOVE)
    factor = (wanted / keys.square().sum(dim=1)).clamp(min=1.0).sqrt()
    parts.k_cache[places] = (keys * factor[:, None]).to(parts.k_cache.dtype)


def _place_plants(block: GrowingLayer, batch: int, seed: int) -> list[tuple[int, int, int]]:
    """Returns (row, head, key) of sequence `batch` where the row is to put most weight on the key in the head."""
    rng = random.Random(f"block plants {seed} {batch}")
    leading, others = _list_tasks(block, rng)
    rng.shuffle(others)
    capacity = max(1, min(block.hidden // HIDDEN_PER_HEAD, block.heads, HEADS_PER_ROW))
    tasks = leading + others
    if block.seq * capacity < len(leading):
        turn = (seed + batch) % len(leading)
        tasks = leading[turn:] + leading[:turn] + others
        if rng.random() < 0.5:
            rng.shuffle(tasks)
    rows = _Rows(block.past, capacity)
    first = rng.randrange(block.heads)
    placed: list[tuple[int, int, int]] = []
    rounds = max(1, min(capacity, block.seq // max(1, len(tasks))))
    for task in tasks * rounds:
        head = (first + len(placed)) % block.heads
        row = rows.take_row(task, head, rng)
        if row is not None:
            placed.append((row, head, task[1]))
    return placed


def _list_tasks(block: GrowingLayer, rng: random.Random) -> tuple[list[Task], list[Task]]:
    """Returns (tasks placed first, all others); a task is (rows of which one is to give a key most weight, the key)."""
    past, seq = block.past, block.seq
    keys = {*list_edges(block.length), *(key for key in (past - 1, past) if 0 <= key < block.length)}
    seen = {key: (range(max(0, key - past + 1), seq), key) for key in sorted(keys) if key < block.length - 1}
    limits = sorted({*list_edges(seq), *(key - past for key in keys if key >= past)})
    # The only key of the first row of all has all the weight without a plant.
    diagonal = [(range(row, row + 1), past + row) for row in limits if past + row > 0]
    forbidden = [(range(row, row + 1), past + row + 1) for row in limits if row + 1 < seq]
    leading = [seen[key] for key in (past - 1, 0) if key in seen] + diagonal[-1:]
    leading += rng.sample(diagonal[:-1], min(1, len(diagonal[:-1]))) + ([seen[past]] if past in seen else [])
    # Of two rows the last is either planted or the key that the other must not see.
    if forbidden and seq > 2:
        leading.insert(0, rng.choice([task for task in forbidden if task[1] < block.length - 1]))
    elif forbidden:
        leading.insert(rng.choice([0, len(leading)]), forbidden[0])
    leading = list(dict.fromkeys(leading))
    return leading, [task for task in [*seen.values(), *diagonal, *forbidden] if task not in leading]


@dataclass
class _Rows:
    """The rows of a sequence: which carry plants, by head, and which are keys of other rows."""

    past: int
    capacity: int
    planted: dict[int, set[int]] = field(default_factory=dict)
    keys: set[int] = field(default_factory=set)

    def take_row(self, task: Task, head: int, rng: random.Random) -> int | None:
        """Reserves a row of the task (rows, key) to be planted in this head, and returns it; None if no row is free, or
        if the key's own token is planted."""
        rows, key = task
        own = key - self.past
        diagonal = own in rows
        if not diagonal and own in self.planted:
            return None
        start = rng.randrange(len(rows))
        for row in itertools.chain(rows[start:], rows[:start]):
            heads = self.planted.get(row, set())
            if row not in self.keys and head not in heads and len(heads) < self.capacity:
                self.planted[row] = {*heads, head}
                if not diagonal and own >= 0:
                    self.keys.add(own)
                return row
        return None


@dataclass(frozen=True)
class _HeadPlants:
    """The plants of one head, in fp32.

    rows         (P,), numbers of the planted tokens
    w_q, w_k     (D, E), b_q, b_k (D,) or (): of the head, and of the key head it reads
    key          (P, D), rotated back by the row's position: its scores with unrotated queries are those of rotated ones
    own          (P, 1), True where the key is the token's own, unrotated, instead; None where all are False
    target       (P,), scaled scores
    """

    rows: torch.Tensor
    w_q: torch.Tensor
    w_k: torch.Tensor
    b_q: torch.Tensor
    b_k: torch.Tensor
    key: torch.Tensor
    own: torch.Tensor | None
    target: torch.Tensor

    def align(self, tokens: torch.Tensor) -> None:
        """Changes the planted rows of `tokens` (R, E) in place, by the shortest step that gives their scores the
        `target` to first order: Newton's step along the gradient of the score."""
        import torch

        chosen = tokens[self.rows]
        q, key = torch.addmm(self.b_q, chosen, self.w_q.t()), self.key
        if self.own is not None:
            key = torch.where(self.own, torch.addmm(self.b_k, chosen, self.w_k.t()), key)
        gradient = key @ self.w_q
        if self.own is not None:
            gradient += torch.where(self.own, q, 0.0) @ self.w_k
        missing = self.target * math.sqrt(q.shape[1]) - (q * key).sum(dim=1)
        tokens[self.rows] = chosen + gradient * (missing / gradient.square().sum(dim=1))[:, None]


def _make_head_plants(block: Block, parts: BlockInputs, plants: list[BlockPlant], rows: torch.Tensor) -> _HeadPlants:
    """Returns the plants of one head as tensors; `rows` are the indices of their tokens among all planted tokens."""
    import torch

    past, device = block.past, parts.x.device
    head, kv = plants[0].head, plants[0].head * block.kv_heads // block.heads
    w_q, w_k = (_of_head(parts.w_qkv, row, block.head_dim) for row in (head, block.heads + kv))
    b_q, b_k = (
        torch.zeros((), device=device) if parts.b_qkv is None else _of_head(parts.b_qkv, row, block.head_dim)
        for row in (head, block.heads + kv)
    )
    columns = [[item.batch, item.key, item.row + past] for item in plants]
    batch, key, position = torch.tensor(columns, device=device).t()
    filled = key < past
    keys = torch.addmm(b_k, parts.x[batch, (key - past).clamp(min=0)].float(), w_k.t())
    keys = _rotate_rows(keys, parts.cos[key], parts.sin[key])
    if past:
        keys = torch.where(filled[:, None], parts.k_cache[batch, key.clamp(max=past - 1), kv].float(), keys)
    own = (key == position)[:, None] if any(item.key == item.row + past for item in plants) else None
    turned_back = _rotate_rows(keys, parts.cos[position], -parts.sin[position])
    return _HeadPlants(rows, w_q, w_k, b_q, b_k, turned_back, own, target_scores(keys, position + 1))


def _of_head(stacked: torch.Tensor, head: int, head_dim: int) -> torch.Tensor:
    return stacked[head * head_dim : (head + 1) * head_dim].float()


def target_scores(keys: torch.Tensor, seen: torch.Tensor, share: float = 1.0) -> torch.Tensor:
    """Returns the scaled scores t (P,) of keys (P, D) in rows that see `seen` keys (P,): t = ln n + t^2 / 2 |k|^2 +
    ABOVE. With it a key holds most of the weight. Where it is too short for a solution, t is |k|^2, where t - t^2 / 2
    |k|^2 is largest. |k|^2 is times `share`: 1 over the variance of other keys along a planted one."""
    length = keys.square().sum(dim=1) * share
    above = seen.log() + ABOVE
    return length - (length.square() - 2.0 * length * above).clamp(min=0.0).sqrt()


def _rotate_rows(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotates rows of x (P, D), each by its own cos and sin (P, D / 2)."""
    return rotate(x[:, None], cos, sin, interleaved=False)[:, 0]
