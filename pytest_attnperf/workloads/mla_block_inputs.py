"""Inputs of a layer of latent attention: weights that show a wrong norm or scale, filled caches, tables and a mask; and
planted keys, each of which dominates the query of a token in a head.

Which row, head and key: `block_planting.choose_plants`. Weights are not changed; the tokens of planted rows are moved.

A query of a head is W_b (g n), with n = u / rms(u) and u = W_a x, so its score with a key k is n p / sqrt(D + R), with
the pull p = g W_b^T k', where k' is k rotated back by the query's position. The shortest n with all wanted scores of a
row is a sum of its pulls; u keeps its part across them, in the proportion that gives n its length sqrt(Q). Without Q
the score is x p, with p = W^T k'. The norm bounds the scores: with few latent dimensions of queries the plants of a row
get less of the weight.

A filled key that is too short to dominate a row is made longer. With a mask, every other plant's key is hidden by it
(never a token's own), so that a mask that is ignored shows, and the others are seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_attnperf.workloads import mla_block_math, paged_cache
from pytest_attnperf.workloads.block_planting import ABOVE, BlockPlant, choose_plants, target_scores
from pytest_attnperf.workloads.block_scales import count_blocks, expand_scales, quantise_blocks
from pytest_attnperf.workloads.precision import full_fp32_matmul
from pytest_attnperf.workloads.rope import make_tables, rotate

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.workloads.mla_block import MlaBlock

    Draw = Callable[..., torch.Tensor]

LATENT_STD = 1.5
"""Standard deviation of latents before their norm, so that a missing norm shows."""

NORM_STD = 0.25
"""Standard deviation of the norms' weights around 1."""

HIDDEN_SHARE = 0.25
"""Share of keys that a mask hides from a token; never the token's own."""


SWEEPS = 3
"""Steps, where a planted row's own key is planted: it moves with the token. Otherwise the first is exact."""

LIMIT = 0.8
"""Largest part of n's squared length, which is Q, that the plants of a row take together."""
RIDGE = 1e-4
"""Added to matrices that are solved for, in units of their mean diagonal."""


def make_inputs(block: MlaBlock, seed: int, device: str, *, planted: bool) -> Tensors:
    """Makes the inputs of `block` on `device`, in the order of `tensor_names`.

    x is from N(0, 1). Weights are normal, so that latents before their norms have a standard deviation of LATENT_STD
    and all other results of projections one of about 1; with `fp8w` the blocks of 128 x 128 are also times a number
    from 0.5 to 2 each, so that another block's scale shows. Norm weights are from N(1, NORM_STD^2). The filled rows of
    the caches are from N(0, 1). The mask is from N(0, 1), and -inf for HIDDEN_SHARE of the keys.
    """
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)

    def draw_normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    found = {"x": draw_normal(block.batch, block.seq, block.hidden), **_draw_weights(block, draw_normal)}
    for name, size in (("q_norm", block.q_rank), ("kv_norm", block.latent_dim)):
        if size:
            found[name] = 1.0 + NORM_STD * draw_normal(size)
    for name, shape in block.cache_shapes.items():
        found[name] = draw_normal(*shape)
        found[name][:, block.past :] = paged_cache.POISON
    if block.mask:
        found["mask"] = _draw_mask(block, draw_normal)
    found = {name: tensor if _is_stored(name, tensor) else tensor.to(block.stored_as) for name, tensor in found.items()}
    found["cos"], found["sin"] = make_tables(block.room, block.rope_dim, device)
    if planted:
        _plant_keys(block, found, seed)
    return tuple(found[name] for name in block.tensor_names)


def _draw_weights(block: MlaBlock, draw_normal: Draw) -> dict[str, torch.Tensor]:
    """Returns the projections in fp32 or, with `fp8w`, quantised, with their scales as NAME_scale."""
    found: dict[str, torch.Tensor] = {}
    for name, (rows, columns) in block.weight_shapes.items():
        weight = draw_normal(rows, columns) / math.sqrt(columns)
        if name == "wq_a":
            weight *= LATENT_STD
        elif name == "wkv_a":
            weight[: block.latent_dim] *= LATENT_STD
        if block.fp8w:
            uneven = (0.5 * draw_normal(*count_blocks((rows, columns)))).clamp_(-1.0, 1.0).exp2()
            weight, found[f"{name}_scale"] = quantise_blocks(weight * expand_scales(uneven, weight.shape))
        found[name] = weight
    return found


def _is_stored(name: str, tensor: torch.Tensor) -> bool:
    """Returns whether a drawn tensor is stored as it is: an 8-bit weight, or a scale."""
    return tensor.element_size() == 1 or name.endswith("_scale")


def _draw_mask(block: MlaBlock, draw_normal: Draw) -> torch.Tensor:
    """Returns a mask (S, past + S); every token sees its own key."""
    import torch

    mask = draw_normal(block.seq, block.length)
    hidden = torch.special.ndtr(draw_normal(block.seq, block.length)) < HIDDEN_SHARE
    own = torch.arange(block.seq, device=mask.device)
    hidden[own, block.past + own] = False
    return mask.masked_fill_(hidden, -math.inf)


def _plant_keys(block: MlaBlock, given: dict[str, torch.Tensor], seed: int) -> None:
    """Changes rows of x, the length of some filled keys, and entries of the mask, in place, so that each planted key
    gets most of the weight of its row in its head. `given` are the inputs by name."""
    import torch

    plants = choose_plants(block, seed)
    if not plants:
        return
    weights = mla_block_math.load_weights(block, given, torch.float32)
    with full_fp32_matmul():
        _stretch_filled(block, given, weights, plants)
        if block.mask:
            _plant_mask(block, given["mask"], plants)
        _move_tokens(block, given, weights, plants)


def _move_tokens(
    block: MlaBlock, given: dict[str, torch.Tensor], weights: dict[str, torch.Tensor], plants: list[BlockPlant]
) -> None:
    """Moves the tokens of all plants in place."""
    import torch

    device = given["x"].device
    where = sorted({(item.batch, item.row) for item in plants})
    number = {place: index for index, place in enumerate(where)}
    columns = [(number[item.batch, item.row], item.head, item.row + block.past) for item in plants]
    token, head, position = torch.tensor(columns, device=device).t()
    slots = (token, torch.tensor(_count_before([place for place, *_ in columns]), device=device))
    keys = _keys_of(block, given, weights, plants)
    own = torch.tensor([item.key == item.row + block.past for item in plants], device=device).nonzero()[:, 0]
    pulls = _pull_back(block, given, weights, keys, position, head)
    held = pulls.new_zeros(len(where), int(slots[1].max()) + 1, pulls.shape[1])
    target = held.new_zeros(held.shape[:2])
    target[slots] = target_scores(keys, position + 1, 1.0 / _spread(block)) * math.sqrt(block.key_dim)
    batch, row = torch.tensor(where, device=device).t()
    tokens = given["x"][batch, row].float()
    for _ in range(SWEEPS if len(own) else 1):
        held[slots] = pulls
        tokens = tokens + _find_step(block, weights, tokens, held, target)
        if len(own):
            latent, k_pe = _latents_at(block, given, weights, tokens[token[own]], position[own])
            moved = _expand(block, weights, latent, k_pe, head[own])
            pulls[own] = _pull_back(block, given, weights, moved, position[own], head[own])
    given["x"][batch, row] = tokens.to(given["x"].dtype)


def _count_before(tokens: list[int]) -> list[int]:
    """Returns for each plant how many earlier ones have its token."""
    seen = dict.fromkeys(tokens, -1)
    found = []
    for token in tokens:
        seen[token] += 1
        found.append(seen[token])
    return found


def _find_step(
    block: MlaBlock, weights: dict[str, torch.Tensor], tokens: torch.Tensor, pulls: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    """Returns the shortest step (R, E) of tokens (R, E) that gives them their target scores times sqrt(D + R), (R, N),
    along pulls (R, N, Q or E); both are 0 where a token has fewer than N plants."""
    import torch

    gram = _with_ridge(pulls @ pulls.transpose(1, 2)) + torch.diag_embed((target == 0).float())
    if not block.q_rank:
        missing = target - (pulls @ tokens[:, :, None])[..., 0]
        return _combine(torch.linalg.solve(gram, missing), pulls)
    latent = tokens @ weights["wq_a"].t()
    shares = torch.linalg.solve(gram, target)
    taken = (shares * target).sum(1)
    shrunk = (LIMIT * block.q_rank / taken).clamp(max=1.0)
    across = latent - _combine(torch.linalg.solve(gram, (pulls @ latent[:, :, None])[..., 0]), pulls)
    length = across.norm(dim=1) * (shrunk / (block.q_rank - shrunk * taken)).sqrt()
    moved = across + _combine(shares * length[:, None], pulls) - latent
    down = weights["wq_a"]
    back: torch.Tensor = torch.linalg.solve(_with_ridge(down @ down.t()), moved.t())
    return back.t() @ down


def _with_ridge(matrix: torch.Tensor) -> torch.Tensor:
    """Returns square matrices (..., N, N) with RIDGE times their mean diagonal added to the diagonal."""
    import torch

    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    return matrix + torch.diag_embed((RIDGE * diagonal.mean(-1, keepdim=True)).expand_as(diagonal))


def _combine(shares: torch.Tensor, pulls: torch.Tensor) -> torch.Tensor:
    """Returns the sum (R, Q) of pulls (R, N, Q), each times its share (R, N)."""
    return (shares[:, None] @ pulls)[:, 0]


def _by_head(x: torch.Tensor, weight: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    """Returns each row of x (P, K) times the weight (H, K, N) of its head (P,): (P, N)."""
    out = x.new_empty(len(x), weight.shape[2])
    for number in sorted(set(head.tolist())):
        rows = (head == number).nonzero()[:, 0]
        out[rows] = x[rows] @ weight[number]
    return out


def _pull_back(
    block: MlaBlock,
    given: dict[str, torch.Tensor],
    weights: dict[str, torch.Tensor],
    keys: torch.Tensor,
    position: torch.Tensor,
    head: torch.Tensor,
) -> torch.Tensor:
    """Returns what keys (P, D + R) of heads (P,) pull a query at a position (P,) with: (P, Q), or (P, E) without Q."""
    import torch

    cos, sin = given["cos"][position], given["sin"][position]
    k_pe = rotate(keys[:, None, block.nope_dim :], cos, -sin, interleaved=True)[:, 0]
    back = torch.cat([keys[:, : block.nope_dim], k_pe], dim=1)
    pulls = _by_head(back, weights["wq_b" if block.q_rank else "wq"].view(block.heads, block.key_dim, -1), head)
    return pulls * given["q_norm"].float() if block.q_rank else pulls


def _spread(block: MlaBlock) -> float:
    """Returns the variance of other keys along a planted one: 1 for independent elements; those of W_UK c, with W_UK
    from N(0, 1 / C), have 1 + D / C (see `workloads.mla`)."""
    nope = block.nope_dim * (1 + block.nope_dim / block.latent_dim)
    return (nope + block.rope_dim) / block.key_dim if not block.expanded else 1.0


def _stretch_filled(
    block: MlaBlock, given: dict[str, torch.Tensor], weights: dict[str, torch.Tensor], plants: list[BlockPlant]
) -> None:
    """Makes planted keys of the caches longer, in place, if they are too short to dominate a row that sees every key.
    All heads share a latent row, which gets the largest factor of its plants."""
    filled = [item for item in plants if item.key < block.past]
    if not filled:
        return
    # t - t^2 / 2 |k|^2 = above needs |k|^2 >= 2 above; a quarter more keeps away from the double root.
    wanted = 2.5 * (math.log(block.length) + ABOVE) * _spread(block)
    factors = (wanted / _keys_of(block, given, weights, filled).square().sum(1)).clamp(min=1.0).sqrt().tolist()
    largest: dict[tuple[int, ...], float] = {}
    for item, factor in zip(filled, factors, strict=True):
        place: tuple[int, ...] = (item.batch, item.key, *((item.head,) if block.expanded else ()))
        largest[place] = max(factor, largest.get(place, 1.0))
    for name in ("k_cache",) if block.expanded else ("kv_cache", "pe_cache"):
        for place, factor in largest.items():
            given[name][place] = (given[name][place].float() * factor).to(given[name].dtype)


def _plant_mask(block: MlaBlock, mask: torch.Tensor, plants: list[BlockPlant]) -> None:
    """Sets the mask's entries of planted (row, key) in place, in turn 0 and -inf; of a row's own key always 0."""
    pairs = sorted({(item.row, item.key) for item in plants})
    for number, (row, key) in enumerate(pairs):
        mask[row, key] = -math.inf if number % 2 and key != block.past + row else 0.0


def _keys_of(
    block: MlaBlock, given: dict[str, torch.Tensor], weights: dict[str, torch.Tensor], plants: list[BlockPlant]
) -> torch.Tensor:
    """Returns the keys (P, D + R) of the plants, filled ones or those of new tokens, in fp32."""
    import torch

    columns = [(item.batch, item.key, item.head) for item in plants]
    batch, key, head = torch.tensor(columns, device=given["x"].device).t()
    tokens = given["x"][batch, (key - block.past).clamp(min=0)].float()
    latent, k_pe = _latents_at(block, given, weights, tokens, key)
    if not block.past:
        return _expand(block, weights, latent, k_pe, head)
    filled, place = (key < block.past)[:, None], (batch, key.clamp(max=block.past - 1))
    if block.expanded:
        return torch.where(
            filled, given["k_cache"][batch, place[1], head].float(), _expand(block, weights, latent, k_pe, head)
        )
    latent = torch.where(filled, given["kv_cache"][place].float(), latent)
    return _expand(block, weights, latent, torch.where(filled, given["pe_cache"][place].float(), k_pe), head)


def _latents_at(
    block: MlaBlock,
    given: dict[str, torch.Tensor],
    weights: dict[str, torch.Tensor],
    tokens: torch.Tensor,
    position: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns latents (P, C) and k_pe (P, R), rotated by their positions (P,), of tokens (P, E)."""
    both = tokens @ weights["wkv_a"].t()
    latent = mla_block_math.normalise(both[:, : block.latent_dim], given["kv_norm"])
    cos, sin = given["cos"][position], given["sin"][position]
    return latent, rotate(both[:, None, block.latent_dim :], cos, sin, interleaved=True)[:, 0]


def _expand(
    block: MlaBlock, weights: dict[str, torch.Tensor], latent: torch.Tensor, k_pe: torch.Tensor, head: torch.Tensor
) -> torch.Tensor:
    """Returns the keys (P, D + R) of latents (P, C) and k_pe (P, R) in heads (P,)."""
    import torch

    w_uk = weights["wkv_b"].view(block.heads, -1, block.latent_dim)[:, : block.nope_dim]
    return torch.cat([_by_head(latent, w_uk.transpose(1, 2), head), k_pe], dim=-1)
