"""Attention over sequences of several lengths, packed end to end without padding (FlashAttention's varlen)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import attention_math, loud_rows, planted_keys, sequence_lengths
from pytest_attnperf.workloads.fields import require_dtype
from pytest_attnperf.workloads.prefill import ROWS_WITHOUT_KEYS, Prefill
from pytest_attnperf.workloads.sequence_lengths import OFFSET_BYTES, PackedSequences

if TYPE_CHECKING:
    from pytest_attnperf.backends import Outputs, Tensors

DTYPES = ("f32", "f16", "bf16", "tf32")
"""Dtypes of sequences; 8-bit ones are missing, because there are no scales here."""
_SLOPE_BYTES = 4


@dataclass(frozen=True)
class Varlen(PackedSequences):
    """One attention problem over packed sequences; id e.g. `varlen-q63_1000_2049-h8-hk2-d64-f16-causal`.

    dtype      one of DTYPES: q, k, v and out
    lse, window, alibi    as in `Prefill`, for every sequence alone. For further fields see `PackedSequences`
    cold       timed with inputs that are in no cache; hot otherwise

    Inputs are (q, k, v, cu_seqlens_q, cu_seqlens_k) and with `alibi` slopes: q (Tq, H, D), k and v (Tk, Hk, D),
    contiguous, the offsets of the sequences in the packed rows, (B + 1,) int32 from 0 to Tq and Tk, and slopes fp32
    (H,). Outputs are 'out' (Tq, H, D) and, with `lse`, 'lse' (H, Tq) in fp32. This is the layout of
    flash_attn_varlen_func (flash-attention 2.7). A row that sees no key has out = 0 and lse = -inf.

    Raises WorkloadError naming the field for lengths that are not positive integers (empty sequences are not allowed),
    different numbers of sequences in seqs_q and seqs_kv, another dtype, and fields that `Prefill` rejects.
    """

    grammar = sequence_lengths.make_grammar(
        "varlen",
        flags=("causal", "lse", "alibi", "cold"),
        dtypes=DTYPES,
        further={"w": "window"},
        unsaid=("window", "alibi", "cold"),
    )

    lse: bool = False
    window: int = 0
    alibi: bool = False
    cold: bool = False

    def __post_init__(self) -> None:
        self._fill_in()
        require_dtype("varlen", self.dtype, DTYPES)
        self._require_lengths()
        try:
            self.make_sequence(0)
        except WorkloadError as error:
            raise WorkloadError(str(error).replace("prefill workload", "varlen workload")) from error

    @property
    def non_finite_outputs(self) -> frozenset[str]:
        """{'lse'} if it is returned and some rows see no key, whose lse is -inf; else empty."""
        return frozenset({"lse"}) if self.lse and self.rows_without_keys else frozenset()

    def make_sequence(self, number: int) -> Prefill:
        """Returns sequence `number` alone, as a dense problem of batch 1."""
        names = ("heads", "head_dim", "kv_heads", "dtype", "causal", "lse", "window", "alibi")
        fields = {name: getattr(self, name) for name in names}
        return Prefill(batch=1, seq_q=self.seqs_q[number], seq_kv=self.seqs_kv[number], **fields)

    @property
    def sequences(self) -> tuple[Prefill, ...]:
        """Every sequence as a dense problem of batch 1."""
        return tuple(self.make_sequence(number) for number in range(self.batch))

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
        """Least bytes moved: the sum of `Prefill.bytes_min` over the sequences, plus both offsets (int32); the slopes
        count once."""
        slopes = (self.batch - 1) * self.heads * _SLOPE_BYTES if self.alibi else 0
        return sum(one.bytes_min for one in self.sequences) - slopes + 2 * (self.batch + 1) * OFFSET_BYTES

    def _conventions(self) -> dict[str, Any]:
        said = {"rows_without_keys": ROWS_WITHOUT_KEYS} if self.rows_without_keys else {}
        if self.alibi:
            said["alibi_bias"] = attention_math.ALIBI_DEFINITION
        alignment = "bottom-right, by sequence" if self.causal else "none"
        return {**said, "scale": "1/sqrt(head_dim)", "mask_alignment": alignment}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Makes (q, k, v, cu_seqlens_q, cu_seqlens_k[, slopes]) on `device`, the first three drawn from N(0, 1). With
        `planted`, single keys are made to dominate rows in every sequence, each with its own seed, and some rows are
        aligned with keys of neighbouring sequences, which they must not see."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        query_shape = (sum(self.seqs_q), self.heads, self.head_dim)
        key_shape = (sum(self.seqs_kv), self.kv_heads, self.head_dim)
        q, k, v = (
            torch.randn(shape, generator=generator, device=device) for shape in (query_shape, key_shape, key_shape)
        )
        slopes = attention_math.alibi_slopes(self.heads) if self.alibi else ()
        if planted:
            loudest = seed % len(self.seqs_q)
            how: Any = {"causal": self.causal, "window": self.window, "slopes": slopes}
            for number, (rows, keys) in enumerate(self.iterate_slices()):
                loud = number == loudest and loud_rows.can_have_loud_row(self.dtype, lse=self.lse)
                planted_keys.plant_keys(q[None, rows], k[None, keys], seed=seed + number, loud=loud, **how)
            planted_keys.plant_strangers(q, k, list(self.iterate_slices()), seed=seed)
        further = [torch.tensor(slopes, device=device)] if slopes else []
        return (*(tensor.to(self.stored_as) for tensor in (q, k, v)), *self._make_offsets(device), *further)

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'lse') of each sequence alone: in fp64 on a CPU and for f32 and tf32, else fp32."""
        return self._compute_by_sequence(inputs, Prefill.reference)

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'lse') of every sequence alone by `Prefill.plain`, in the workload's dtype."""
        return self._compute_by_sequence(inputs, Prefill.plain)

    def _compute_by_sequence(self, inputs: Tensors, compute: Callable[[Prefill, Tensors], Outputs]) -> Outputs:
        import torch

        q, k, v, _, _, *slopes = inputs
        found = [
            compute(one, (q[None, rows], k[None, keys], v[None, keys], *slopes))
            for one, (rows, keys) in zip(self.sequences, self.iterate_slices(), strict=True)
        ]
        outputs = {"out": torch.cat([one["out"][0] for one in found])}
        return outputs | {"lse": torch.cat([one["lse"][0] for one in found], dim=1)} if self.lse else outputs
