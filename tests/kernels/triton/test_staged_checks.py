"""What the launchers of the staged pipeline refuse, by name, value and what is allowed. Nothing is launched."""

from __future__ import annotations

import pytest

from kernels.triton.staged.checks import KEYS_MAX, head_step, require_attention, require_matrix, require_values
from pytest_attnperf.errors import UsageError

torch = pytest.importorskip("torch")

Q, K = torch.zeros(1, 3, 4, 8), torch.zeros(1, 5, 2, 8)
WEIGHTS = torch.zeros(1, 4, 3, 5)


def test_what_fits_gives_its_sizes() -> None:
    """Sizes come in the order that the docstrings say, for views of whole heads too."""
    assert require_attention("f", Q, K) == (1, 3, 4, 8)
    assert require_attention("f", torch.zeros(1, 3, 6, 8)[:, :, :4], K) == (1, 3, 4, 8)
    assert require_values("f", WEIGHTS, K) == (1, 4, 3, 5)
    assert require_matrix("f", "scores", WEIGHTS, ("float32",)) == (1, 4, 3, 5)


def test_scores_that_no_kernel_reads_are_refused() -> None:
    """Another shape, strides, dtype, and more keys than a tile can address are each named."""
    with pytest.raises(UsageError, match=r"f: scores must be \(B, H, Sq, Skv\) .* got shape \(4, 3, 5\)"):
        require_matrix("f", "scores", WEIGHTS[0], ("float32",))
    with pytest.raises(UsageError, match=r"f: scores must be contiguous, got strides \(60, 15, 1, 3\)"):
        require_matrix("f", "scores", torch.zeros(1, 4, 5, 3).transpose(2, 3), ("float32",))
    with pytest.raises(UsageError, match="f: scores must be float32, got float64"):
        require_matrix("f", "scores", WEIGHTS.double(), ("float32",))
    long = torch.empty(1, 1, 1, KEYS_MAX + 1, device="meta")
    with pytest.raises(UsageError, match=rf"f: Skv is {KEYS_MAX + 1}; it must be at most {KEYS_MAX}"):
        require_matrix("f", "scores", long, ("float32",))


def test_tokens_that_do_not_go_together_are_refused() -> None:
    """Shape, dtype, head dimension, strides within a head and heads that do not divide are each named."""
    with pytest.raises(UsageError, match=r"f: q must be \(batch, tokens, heads, .* got shape \(3, 4, 8\)"):
        require_attention("f", Q[0], K)
    with pytest.raises(UsageError, match="f: q must be one of float32, float16, bfloat16, got float64"):
        require_attention("f", Q.double(), K)
    with pytest.raises(UsageError, match=r"f: k must have dtype torch.float32, got torch.float16"):
        require_attention("f", Q, K.half())
    with pytest.raises(UsageError, match=r"f: k must have shape \(1, 5, 2, 8\), got \(1, 5, 2, 7\)"):
        require_attention("f", Q, K[..., :7])
    with pytest.raises(UsageError, match="f: k has 3 heads; they must divide the 4 of the rows"):
        require_attention("f", Q, torch.zeros(1, 5, 3, 8))
    with pytest.raises(UsageError, match="f: q has head dimension 257; it must be 1 to 256"):
        require_attention("f", torch.zeros(1, 1, 1, 257), K)
    with pytest.raises(UsageError, match=r"f: v must have the elements of a head beside each other, got strides"):
        require_values("f", WEIGHTS, torch.zeros(1, 5, 8, 2).transpose(2, 3))
    with pytest.raises(UsageError, match=r"f: v must have shape \(1, 5, 2, 8\), got \(1, 4, 2, 8\)"):
        require_values("f", WEIGHTS, K[:, :4])


def test_the_dtype_of_weights_is_checked() -> None:
    """row_softmax names the dtypes that weights may have."""
    pytest.importorskip("triton")
    from kernels.triton.staged.row_softmax import row_softmax

    config = {"BLOCK_R": 1, "BLOCK_C": 16}
    with pytest.raises(UsageError, match="row_softmax: dtype must be one of float32, float16, bfloat16, got int8"):
        row_softmax(WEIGHTS, dtype=torch.int8, causal=False, with_lse=False, config=config)


@pytest.mark.parametrize(("head_dim", "block", "step"), [(16, 64, 16), (40, 128, 64), (128, 64, 64), (2, 32, 16)])
def test_a_step_covers_no_more_than_the_head(head_dim: int, block: int, step: int) -> None:
    """What a configuration asks for, unless the padded head dimension is less."""
    assert head_step(head_dim, block) == step
