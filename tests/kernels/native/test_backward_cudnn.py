"""cuDNN's backward pass: what it does not compute is refused, the operators get what they take, and it is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.native.backward_cudnn import BACKENDS
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.backward import Backward
from tests.kernels.judging import find_wrong_calls

(CUDNN,) = BACKENDS
CUDA = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
CASES = (
    "backward-b2-s65-h4-hk2-d64-bf16-causal",
    "backward-b1-s33-kv70-h2-d128-f16",
    "backward-b1-s256-h2-d128-bf16-causal",
    "backward-b1-s256-h2-d256-f16",
)


@pytest.mark.parametrize(
    ("text", "device", "reason"),
    [
        ("backward-b1-s8-h2-d64-f16", DeviceInfo("cpu", "cpu-x86_64", "cpu"), "cuDNN is built for CUDA"),
        ("backward-b1-s8-h2-d64-f16", DeviceInfo("rocm", "gfx942", "mi300x"), "this device is rocm"),
        ("backward-b1-s8-h2-d64-f32", CUDA, "takes bf16, f16, not f32"),
        ("backward-b1-s8-h2-d264-f16", CUDA, "head dimensions to 256 that are multiples of 8, not 264"),
        ("backward-b1-s8-h2-d59-f16", CUDA, "head dimensions to 256 that are multiples of 8, not 59"),
        ("backward-b1-s8-kv9-h2-d64-f16-causal", CUDA, "top-left causal mask, this workload a bottom-right one over 8"),
    ],
)
def test_what_it_does_not_compute_is_refused(text: str, device: DeviceInfo, reason: str) -> None:
    """Each refusal says what the operator takes, and what the workload has."""
    (found,) = CUDNN.unsupported_reasons(Backward.parse(text), device)
    assert reason in found


def test_the_operators_get_views_of_the_canonical_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forward operator's out and log-sum-exp go to the backward one, (B, H, S, D), and gradients come back
    canonical."""
    given: dict[str, Any] = {}

    def forward(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        given["forward"] = rest
        return (q + 1.0, torch.ones(2, 4, 8), None, None, 8, 12, torch.zeros(1), torch.zeros(1), None)

    def backward(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *rest: Any) -> Any:
        given["backward"] = (dout.shape, out, lse, rest)
        return q, k, v

    aten = torch.ops.aten
    monkeypatch.setattr(aten, "_scaled_dot_product_cudnn_attention", forward, raising=False)
    monkeypatch.setattr(aten, "_scaled_dot_product_cudnn_attention_backward", backward, raising=False)
    workload = Backward.parse("backward-b2-s8-kv12-h4-hk2-d16-f16")
    prepared = CUDNN.prepare(workload, workload.make_inputs(0, "cpu", planted=False))
    outputs = prepared.outputs(prepared.run())
    q, k, v, *_ = prepared.tensors
    assert (q.shape, k.shape, v.shape) == ((2, 4, 8, 16), (2, 2, 12, 16), (2, 2, 12, 16))
    assert q.transpose(1, 2).is_contiguous()
    assert given["forward"] == (None, True, 0.0, False, False)
    shape, out, lse, rest = given["backward"]
    assert shape == (2, 4, 8, 16)
    assert torch.equal(out, q + 1.0)
    assert lse.shape == (2, 4, 8)
    assert rest[2:] == (None, None, None, 8, 12, 0.0, False)
    assert {name: tuple(one.shape) for name, one in outputs.items()} == {
        "dq": (2, 8, 4, 16),
        "dk": (2, 12, 2, 16),
        "dv": (2, 12, 2, 16),
    }


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_right_on_a_gpu(case: str) -> None:
    """The operator is within budget: causal, grouped heads, more keys than queries."""
    assert find_wrong_calls(CUDNN, Backward.parse(case), "cuda") == ()
