"""Second stage of unfused attention: -inf for the scores of keys that a row does not see, in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import attention_stages
from pytest_attnperf.workloads.attention_stages import SCORE_BYTES, AttentionStage
from pytest_attnperf.workloads.precision import reference_dtype

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.base import InPlace


@dataclass(frozen=True, kw_only=True)
class CausalMask(AttentionStage):
    """A causal mask over scores; id e.g. `causal_mask-b1-s512-kv600-h8-f32`. Fields as `AttentionStage`.

    dtype    'f32' only: the dtype of scores

    Input is (scores,), (B, H, Sq, Skv) in fp32, contiguous. A call writes -inf where key j > i + Skv - Sq, and changes
    nothing else; output is 'scores', the same tensor. Raises WorkloadError also for a single query, which has nothing
    to hide: the last row sees all keys.
    """

    grammar = attention_stages.make_grammar("causal_mask", dtypes=("f32",))

    dtype: str = "f32"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seq_q < 2:
            raise WorkloadError(
                f"causal_mask workload: seq_q must be at least 2, got {self.seq_q}: the last row sees all keys, so "
                "a single row has nothing to hide"
            )

    @property
    def non_finite_outputs(self) -> frozenset[str]:
        """{'scores'}: the output must be -inf exactly where a key is hidden."""
        return frozenset({"scores"})

    @property
    def in_place(self) -> InPlace:
        """Inputs that a call may write to: number 0, the scores, in all elements."""
        return {0: _view_whole}

    @property
    def hidden_pairs(self) -> int:
        """Number of (query, key) pairs that the mask hides, over all heads of all sequences."""
        return self.pairs - self.causal_pairs

    @property
    def flops(self) -> float:
        """FLOPs: 1 per hidden pair, although nothing is computed: size limits count operations."""
        return float(self.hidden_pairs)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: hidden scores written once; nothing needs to be read."""
        return float(self.hidden_pairs * SCORE_BYTES)

    def _conventions(self) -> dict[str, Any]:
        return {"mask_alignment": "bottom-right"}

    unplanted: ClassVar[str] = "every score is compared"
    """Why `planted` changes no input, for the name of the check."""

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Makes (scores,) from N(0, 1). `planted` changes nothing: every score is compared, so one hidden or left by
        mistake shows anyway."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        shape = (self.batch, self.heads, self.seq_q, self.seq_kv)
        return (torch.randn(shape, generator=generator, device=device),)

    def reference(self, inputs: Tensors) -> Outputs:
        """Returns 'scores' in the dtype of references (fp64 for fp32 input), with -inf where a key is hidden."""
        return {"scores": self._mask_hidden(inputs[0].to(reference_dtype(inputs)))}

    def plain(self, inputs: Tensors) -> Outputs:
        """Returns 'scores', a copy of the input with -inf where a key is hidden, in fp32."""
        return {"scores": self._mask_hidden(inputs[0].clone())}

    def _mask_hidden(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill_(self.hidden_keys(scores.device), float("-inf"))


def _view_whole(scores: torch.Tensor) -> torch.Tensor:
    return scores
