"""What liger-kernel's losses compute, forward and backward, and how long they take."""

from __future__ import annotations

import pytest
import torch
from foreign import TRITON, classes, normal, sizes
from torch.nn import functional as F

pytest.importorskip("liger_kernel", reason="liger-kernel is not installed")

from liger_kernel.transformers import functional as liger

pytestmark = TRITON
LOGITS = sizes([(2048, 32000), (2048, 1000)], [(16, 512), (9, 100)])


def log_probabilities(rows: int, count: int) -> torch.Tensor:
    return F.log_softmax(normal(rows, count, dtype=torch.float32), dim=-1)


@pytest.mark.parametrize("times", ["forward", "both"])
@pytest.mark.parametrize(("rows", "count"), LOGITS)
def test_cross_entropy(attnperf, rows, count, times):
    """Forward counts the targets on the host, and leaves the gradient where the logits were."""
    attnperf.gate(
        "liger.cross_entropy",
        liger.liger_cross_entropy,
        reference=lambda logits, target: F.cross_entropy(logits, target),
        inputs=lambda: (normal(rows, count, dtype=torch.float32), classes(rows, count)),
        backward=True,
        times=times,
        in_place=("logits",),
        host_sync=True,
    )


@pytest.mark.skip(
    reason="liger-kernel 0.8.5 computes no gradient of the weight where the input needs none: weight.grad stays None"
)
@pytest.mark.parametrize(("rows", "hidden", "count"), sizes([(2048, 1024, 32000)], [(16, 32, 100)]))
def test_fused_linear_cross_entropy(attnperf, rows, hidden, count):
    """Chunks of rows are summed in fp32, as Liger offers: in bf16 the weight's gradient loses bits with every chunk."""
    attnperf.gate(
        "liger.fused_linear_cross_entropy",
        lambda x, w, target: liger.liger_fused_linear_cross_entropy(x, w, target, accum_dtype=torch.float32),
        reference=lambda x, w, target: F.cross_entropy((x @ w.T).float(), target),
        inputs=lambda: (normal(rows, hidden), normal(count, hidden, scale=hidden**-0.5), classes(rows, count)),
        backward=True,
        host_sync=True,
    )


@pytest.mark.parametrize(("rows", "count"), LOGITS)
def test_kl_divergence(attnperf, rows, count):
    """Of a student from a teacher, who gets no gradient. Backward looks on the host whether the incoming one is 1."""
    attnperf.gate(
        "liger.kl_div",
        lambda student, teacher: liger.liger_kl_div(student, teacher, reduction="batchmean", log_target=True),
        reference=lambda student, teacher: F.kl_div(student, teacher.detach(), reduction="batchmean", log_target=True),
        inputs=lambda: (log_probabilities(rows, count), log_probabilities(rows, count)),
        backward=True,
        host_sync=True,
    )


def plain_jensen_shannon(student, teacher):
    p, q = student.exp(), teacher.detach().exp()
    middle = ((p + q) / 2).log()
    return ((p * (student - middle) + q * (teacher.detach() - middle)) / 2).sum() / student.shape[0]


@pytest.mark.parametrize(("rows", "count"), LOGITS)
def test_jensen_shannon_divergence(attnperf, rows, count):
    """Backward looks on the host whether the incoming gradient is 1."""
    attnperf.gate(
        "liger.jsd",
        liger.liger_jsd,
        reference=plain_jensen_shannon,
        inputs=lambda: (log_probabilities(rows, count), log_probabilities(rows, count)),
        backward=True,
        host_sync=True,
    )
