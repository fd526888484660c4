"""Sizes at which unfused attention is timed stage by stage, and compared with fused kernels.

Lines of the family `prefill`; the workloads of the stages are made from them.
"""

from __future__ import annotations

from typing import Any

from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.row_softmax import RowSoftmax
from pytest_attnperf.workloads.weighted_values import WeightedValues

STAGED_SMALL = [Prefill.parse_line("b=1,s=80,h=4,hk=2,d=64,f16,causal")]
"""Ragged and on grouped heads: small enough for the emulator and for Triton's interpreter."""

STAGED_LARGE = [
    Prefill.parse_line(line) for line in ("b=1,s=512,h=8,d=64,f16,causal", "b=1,s=2048,h=32,hk=8,d=128,bf16,causal")
]
"""HIP attention deep dive's size, and half a prompt of Llama 3 8B."""

STAGED = [*STAGED_SMALL, *STAGED_LARGE]


def _shape(prefill: Prefill, *further: str) -> dict[str, Any]:
    """Returns the fields that every stage takes from a prefill, plus the `further` ones."""
    return {name: getattr(prefill, name) for name in ("batch", "seq_q", "heads", *further)}


PRODUCT = ("kv_heads", "head_dim", "dtype")
QK_SCORES = [QkScores(**_shape(prefill, *PRODUCT)) for prefill in STAGED]
CAUSAL_MASKS = [CausalMask(**_shape(prefill)) for prefill in STAGED]
ROW_SOFTMAXES = [RowSoftmax(**_shape(prefill, "dtype", "causal")) for prefill in STAGED]
WEIGHTED_VALUES = [WeightedValues(**_shape(prefill, *PRODUCT, "causal")) for prefill in STAGED]
"""The four stages of each."""
