"""The workloads of a model's attention layers on one tensor-parallel rank, family by family."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.block import Block
from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.decode import Decode
from pytest_attnperf.workloads.gemm import Gemm
from pytest_attnperf.workloads.mixed import DTYPES as MIXED_DTYPES
from pytest_attnperf.workloads.mixed import Mixed
from pytest_attnperf.workloads.mla import Mla
from pytest_attnperf.workloads.mla_block import MlaBlock
from pytest_attnperf.workloads.model_config import UNBOUNDED, Latent, ModelConfig, Rank
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.rope import Rope
from pytest_attnperf.workloads.row_softmax import RowSoftmax
from pytest_attnperf.workloads.varlen import Varlen
from pytest_attnperf.workloads.varlen_backward import VarlenBackward
from pytest_attnperf.workloads.weighted_values import WeightedValues

BATCH_MAX = 65_536
STAGED_PROMPT = 512
"""Queries of the stages of unfused attention: few, because their scores fill memory."""
STAGES = ("qk_scores", "causal_mask", "row_softmax", "weighted_values")
_CAPPED = frozenset({"decode", "mixed"})
_OF_SCORES = frozenset(
    {"prefill", "varlen", "decode", "mixed", "block", "backward", "varlen_backward", "mla", "mla_block", *STAGES}
)
_WHY_NOT_LATENT = {
    "block": "block is multi-head attention; the model's is latent: see family mla_block",
    "decode": "decode reads keys and values of heads; the model's cache holds latents: see family mla",
    "mixed": "mixed reads keys and values of heads; the model's cache holds latents: see family mla",
    **{
        family: f"{family} has values as wide as keys; in the model widths differ: see families prefill and mla"
        for family in ("varlen", "backward", "varlen_backward")
    },
}


@dataclass(frozen=True)
class Sizes:
    """What is measured of a model: the rank's heads, and the batches and lengths.

    batches     sequences decoded at once
    lengths     tokens of prompts, and keys of decoded sequences; at most the model's positions
    """

    config: ModelConfig
    rank: Rank
    batches: Sequence[int]
    lengths: Sequence[int]

    @classmethod
    def from_config(cls, config: ModelConfig, tp: int, batches: Sequence[int], lengths: Sequence[int]) -> Sizes:
        """Checks the sizes and returns them without repetitions; leaves out lengths above the model's positions. Raises
        WorkloadError for an impossible number of ranks, batch or length, and if no length is left."""
        rank = config.make_rank(tp)
        for what, values, most in (("batch", batches, BATCH_MAX), ("sequence length", lengths, UNBOUNDED)):
            wrong = [value for value in values if not 1 <= value <= most]
            if wrong or not values:
                shown = wrong[0] if wrong else "none"
                raise WorkloadError(f"{config.file}: a {what} must be a whole number from 1 to {most}, got {shown}")
        held = [length for length in lengths if length <= config.positions]
        if not held:
            raise WorkloadError(
                f"{config.file}: no sequence length of {', '.join(map(str, lengths))} is within "
                f"max_position_embeddings={config.positions}; give a shorter one"
            )
        return cls(config, rank, tuple(dict.fromkeys(batches)), tuple(dict.fromkeys(held)))

    @property
    def shared_fields(self) -> dict[str, Any]:
        """Keyword arguments that all workloads of attention over heads take: heads, kv_heads, head_dim and dtype."""
        heads = {"heads": self.rank.heads, "kv_heads": self.rank.kv_heads, "head_dim": self.config.head_dim}
        return {**heads, "dtype": self.config.dtype}

    @property
    def tokens(self) -> tuple[tuple[int, bool], ...]:
        """(number of tokens, whether weights come from memory) for each projection to measure: (length, False) for
        prompts, then (batch, True) for decoding. Between two decode steps other layers' weights evict a layer's from
        every cache."""
        return (*((length, False) for length in self.lengths), *((batch, True) for batch in self.batches))

    @property
    def full_lengths(self) -> tuple[int, ...]:
        """Lengths at which at least one kind of layer sees all keys: it has no window, or one that covers them."""
        windows = self.config.windows
        return tuple(length for length in self.lengths if 0 in windows or length <= max(windows))

    def list_windows(self, keys: int) -> tuple[int, ...]:
        """Returns the different windows of the layers over `keys` keys, in keys; 0 for one that covers all of them."""
        return tuple(dict.fromkeys(window if window < keys else 0 for window in self.config.windows))


def _make_prefill(sizes: Sizes) -> Iterator[Workload]:
    value_dim = sizes.config.latent.value_dim if sizes.config.latent else 0
    for length in sizes.lengths:
        for window in sizes.list_windows(length):
            yield Prefill(1, length, causal=True, window=window, head_dim_v=value_dim, **sizes.shared_fields)


def _make_decode(sizes: Sizes) -> Iterator[Workload]:
    config = sizes.config
    for length in sizes.lengths:
        for batch in sizes.batches:
            for window in sizes.list_windows(length):
                yield Decode(batch, length, window=window, cap=config.cap, sinks=config.sinks, **sizes.shared_fields)


def _make_block(sizes: Sizes) -> Iterator[Workload]:
    layer = {"hidden": sizes.config.hidden, "bias": sizes.config.bias, **sizes.shared_fields}
    for length in sizes.full_lengths:
        yield Block(1, length, **layer)
    for length in sizes.full_lengths:
        for batch in sizes.batches:
            yield Block(batch, 1, past=length - 1, **layer)


def _make_rope(sizes: Sizes) -> Iterator[Workload]:
    config, rank, latent = sizes.config, sizes.rank, sizes.config.latent
    kv_heads, dim = (1, latent.rope_dim) if latent else (rank.kv_heads, config.head_dim)
    shapes = [*((1, length) for length in sizes.lengths), *((batch, 1) for batch in sizes.batches)]
    for batch, seq in shapes:
        yield Rope(
            batch,
            seq,
            rank.heads,
            dim,
            kv_heads=kv_heads,
            dtype=config.dtype,
            interleaved=latent is not None and latent.interleaved,
        )


def _make_gemm(sizes: Sizes) -> Iterator[Workload]:
    for rows, cold in sizes.tokens:
        for columns, depth in _list_projections(sizes.config, sizes.rank, decoded=cold):
            yield Gemm(rows, columns, depth, sizes.config.dtype, "nt", cold)


def _list_projections(config: ModelConfig, rank: Rank, *, decoded: bool) -> list[tuple[int, int]]:
    """Returns (outputs, inputs) of each projection around attention, as one rank computes it. The latents of queries
    and of keys come from one product, as in vLLM (fused_qkv_a_proj in its deepseek_v2). With `decoded`, keys and values
    are not projected from their latent: a decode step does that within its attention, which family `mla` measures."""
    latent = config.latent
    if latent is None:
        out = rank.heads * config.head_dim
        return [(out + 2 * rank.kv_heads * config.head_dim, config.hidden), (config.hidden, out)]
    queries = rank.heads * config.head_dim
    # Down to latents, not split over ranks, up to the rank's heads, and back (arXiv:2405.04434, section 2.1).
    down = latent.kv_rank + latent.rope_dim
    first = [(queries, config.hidden), (down, config.hidden)]
    if latent.q_rank:
        first = [(latent.q_rank + down, config.hidden), (queries, latent.q_rank)]
    up = [] if decoded else [(rank.heads * (latent.nope_dim + latent.value_dim), latent.kv_rank)]
    return [*first, *up, (config.hidden, rank.heads * latent.value_dim)]


def _make_rmsnorm(sizes: Sizes) -> Iterator[Workload]:
    for rows, _ in sizes.tokens:
        yield RmsNorm(rows, sizes.config.hidden, sizes.config.dtype, residual=True)


def _pack_lengths(lengths: Sequence[int]) -> tuple[int, ...]:
    """Returns the lengths of the sequences to pack: one of each length, or two if there is one length only."""
    return tuple(lengths) if len(lengths) > 1 else tuple(lengths) * 2


def _make_varlen(sizes: Sizes) -> Iterator[Workload]:
    for window in sizes.list_windows(max(sizes.lengths)):
        yield Varlen(_pack_lengths(sizes.lengths), causal=True, window=window, **sizes.shared_fields)


def _make_mixed(sizes: Sizes) -> Iterator[Workload]:
    """Yields for each window a batch of the shortest prompt and the largest number of sequences, which decode at the
    greatest length; nothing for a dtype that family `mixed` lacks."""
    config = sizes.config
    if config.dtype not in MIXED_DTYPES:
        return
    keys = max(sizes.lengths)
    step = f"q{min(sizes.lengths)}_{max(sizes.batches)}q1s{keys}"
    for window in sizes.list_windows(keys):
        yield Mixed(step, window=window, cap=config.cap, sinks=config.sinks, **sizes.shared_fields)


def _make_backward(sizes: Sizes) -> Iterator[Workload]:
    length = max(sizes.full_lengths, default=1)
    if length > 1:
        yield Backward(1, length, causal=True, **sizes.shared_fields)


def _make_varlen_backward(sizes: Sizes) -> Iterator[Workload]:
    if max(sizes.full_lengths, default=1) > 1:
        yield VarlenBackward(_pack_lengths(sizes.full_lengths), causal=True, **sizes.shared_fields)


def _make_mla(sizes: Sizes) -> Iterator[Workload]:
    latent = sizes.config.latent
    if latent is None:
        return
    for length in sizes.lengths:
        yield _make_latent_attention(sizes, latent, batch=1, seq=length, keys=length)
    for length in sizes.lengths:
        for batch in sizes.batches:
            yield _make_latent_attention(sizes, latent, batch=batch, seq=1, keys=length)


def _make_latent_attention(sizes: Sizes, latent: Latent, *, batch: int, seq: int, keys: int) -> Mla:
    return Mla(
        batch,
        seq,
        sizes.rank.heads,
        latent.nope_dim,
        latent.rope_dim,
        latent.kv_rank,
        seq_kv=keys,
        value_dim=latent.value_dim,
        dtype=sizes.config.dtype,
        causal=seq > 1,  # a single token sees all keys either way
    )


def _make_mla_block(sizes: Sizes) -> Iterator[Workload]:
    if sizes.config.latent is None:
        return
    for length in sizes.lengths:
        yield _make_latent_layer(sizes, sizes.config.latent, batch=1, seq=length, past=0)
    for length in sizes.lengths:
        for batch in sizes.batches:
            yield _make_latent_layer(sizes, sizes.config.latent, batch=batch, seq=1, past=length - 1)


def _make_latent_layer(sizes: Sizes, latent: Latent, *, batch: int, seq: int, past: int) -> MlaBlock:
    return MlaBlock(
        batch,
        seq,
        sizes.config.hidden,
        sizes.rank.heads,
        latent.nope_dim,
        latent.rope_dim,
        latent.kv_rank,
        q_rank=latent.q_rank,
        value_dim=latent.value_dim,
        past=past,
        dtype=sizes.config.dtype,
        fp8w=sizes.config.fp8_weights,
    )


def _make_stage_builder(family: str) -> Callable[[Sizes], Iterator[Workload]]:
    def build_stage(sizes: Sizes) -> Iterator[Workload]:
        config, rank = sizes.config, sizes.rank
        length = min(STAGED_PROMPT, config.positions)
        if length < 2 or not any(window == 0 or length <= window for window in config.windows):
            return
        rows = {"batch": 1, "seq_q": length, "heads": rank.heads}
        if family == "causal_mask":
            yield CausalMask(**rows, dtype="f32")
        elif family == "row_softmax":
            yield RowSoftmax(**rows, dtype=config.dtype, causal=True)
        elif family == "qk_scores":
            yield QkScores(batch=1, seq_q=length, **sizes.shared_fields)
        else:
            dim = config.latent.value_dim if config.latent else config.head_dim
            yield WeightedValues(batch=1, seq_q=length, causal=True, **{**sizes.shared_fields, "head_dim": dim})

    return build_stage


BUILDERS: Mapping[str, Callable[[Sizes], Iterator[Workload]]] = {
    "prefill": _make_prefill,
    "decode": _make_decode,
    "block": _make_block,
    "rope": _make_rope,
    "gemm": _make_gemm,
    "rmsnorm": _make_rmsnorm,
    "varlen": _make_varlen,
    "mixed": _make_mixed,
    "backward": _make_backward,
    "varlen_backward": _make_varlen_backward,
    "mla": _make_mla,
    "mla_block": _make_mla_block,
    **{family: _make_stage_builder(family) for family in STAGES},
}
"""Family -> its workloads; other families are no part of an attention layer, or belong to a project."""


def workloads_of(
    config: ModelConfig, family: str, tp: int, batches: Sequence[int], lengths: Sequence[int]
) -> list[Workload]:
    """Returns the workloads of a family for the model on one of `tp` ranks, without repetitions; [] if there is none,
    see `reason_no_workload`. Raises the errors of `Sizes.from_config`."""
    sizes = Sizes.from_config(config, tp, batches, lengths)
    return [] if _reason_impossible(config, family) else list(dict.fromkeys(BUILDERS[family](sizes)))


def reason_no_workload(config: ModelConfig, family: str) -> str:
    """Returns, in words, why `workloads_of` returned no workload of the family for this model; call it only then."""
    if reason := _reason_impossible(config, family):
        return reason
    if family in ("mla", "mla_block"):
        return f"{config.model_type} has no latent attention"
    if family == "mixed":
        return f"mixed takes {' and '.join(MIXED_DTYPES)}, not {config.dtype}"
    if 0 in config.windows:
        return "its sequences are too short: it needs at least 2 tokens"
    return f"every layer has a window of {max(config.windows)} keys, shorter than the sequences, or these are too short"


def _reason_impossible(config: ModelConfig, family: str) -> str:
    """Returns, in words, why the family cannot measure this model, whatever the lengths; '' if it can."""
    if family not in BUILDERS:
        return f"{family} is none of the families that measure a model's attention layers"
    if config.latent and family in _WHY_NOT_LATENT:
        return _WHY_NOT_LATENT[family]
    if config.latent and family == "mla_block" and not config.latent.interleaved:
        return "mla_block rotates pairs (2 i, 2 i + 1), and rope_interleave is false"
    if config.latent and family == "mla_block" and config.bias:
        return "mla_block has no bias, and attention_bias is true"
    if config.cap and family in _OF_SCORES - _CAPPED:
        return f"scores have a soft cap (attn_logit_softcapping={config.cap}); only decode and mixed support it"
    return ""
