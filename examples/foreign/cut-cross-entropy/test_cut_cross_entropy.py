"""What cut-cross-entropy's loss of a linear layer, without its logits, computes, and how long it takes."""

from __future__ import annotations

import pytest
import torch
from foreign import TRITON, classes, normal, sizes
from torch.nn import functional as F

from pytest_attnperf.records import Tolerance

cce = pytest.importorskip("cut_cross_entropy", reason="cut-cross-entropy is not installed")

pytestmark = TRITON
HALF = sizes(torch.bfloat16, torch.float16)  # its backward takes no fp32, and bf16 cannot be interpreted
SUMMED_IN_BF16 = Tolerance(
    multiplier=4.0,
    source="both gradients are summed over blocks of the vocabulary in their own type (cce_backward.py of 25.1.1): on "
    "an H200 2.7 times the rms error of a plain computation in bf16, over 32,000 classes",
)
SHAPES = sizes([(2048, 1024, 32000), (1000, 576, 5003)], [(32, 64, 200)])


def loss_inputs(rows, width, count):
    return normal(rows, width, dtype=HALF), normal(count, width, dtype=HALF, scale=width**-0.5), classes(rows, count)


def plain_loss(x, w, target, softcap=None):
    logits = (x @ w.T).float()
    return F.cross_entropy(logits if softcap is None else softcap * (logits / softcap).tanh(), target)


@pytest.mark.parametrize("times", ["forward", "backward", "both"])
@pytest.mark.parametrize(("rows", "width", "count"), SHAPES)
def test_linear_cross_entropy(attnperf, rows, width, count, times):
    attnperf.gate(
        "cce.linear_cross_entropy",
        lambda x, w, target: cce.linear_cross_entropy(x, w, target, filter_eps=None),
        reference=plain_loss,
        inputs=lambda: loss_inputs(rows, width, count),
        backward=True,
        tolerance=SUMMED_IN_BF16,
        host_sync=True,  # it counts the rows that have a class
        times=times,
    )


@pytest.mark.parametrize(("rows", "width", "count"), SHAPES)
def test_gradients_that_vanish_are_left_out(attnperf, rows, width, count):
    """As it is called by default: what bf16 would round away is not computed."""
    attnperf.gate(
        "cce.filtered",
        lambda x, w, target: cce.linear_cross_entropy(x, w, target),
        reference=plain_loss,
        inputs=lambda: loss_inputs(rows, width, count),
        backward=True,
        tolerance=SUMMED_IN_BF16,
        host_sync=True,  # it counts the rows that have a class
    )


@pytest.mark.parametrize(("rows", "width", "count"), SHAPES)
def test_softcapped(attnperf, rows, width, count):
    attnperf.gate(
        "cce.softcapped",
        lambda x, w, target: cce.linear_cross_entropy(x, w, target, softcap=30.0, filter_eps=None),
        reference=lambda x, w, target: plain_loss(x, w, target, 30.0),
        inputs=lambda: loss_inputs(rows, width, count),
        backward=True,
        tolerance=SUMMED_IN_BF16,
        host_sync=True,  # it counts the rows that have a class
    )
