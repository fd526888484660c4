"""Planted keys of an attention layer: they dominate, wrong layers are far beyond the budget, and right ones within."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.correctness.budget import list_problems
from pytest_attnperf.correctness.metrics import Yardstick, compare_output, measure_yardstick
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.block import Block
from pytest_attnperf.workloads.block_planting import HEADS_PER_ROW, choose_plants
from pytest_attnperf.workloads.rope import rotate

if TYPE_CHECKING:
    import torch

SMALL = "h=4,hk=2,d=32,e=128"
PROMPT = f"b=2,s=33,{SMALL},bias"
CHUNK = f"s=20,p=29,{SMALL},bias"
STEP = f"b=2,s=1,p=63,{SMALL},bias"
SPECULATED = f"s=3,p=126,{SMALL},bias"
DTYPES = ("f16", "bf16")


@dataclass(frozen=True)
class Layer:
    """A layer of plain operators, and what may be wrong or different in it.

    dropped      a key that no token sees, unless it is its only one; -1 for none
    shift        keys a token sees beyond its own
    late         positions that queries are rotated too far
    power        scores are scaled by D^-power
    interleaved  query head h reads key head h % Hk
    rounded      weights are rounded to the dtype before the product with v
    parts        parts of the keys that are attended to one after another, with a running maximum, and divided last
    """

    dropped: int = -1
    shift: int = 0
    late: int = 0
    power: float = 0.5
    interleaved: bool = False
    written: bool = True
    swapped: bool = False
    biased: bool = True
    rounded: bool = True
    parts: int = 1

    def outputs(self, block: Block, inputs: Tensors) -> Outputs:
        """What it gives, and the new rows as it has written them."""
        import torch

        parts = block.split_inputs(inputs)
        at = torch.arange(block.past, block.length)
        bias = parts.b_qkv if self.biased else None
        qkv = torch.nn.functional.linear(parts.x, parts.w_qkv, bias).view(*parts.x.shape[:2], -1, block.head_dim)
        q, k, v = torch.split(qkv, [block.heads, block.kv_heads, block.kv_heads], dim=2)
        q, k = (
            torch.stack([rotate(one.float(), parts.cos[rows], parts.sin[rows], False) for one in tensor]).to(q.dtype)
            for tensor, rows in ((q, (at + self.late).clamp(max=block.room - 1)), (k, at))
        )
        new = (v, k) if self.swapped else (k, v)
        caches = parts.k_cache.clone(), parts.v_cache.clone()
        for cache, rows in zip(caches, new, strict=True):
            if self.written:
                cache[:, block.past : block.length] = rows
        attended = self._attended(block, q, *(cache[:, : block.length] for cache in caches))
        return {"out": torch.nn.functional.linear(attended.flatten(2), parts.w_out), "k": new[0], "v": new[1]}

    def _attended(self, block: Block, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        import torch

        head = torch.arange(block.heads)
        kv = head % block.kv_heads if self.interleaved else head * block.kv_heads // block.heads
        scores = torch.einsum("bihd,bjhd->bhij", q.float(), k[:, :, kv].float()) * block.head_dim**-self.power
        at, key = torch.arange(block.past, block.length)[:, None], torch.arange(block.length)[None]
        sees = (key <= (at + self.shift).clamp(min=0)) & ((key != self.dropped) | (at == 0))
        scores = scores.masked_fill(~sees, -math.inf)
        if self.parts == 1:
            weights = scores.softmax(-1)
            weights = weights.to(q.dtype).float() if self.rounded else weights
            return torch.einsum("bhij,bjhd->bihd", weights, v[:, :, kv].float()).to(q.dtype)
        total, top, out = torch.zeros(()), torch.tensor(-1e30), torch.zeros(())
        for own, values in zip(scores.tensor_split(self.parts, -1), v.tensor_split(self.parts, 1), strict=True):
            higher = torch.maximum(top, own.amax(-1, keepdim=True))
            weights, fading = (own - higher).exp(), (top - higher).exp()
            total, top = total * fading + weights.sum(-1, keepdim=True), higher
            out = out * fading + torch.einsum("bhij,bjhd->bhid", weights.to(q.dtype).float(), values[:, :, kv].float())
        return (out / total).transpose(1, 2).to(q.dtype)


HONEST = (Layer(), Layer(rounded=False), Layer(parts=2), Layer(parts=5))
WRONG: dict[str, tuple[Callable[[Block], Layer], tuple[str, ...]]] = {
    "drops the last filled key": (lambda block: Layer(dropped=block.past - 1), (CHUNK, STEP, SPECULATED)),
    "drops the first new key": (lambda block: Layer(dropped=block.past), (PROMPT, CHUNK, STEP)),
    "drops the first key": (lambda _: Layer(dropped=0), (PROMPT, CHUNK, STEP, SPECULATED)),
    "sees a key too many": (lambda _: Layer(shift=1), (PROMPT, CHUNK, SPECULATED)),
    "sees a key too few": (lambda _: Layer(shift=-1), (PROMPT, CHUNK, STEP, SPECULATED)),
    "does not write the cache": (lambda _: Layer(written=False), (PROMPT, STEP)),
    "rotates queries by the next position": (lambda _: Layer(late=1), (f"{PROMPT},room=40", f"{STEP},room=70")),
    "swaps keys and values": (lambda _: Layer(swapped=True), (PROMPT, STEP)),
    "reads the keys of another head": (lambda _: Layer(interleaved=True), (PROMPT, STEP)),
    "forgets the bias": (lambda _: Layer(biased=False), (PROMPT, STEP)),
    "divides by D": (lambda _: Layer(power=1.0), (PROMPT, STEP)),
}


@functools.cache
def yardsticks(block: Block) -> dict[str, Yardstick]:
    """The largest of a few draws, as the judge takes it."""
    found: dict[str, Yardstick] = {}
    for seed in range(1000, 1006):
        inputs = block.make_inputs(seed, "cpu", planted=True)
        reference, plain = block.reference(inputs), block.plain(inputs)
        own = {name: measure_yardstick(name, truth, plain[name]) for name, truth in reference.items()}
        found = {name: own[name].merge(found.get(name, own[name])) for name in own}
    return found


def wrong_outputs(block: Block, inputs: Tensors, layers: tuple[Layer, ...]) -> list[set[str]]:
    """Of each layer, the names of the outputs beyond their budget."""
    reference = block.reference(inputs)
    found = []
    for layer in layers:
        got = layer.outputs(block, inputs)
        figures = [
            compare_output("x", name, got[name].contiguous(), truth, yardsticks(block)[name], Tolerance())
            for name, truth in reference.items()
        ]
        found.append({figure.output for figure in figures if list_problems([figure])})
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_layer_is_beyond_the_budget(wrong: str, dtype: str) -> None:
    """'out' of a layer with one fault is beyond its budget, for prompts and decode steps and every seed."""
    pytest.importorskip("torch")
    make, lines = WRONG[wrong]
    for line in lines:
        block = Block.parse_line(f"{line},{dtype}")
        for seed in range(4):
            inputs = block.make_inputs(seed, "cpu", planted=True)
            assert "out" in wrong_outputs(block, inputs, (make(block),))[0], (line, seed)


def test_a_wrong_row_of_the_cache_is_beyond_the_budget() -> None:
    """Keys and values that a layer writes are judged too: swapped, or without their bias, both fail."""
    pytest.importorskip("torch")
    block = Block.parse_line(f"{STEP},f16")
    inputs = block.make_inputs(1, "cpu", planted=True)
    layers = (Layer(swapped=True), Layer(biased=False))
    assert all({"k", "v"} <= found for found in wrong_outputs(block, inputs, layers))


@pytest.mark.parametrize("dtype", DTYPES)
def test_honest_layers_are_within_the_budget(dtype: str) -> None:
    """Layers that round the weights or not, and attend in one piece or in parts, pass 50 seeds."""
    pytest.importorskip("torch")
    for line, seeds in (
        (PROMPT, range(10)),
        (CHUNK, range(10, 20)),
        (STEP, range(20, 35)),
        (SPECULATED, range(35, 50)),
    ):
        block = Block.parse_line(f"{line},{dtype}")
        for seed in seeds:
            inputs = block.make_inputs(seed, "cpu", planted=True)
            assert not any(wrong_outputs(block, inputs, HONEST)), (line, seed)


@pytest.mark.parametrize("line", [PROMPT, STEP, "s=256,h=4,hk=2,d=128,e=512", "s=1,p=1023,h=8,hk=2,d=64,bias"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_planted_key_holds_most_of_its_rows_weight(line: str, dtype: str) -> None:
    """The softmax over the keys of its row, and the forbidden one, gives a planted key half or so, and mostly 0.65."""
    torch = pytest.importorskip("torch")
    block = Block.parse_line(f"{line},{dtype}")
    inputs = block.make_inputs(2, "cpu", planted=True)
    parts, found = block.split_inputs(inputs), []
    bias = 0 if parts.b_qkv is None else parts.b_qkv.double()
    qkv = (parts.x.double() @ parts.w_qkv.double().T + bias).view(*parts.x.shape[:2], -1, block.head_dim)
    rows = slice(block.past, block.length)
    turned = torch.stack([rotate(one, parts.cos[rows], parts.sin[rows], False) for one in qkv])
    keys = parts.k_cache.double()
    keys[:, rows] = turned[:, :, block.heads : block.heads + block.kv_heads]
    for item in choose_plants(block, 2):
        seen = keys[item.batch, : max(block.past + item.row, item.key) + 1, item.head * block.kv_heads // block.heads]
        scores = seen @ turned[item.batch, item.row, item.head] / math.sqrt(block.head_dim)
        found.append(float(scores.softmax(0)[item.key]))
    found.sort()
    assert found[len(found) // 10] > 0.45
    assert found[len(found) // 2] > 0.65


def test_plants_are_at_every_edge_and_disturb_no_other() -> None:
    """Over the seeds every edge is planted, both sides of the first new row included; a row has one plant per head,
    and is not another row's key."""
    block = Block.parse_line(f"s=70,p=40,room=128,{SMALL},f16")
    kinds: dict[int, set[int]] = {1: set(), 0: set(), -1: set()}
    for seed in range(30):
        planted = choose_plants(block, seed)
        rows = {item.row for item in planted}
        assert len({(item.row, item.head) for item in planted}) == len(planted)
        assert not rows & {item.key - 40 for item in planted if item.key != item.row + 40}
        assert max(item.key for item in planted) < 110
        for item in planted:
            ahead = item.key - 40 - item.row
            kinds[max(-1, min(ahead, 1))].add(item.key)
    assert kinds[-1] >= {0, 15, 16, 31, 32, 39, 40, 47, 48, 63, 64, 95, 96}
    assert kinds[0] >= {40, 47, 48, 55, 56, 63, 64, 95, 96, 109}
    assert kinds[1] >= {41, 48, 49, 56, 57, 64, 65, 96, 97}


def test_heads_and_sequences_take_plants_in_turn() -> None:
    """A decode step plants a key in each of up to HEADS_PER_ROW heads, other ones in other sequences and seeds."""
    block = Block.parse_line("b=4,s=1,p=4095,h=32,hk=8,d=128,f16")
    planted = [choose_plants(block, seed) for seed in range(8)]
    for items in planted:
        assert all(sum(item.batch == b for item in items) == HEADS_PER_ROW for b in range(4))
        assert {item.key for item in items} >= {0, 4094, 4095}
    assert len({item.head for items in planted for item in items}) == 32
    assert len({item.key for items in planted for item in items}) > 20


def test_little_room_is_shared_by_seeds_and_sequences() -> None:
    """Where a step has room for one plant, sequences and seeds take the last filled, the first and the own key in turn,
    and then the edges; a step without a cache has none."""
    block = Block.parse_line("b=3,s=1,p=63,h=2,d=16,e=64,f16")
    planted = [choose_plants(block, seed) for seed in range(20)]
    assert all(len(items) == 3 for items in planted)
    assert {item.key for items in planted[:6] for item in items} >= {0, 62, 63}
    assert {item.key for items in planted for item in items} >= {0, 15, 16, 31, 32, 47, 48, 62, 63}
    assert choose_plants(replace(block, past=0, room=1), 1) == []


@pytest.mark.soak
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("line", [PROMPT, CHUNK, STEP, SPECULATED, f"s=7,{SMALL}", "s=1,p=300,h=8,hk=2,d=64"])
def test_no_honest_layer_is_ever_refused(line: str, dtype: str) -> None:
    """Over 300 seeds no layer that differs in rounding and order alone is beyond the budget."""
    pytest.importorskip("torch")
    block = Block.parse_line(f"{line},{dtype}")
    refused = [
        (seed, found)
        for seed in range(300)
        for found in wrong_outputs(block, block.make_inputs(seed, "cpu", planted=True), HONEST)
        if found
    ]
    assert refused == []
