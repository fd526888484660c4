"""Third stage of unfused attention: weights = softmax of the rows of fp32 scores, some of which may be -inf."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import attention_stages
from pytest_attnperf.workloads.attention_stages import SCORE_BYTES, AttentionStage
from pytest_attnperf.workloads.row_shape import list_edges
from pytest_attnperf.workloads.softmax import FLOPS_PER_ELEMENT, MARGIN, SHIFT

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors


@dataclass(frozen=True, kw_only=True)
class RowSoftmax(AttentionStage):
    """Softmax of rows of scores; id e.g. `row_softmax-b1-s512-h8-f16-causal`. Fields as `AttentionStage`.

    dtype     of the weights
    causal    scores that a causal mask hides are -inf, so a kernel need not read them. A row that sees no key has
              weights of exactly 0, as in `Prefill` it has an output of 0

    Input is (scores,), (B, H, Sq, Skv) in fp32, contiguous. Output is 'weights', (B, H, Sq, Skv) in the dtype, all of
    them. A single key raises WorkloadError: its weight is 1 whatever its score.
    """

    grammar = attention_stages.make_grammar("row_softmax", flags=("causal",))

    causal: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seq_kv < 2:
            raise WorkloadError(
                f"row_softmax workload: seq_kv must be at least 2, got {self.seq_kv}: the weight of a single key is "
                "the same whatever its score, and proves nothing"
            )

    @property
    def visible_pairs(self) -> int:
        """Number of pairs whose score is not -inf, over all heads of all sequences."""
        return self.causal_pairs if self.causal else self.pairs

    @property
    def flops(self) -> float:
        """FLOPs: 5 per visible pair, as for `Softmax`: compare, subtract, exponential, add, divide."""
        return float(FLOPS_PER_ELEMENT * self.visible_pairs)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: visible scores read once, all weights written once."""
        return float(self.visible_pairs * SCORE_BYTES + self.pairs * self.element_bytes)

    def _conventions(self) -> dict[str, Any]:
        return {"mask_alignment": "bottom-right" if self.causal else "none"}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Draws (scores,) from N(0, 1). With `planted` one key of every row that sees any holds 0.8 of the weight: the
        last one it sees, or one at an edge of a tile. Rows are also shifted by 100, 0 and -100 in turn, beyond what exp
        holds in fp32."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        return (draw_scores(self, generator, seed, causal=self.causal, planted=planted),)

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'weights' in fp64 (on a GPU for 16-bit weights: fp32); one sequence at a time."""
        import torch

        wide = inputs[0].device.type == "cpu" or self.dtype == "f32"
        dtype = torch.float64 if wide else torch.float32
        weights = _compute_by_sequence(
            self, inputs[0], dtype, self.causal, lambda part: torch.softmax(part.to(dtype), dim=-1)
        )
        return {"weights": weights}

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'weights' by torch.softmax in fp32, the dtype of scores, and rounds once to the workload's dtype."""
        return {"weights": compute_plain_weights(self, inputs[0], causal=self.causal)}


def draw_scores(
    stage: AttentionStage, generator: torch.Generator, seed: int, *, causal: bool, planted: bool
) -> torch.Tensor:
    """Draws scores (B, H, Sq, Skv) in fp32 from N(0, 1) for any stage of that shape; with `causal`, hidden ones are
    -inf. With `planted`, one key holds 0.8 of each row's weight."""
    import torch

    shape = (stage.batch, stage.heads, stage.seq_q, stage.seq_kv)
    scores = torch.randn(shape, generator=generator, device=generator.device)
    if planted:
        _plant_scores(stage, scores, seed, causal)
    if causal:
        scores.masked_fill_(stage.hidden_keys(scores.device), float("-inf"))
    return scores


def compute_plain_weights(stage: AttentionStage, scores: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """Returns softmax of fp32 scores (B, H, Sq, Skv) in the stage's dtype; causal rows that see no key are 0."""
    import torch

    return _compute_by_sequence(stage, scores, stage.stored_as, causal, lambda part: torch.softmax(part, dim=-1))


def _compute_by_sequence(
    stage: AttentionStage,
    scores: torch.Tensor,
    dtype: torch.dtype,
    causal: bool,
    compute: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    import torch

    weights = torch.empty(scores.shape, dtype=dtype, device=scores.device)
    for b in range(stage.batch):
        weights[b] = compute(scores[b])
    if causal:
        weights[:, :, : max(0, stage.seq_q - stage.seq_kv)] = 0.0  # rows that see no key, whose softmax is 0 / 0
    return weights


def _plant_scores(stage: AttentionStage, scores: torch.Tensor, seed: int, causal: bool) -> None:
    """Sets one score of each row, in place, so that it gets 0.8 of the row's weight: in turn that of the last key it
    sees and of tile edges before it. Under a causal mask every other row takes the last key it sees, because few rows
    see the last keys of all. Rows are then shifted by SHIFT, 0 and -SHIFT in turn."""
    import torch

    rows = torch.arange(stage.batch * stage.heads * stage.seq_q, device=scores.device)
    seen = torch.full_like(rows, stage.seq_kv)
    if causal:
        seen = rows % stage.seq_q + 1 + (stage.seq_kv - stage.seq_q)
    places = torch.tensor(list_edges(stage.seq_kv), device=scores.device)
    before = torch.searchsorted(places, (seen - 1).clamp(min=0))  # how many edges are before the last key seen
    turn = (rows + random.Random(seed).randrange(len(places))) % (before + 1)
    if causal:
        turn *= (rows % stage.seq_q + rows // stage.seq_q + seed) % 2
    key = torch.where(turn == 0, seen - 1, places[(turn - 1).clamp(min=0)]).clamp(min=0)
    flat = scores.view(-1, stage.seq_kv)
    # The expected sum of the others' exponentials is n exp(1/2).
    flat[rows, key] = seen.clamp(min=1).log() + 0.5 + MARGIN
    flat += ((rows + seed) % 3 - 1)[:, None] * SHIFT
