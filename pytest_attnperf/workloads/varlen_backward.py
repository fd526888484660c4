"""The backward pass of attention over sequences of several lengths, packed end to end without padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import attention_gradients, attention_math, planted_keys, sequence_lengths
from pytest_attnperf.workloads.backward import DTYPES, Backward
from pytest_attnperf.workloads.fields import require_grouped_heads, require_head_dim
from pytest_attnperf.workloads.sequence_lengths import OFFSET_BYTES, PackedSequences

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

_LSE_BYTES = 4


@dataclass(frozen=True)
class VarlenBackward(PackedSequences):
    """One backward pass over packed sequences; id e.g. `varlen_backward-q63_1000-h8-hk2-d64-f16-causal`.

    dtype      'f32', 'f16' or 'bf16': inputs (but for lse and the offsets) and outputs
    causal     a row that sees no key has out = 0, lse = -inf, and zero gradients. For further fields see
               `PackedSequences`
    cold       timed with inputs that are in no cache; hot otherwise

    Inputs are (q, k, v, dout, out, lse, cu_seqlens_q, cu_seqlens_k): q, dout and out (Tq, H, D), k and v (Tk, Hk, D),
    contiguous, lse (H, Tq) in fp32, and the offsets of the sequences in the packed rows, (B + 1,) int32 from 0 to Tq
    and Tk. This is the layout of flash_attn_varlen_func (flash-attention 2.7). Outputs are 'dq' (Tq, H, D), 'dk' and
    'dv' (Tk, Hk, D).

    Raises WorkloadError naming the field for lengths that are not positive integers, different numbers of sequences in
    seqs_q and seqs_kv, heads that kv_heads does not divide, another dtype, and too large a head_dim. Also raises it if
    no sequence has two keys or more, because dq and dk would then be zero everywhere.
    """

    grammar = sequence_lengths.make_grammar(
        "varlen_backward", flags=("causal", "cold"), dtypes=DTYPES, unsaid=("cold",)
    )

    packed_inputs = (("q", 0), ("kv", 0), ("kv", 0), ("q", 0), ("q", 0), ("q", 1))
    packed_outputs: ClassVar[Mapping[str, tuple[str, int]]] = {"dq": ("q", 0), "dk": ("kv", 0), "dv": ("kv", 0)}

    cold: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_lengths()
        require_grouped_heads("varlen_backward", self.heads, self.kv_heads)
        require_head_dim("varlen_backward", self.head_dim)
        if max(self.seqs_kv) == 1:
            raise WorkloadError(
                "varlen_backward workload: seqs_kv must hold a length of at least 2, got only 1: a single key has the "
                "weight 1 whatever q and k are, so dq and dk are zero everywhere and prove nothing"
            )

    @property
    def sequences(self) -> tuple[Backward | None, ...]:
        """Every sequence alone, with batch 1; None for one with a single key, which `Backward` does not allow."""
        fields = {name: getattr(self, name) for name in ("heads", "head_dim", "kv_heads", "dtype", "causal")}
        return tuple(
            Backward(batch=1, seq_q=seq_q, seq_kv=seq_kv, **fields) if seq_kv > 1 else None
            for seq_q, seq_kv in zip(self.seqs_q, self.seqs_kv, strict=True)
        )

    @property
    def visible_pairs(self) -> int:
        """Number of (query, key) pairs of one head that the masks let through, over all sequences."""
        # The last row of a sequence sees its single key, and where there is no mask the others do too.
        alone = (1 if self.causal else seq_q for seq_q in self.seqs_q)
        return sum(one.visible_pairs if one else pairs for one, pairs in zip(self.sequences, alone, strict=True))

    @property
    def flops(self) -> float:
        """FLOPs: 10 head_dim per visible (query, key) pair and head, over all sequences, as in `Backward`."""
        return float(10 * self.head_dim * self.visible_pairs * self.heads)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: q, k, v, out, dout, lse (fp32) and both offsets (int32) read once; dq, dk and dv written
        once."""
        rows, keys = sum(self.seqs_q) * self.heads, sum(self.seqs_kv) * self.kv_heads
        tensors = 4 * (rows + keys) * self.head_dim * self.element_bytes
        return float(tensors + rows * _LSE_BYTES + 2 * (self.batch + 1) * OFFSET_BYTES)

    def _conventions(self) -> dict[str, Any]:
        return {"scale": "1/sqrt(head_dim)", "mask_alignment": "bottom-right" if self.causal else "none"}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Makes (q, k, v, dout, out, lse, cu_seqlens_q, cu_seqlens_k) on `device`: the first four from N(0, 1). out and
        lse come from the exact forward pass. With `planted`, single keys are made to dominate rows in every sequence,
        each with its own seed."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        query_shape = (sum(self.seqs_q), self.heads, self.head_dim)
        key_shape = (sum(self.seqs_kv), self.kv_heads, self.head_dim)
        q, k, v, dout = (
            torch.randn(shape, generator=generator, device=device)
            for shape in (query_shape, key_shape, key_shape, query_shape)
        )
        if planted:
            for number, (rows, keys) in enumerate(self.iterate_slices()):
                planted_keys.plant_keys(q[None, rows], k[None, keys], causal=self.causal, seed=seed + number)
        stored = (tensor.to(self.stored_as) for tensor in (q, k, v, dout))
        return (*self._with_forward(*stored), *self._make_offsets(device))

    def _with_forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor) -> Tensors:
        import torch

        out, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0], device=q.device)
        problem = attention_math.AttentionProblem(self.causal, lse=True)
        for rows, keys in self.iterate_slices():
            forward = attention_math.compute_reference(q[None, rows], k[None, keys], v[None, keys], problem)
            out[rows], lse[:, rows] = forward["out"][0].to(q.dtype), forward["lse"][0].float()
        return q, k, v, dout, out, lse

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes dq, dk and dv from q, k, v and dout alone: in fp64 (on a GPU for f16 and bf16: fp32)."""
        q, k, v, dout, *_ = inputs
        return self._join_gradients(
            attention_gradients.compute_reference(
                q[None, rows], k[None, keys], v[None, keys], dout[None, rows], causal=self.causal
            )
            for rows, keys in self.iterate_slices()
        )

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes dq, dk and dv in the workload's dtype, rounded where autograd of eager attention rounds."""
        return self._compute_plain(inputs, wide_dp=False)

    def plain_otherwise(self, inputs: Tensors) -> tuple[Outputs, ...]:
        """Computes dq, dk and dv with dP left unrounded, as kernels do; () for f32, where nothing is rounded."""
        return () if self.dtype == "f32" else (self._compute_plain(inputs, wide_dp=True),)

    def _compute_plain(self, inputs: Tensors, *, wide_dp: bool) -> Outputs:
        q, k, v, dout, out, lse, *_ = inputs
        return self._join_gradients(
            attention_gradients.compute_plain(
                *(q[None, rows], k[None, keys], v[None, keys], dout[None, rows], out[None, rows], lse[None, :, rows]),
                causal=self.causal,
                wide_dp=wide_dp,
            )
            for rows, keys in self.iterate_slices()
        )

    @staticmethod
    def _join_gradients(of_sequences: Iterator[Outputs]) -> Outputs:
        """Joins the gradients of the sequences, each of batch 1, end to end along the rows; returns them by name."""
        import torch

        found = list(of_sequences)
        return {name: torch.cat([one[name][0] for one in found]) for name in found[0]}
