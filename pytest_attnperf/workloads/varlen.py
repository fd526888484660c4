"""Attention over sequences of several lengths, packed end to end without padding (FlashAttention's varlen)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import attention_math, loud_rows, planted_keys, sequence_lengths
from pytest_attnperf.workloads.base import DTYPE_BYTES, QUANTISED, TORCH_DTYPES
from pytest_attnperf.workloads.fields import require_dtype
from pytest_attnperf.workloads.parts import Part
from pytest_attnperf.workloads.prefill import DTYPES, ROWS_WITHOUT_KEYS, Prefill, SplitInputs
from pytest_attnperf.workloads.quantisation import PER_TENSOR
from pytest_attnperf.workloads.quantised_inputs import (
    INT8_MODES,
    OUT_CHOICES,
    insert_out,
    name_scaled,
    parse_int8_id,
    store_inputs,
)
from pytest_attnperf.workloads.sequence_lengths import OFFSET_BYTES, PackedSequences

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

_SLOPE_BYTES = 4
_SCALE_BYTES = 4
_OF_SEQUENCE = (
    *("heads", "head_dim", "kv_heads", "dtype", "causal", "lse", "window"),
    *("alibi", "bias", "int8", "out"),
)
"""Fields that a sequence alone has, too."""


@dataclass(frozen=True)
class Varlen(PackedSequences):
    """One attention problem over packed sequences; id e.g. `varlen-q63_1000_2049-h8-hk2-d64-f16-causal`.

    dtype, lse, window, alibi, int8, out    as in `Prefill`, for every sequence alone. For further fields see
               `PackedSequences`
    bias       score(h, i, j) += bias[h, i, j], i and j counted in each sequence from 0: one matrix for all sequences,
               of which a sequence reads the first Sq rows and Skv columns. This is the bias (1, H, max Sq, max Skv) of
               the flash-attention.py of ROCm's perf-kernels, which does not take it with packed sequences
    cold       timed with inputs that are in no cache; hot otherwise

    Inputs are (q, k, v, cu_seqlens_q, cu_seqlens_k), then scales, then slopes or bias: q (Tq, H, D), k and v (Tk, Hk,
    D), contiguous, the offsets of the sequences in the packed rows, (B + 1,) int32 from 0 to Tq and Tk; for an 8-bit
    dtype the scales of `Prefill`, fp32 (1,), one for all sequences; slopes fp32 (H,) or bias (H, max Sq, max Skv) in
    the dtype of 'out'. Outputs are 'out' (Tq, H, D) and, with `lse`, 'lse' (H, Tq) in fp32. This is the layout of
    flash_attn_varlen_func (flash-attention 2.7). A row that sees no key has out = 0 and lse = -inf.

    Raises WorkloadError naming the field for lengths that are not positive integers (empty sequences are not allowed),
    different numbers of sequences in seqs_q and seqs_kv, an unknown dtype, and fields that `Prefill` rejects.
    """

    grammar = sequence_lengths.make_grammar(
        "varlen",
        flags=("causal", "lse", "alibi", "bias", "cold"),
        dtypes=DTYPES,
        further={"w": "window"},
        choices={"int8": INT8_MODES},
        texts={"out": ("out", "|".join(OUT_CHOICES))},
        unsaid=("window", "alibi", "bias", "cold", "int8", "out"),
    )

    packed_inputs = (("q", 0), ("kv", 0), ("kv", 0))
    packed_outputs: ClassVar[Mapping[str, tuple[str, int]]] = {"out": ("q", 0), "lse": ("q", 1)}

    lse: bool = False
    window: int = 0
    alibi: bool = False
    cold: bool = False
    bias: bool = False
    int8: str = ""
    out: str = ""

    def __post_init__(self) -> None:
        self._fill_in()
        require_dtype("varlen", self.dtype, DTYPES)
        self._require_lengths()
        try:
            self._set_field("out", self.make_sequence(0).out)
        except WorkloadError as error:
            raise WorkloadError(str(error).replace("prefill workload", "varlen workload")) from error

    @classmethod
    def _fields_of_id(cls, text: str) -> dict[str, Any]:
        return parse_int8_id(super()._fields_of_id, text)

    def _option_words(self) -> list[str]:
        return insert_out(super()._option_words(), self.int8, self.out)

    @property
    def non_finite_outputs(self) -> frozenset[str]:
        """{'lse'} if it is returned and some rows see no key, whose lse is -inf; else empty."""
        return frozenset({"lse"}) if self.lse and self.rows_without_keys else frozenset()

    def make_sequence(self, number: int) -> Prefill:
        """Returns sequence `number` alone, as a dense problem of batch 1."""
        fields = {name: getattr(self, name) for name in _OF_SEQUENCE}
        return Prefill(batch=1, seq_q=self.seqs_q[number], seq_kv=self.seqs_kv[number], **fields)

    @property
    def sequences(self) -> tuple[Prefill, ...]:
        """Every sequence as a dense problem of batch 1."""
        return tuple(self.make_sequence(number) for number in range(self.batch))

    @property
    def out_dtype(self) -> str:
        """Workload dtype of 'out', as `Prefill.out_dtype`."""
        return self.make_sequence(0).out_dtype

    @property
    def scaled_names(self) -> tuple[str, ...]:
        """Those of 'q', 'k' and 'v' that have a scale, in the order of the inputs."""
        return name_scaled(self.dtype, self.int8)

    @property
    def rows_without_keys(self) -> int:
        """Number of rows, of all sequences, that see no key."""
        return sum(one.rows_without_keys for one in self.sequences)

    @property
    def visible_pairs(self) -> int:
        """Number of (query, key) pairs of one head that the masks let through, over all sequences."""
        return sum(one.visible_pairs for one in self.sequences)

    @property
    def flops(self) -> float:
        """FLOPs: 4 head_dim per visible (query, key) pair and head, over all sequences, as in `Prefill`."""
        return float(4 * self.head_dim * self.visible_pairs * self.heads)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: the sum of `Prefill.bytes_min` over the sequences, plus both offsets (int32); scales,
        slopes, and the part of the bias that some sequence reads count once."""
        alone = (replace(one, bias=False) for one in self.sequences)
        shared = len(self.scaled_names) * _SCALE_BYTES + self.alibi * self.heads * _SLOPE_BYTES
        found = sum(one.bytes_min for one in alone) - (self.batch - 1) * shared
        if self.bias:
            found += self.heads * self._count_biases() * DTYPE_BYTES[self.out_dtype]
        return found + 2 * (self.batch + 1) * OFFSET_BYTES

    def _count_biases(self) -> int:
        """Returns the number of (row, key) positions of one head's bias that the mask of some sequence lets through.

        It grows evenly from row to row between those where a sequence ends, or begins to see a key or to lose one.
        """
        pairs = sorted(set(zip(self.seqs_q, self.seqs_kv, strict=True)))
        turns = {0, self.max_q}
        for seq_q, seq_kv in pairs:
            turns |= {row for row in (seq_q, seq_q - seq_kv, seq_q - seq_kv + self.window) if 0 < row < self.max_q}
        return sum(
            (self._count_keys(first, pairs) + self._count_keys(end - 1, pairs)) * (end - first) // 2
            for first, end in itertools.pairwise(sorted(turns))
        )

    def _count_keys(self, row: int, pairs: Iterable[tuple[int, int]]) -> int:
        """Returns the number of keys that a row sees in some sequence of these (seq_q, seq_kv), each counted once."""
        count = seen_to = 0
        # The keys of a row are one range in each sequence. In the order of their begins, what is new is added.
        for first, end in sorted(self._keys_of(row, seq_q, seq_kv) for seq_q, seq_kv in pairs if row < seq_q):
            count += max(0, end - max(first, seen_to))
            seen_to = max(seen_to, end)
        return count

    def _keys_of(self, row: int, seq_q: int, seq_kv: int) -> tuple[int, int]:
        """Returns (first, end) of the keys that a row sees in a sequence of these lengths."""
        end = max(0, row + seq_kv - seq_q + 1) if self.causal else seq_kv
        return max(0, end - self.window) if self.window else 0, end

    def _conventions(self) -> dict[str, Any]:
        said = {"rows_without_keys": ROWS_WITHOUT_KEYS} if self.rows_without_keys else {}
        if self.dtype in QUANTISED:
            said["quantisation"] = PER_TENSOR
        if self.bias:
            said["bias_matrix"] = "(H, max Sq, max Skv), rows and keys counted in each sequence"
        if self.alibi:
            said["alibi_bias"] = attention_math.ALIBI_DEFINITION
        alignment = "bottom-right, by sequence" if self.causal else "none"
        return {**said, "scale": "1/sqrt(head_dim)", "mask_alignment": alignment}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Makes the inputs on `device`, q, k, v and a bias drawn from N(0, 1). With `planted`, single keys are made to
        dominate rows in every sequence, each with its own seed, and some rows are aligned with keys of neighbouring
        sequences, which they must not see."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        query_shape: tuple[int, ...] = (sum(self.seqs_q), self.heads, self.head_dim)
        key_shape = (sum(self.seqs_kv), self.kv_heads, self.head_dim)
        shapes = [query_shape, key_shape, key_shape, *([(self.heads, self.max_q, self.max_kv)] if self.bias else [])]
        q, k, v, *bias = (torch.randn(shape, generator=generator, device=device) for shape in shapes)
        slopes = attention_math.alibi_slopes(self.heads) if self.alibi else ()
        if planted:
            self._plant(q, k, bias[0] if bias else None, slopes, seed)
        wide: torch.dtype = getattr(torch, TORCH_DTYPES[self.out_dtype])
        further = [torch.tensor(slopes, device=device)] if slopes else [matrix.to(wide) for matrix in bias]
        stored = store_inputs(q, k, v, self.dtype, self.scaled_names, wide)
        return (*stored[:3], *self._make_offsets(device), *stored[3:], *further)

    def _plant(
        self, q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor | None, slopes: Sequence[float], seed: int
    ) -> None:
        """Plants keys in every sequence, and strangers between them, in place."""
        loudest = seed % len(self.seqs_q)
        how: Any = {"causal": self.causal, "window": self.window, "slopes": slopes}
        for number, (rows, keys) in enumerate(self.iterate_slices()):
            loud = number == loudest and loud_rows.can_have_loud_row(self.dtype, lse=self.lse)
            own = None if bias is None else bias[:, : self.seqs_q[number], : self.seqs_kv[number]]
            planted_keys.plant_keys(q[None, rows], k[None, keys], seed=seed + number, bias=own, loud=loud, **how)
        planted_keys.plant_strangers(q, k, list(self.iterate_slices()), seed=seed)

    def take_chunk(self) -> Part | None:
        """Returns the last queries of each sequence with all of its keys; None for single queries, and with a bias,
        whose rows are counted from the first query."""
        return None if self.bias or self.max_q < 2 else self._take_sequences(range(self.batch), chunk=True)

    def _cut_further(self, further: Tensors) -> Tensors:
        if not self.bias:
            return further
        *others, bias = further
        return (*others, bias[:, : self.max_q, : self.max_kv].contiguous())

    def split_inputs(self, inputs: Tensors) -> SplitInputs:
        """Returns `inputs` but for the offsets, grouped: q, k and v, their scales, slopes, bias."""
        return self.make_sequence(0).split_inputs((*inputs[:3], *inputs[5:]))

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'lse') of each sequence alone: in fp64 on a CPU and for f32 and tf32, else fp32."""
        return self._compute_by_sequence(inputs, Prefill.reference)

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'lse') of every sequence alone by `Prefill.plain`, in the workload's dtype."""
        return self._compute_by_sequence(inputs, Prefill.plain)

    def _compute_by_sequence(self, inputs: Tensors, compute: Callable[[Prefill, Tensors], Outputs]) -> Outputs:
        import torch

        split = self.split_inputs(inputs)
        q, k, v = split.qkv
        further = (*split.scales.values(), *(() if split.slopes is None else (split.slopes,)))
        found = []
        for one, (rows, keys) in zip(self.sequences, self.iterate_slices(), strict=True):
            bias = () if split.bias is None else (split.bias[:, : one.seq_q, : one.seq_kv],)
            found.append(compute(one, (q[None, rows], k[None, keys], v[None, keys], *further, *bias)))
        outputs = {"out": torch.cat([one["out"][0] for one in found])}
        return outputs | {"lse": torch.cat([one["lse"][0] for one in found], dim=1)} if self.lse else outputs
