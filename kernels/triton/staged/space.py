"""The configuration spaces of the staged pipeline's kernels. Names and values only, no Triton.

BLOCK_M, BLOCK_N and BLOCK_K are rows, columns and steps of a kernel's own product: in weighted_values, BLOCK_N counts
dimensions and BLOCK_K keys.
"""

from __future__ import annotations

from kernels.configs import Space

_PRODUCT = {"BLOCK_M": int, "BLOCK_N": int, "BLOCK_K": int}

QK_SCORES = Space("staged_qk_scores", _PRODUCT, ("head_dim", "element_bits", "pairs"))
"""pairs: B * H * Sq * Skv, the work to distribute over multiprocessors."""

CAUSAL_MASK = Space("staged_causal_mask", {"BLOCK_M": int, "BLOCK_N": int}, ("columns",))
"""columns: Skv."""

ROW_SOFTMAX = Space("staged_row_softmax", {"BLOCK_R": int, "BLOCK_C": int}, ("columns", "element_bits"))
"""element_bits: of the weights; scores are fp32."""

WEIGHTED_VALUES = Space("staged_weighted_values", _PRODUCT, ("head_dim", "element_bits", "rows"))
"""rows: B * H * Sq."""

SPACES = (QK_SCORES, CAUSAL_MASK, ROW_SOFTMAX, WEIGHTED_VALUES)
