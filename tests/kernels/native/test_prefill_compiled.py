from __future__ import annotations

from collections.abc import Callable

import pytest

from kernels.native.prefill_compiled import Compiled, Flex, compiled
from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.prefill import Prefill

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
CUDA = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
ON_GPU = (
    "prefill-b2-s63-h4-d64-f16-causal",
    "prefill-b1-s128-kv512-h4-hk2-d128-bf16-causal",
    "prefill-b1-s257-h2-d64-f16",
)


@pytest.mark.parametrize("backend", [Flex("native.flex"), Compiled("native.compiled")], ids=lambda b: b.name)
def test_neither_is_offered_on_a_cpu(backend: Flex | Compiled) -> None:
    """On a CPU both say that Inductor would need a C++ compiler."""
    (reason,) = backend.unsupported_reasons(Prefill.parse("prefill-b1-s8-h2-d64-f16"), CPU)
    assert reason.startswith(f"{backend.name} is compiled by Inductor and offered on GPUs only")


def test_flex_says_that_it_gives_no_lse() -> None:
    """A log-sum-exp workload is refused by flex with the reason, and taken by the compiled plain form."""
    workload = Prefill.parse("prefill-b1-s8-h2-d64-f16-lse")
    assert Flex("native.flex").unsupported_reasons(workload, CUDA) == [
        "native.flex gives no log-sum-exp: FlexAttention's argument for it differs between releases"
    ]
    assert Compiled("native.compiled").unsupported_reasons(workload, CUDA) == []


def test_every_workload_has_a_code_object_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo's limit of compiled variants counts per code object, so two workloads never share one."""
    torch = pytest.importorskip("torch")
    seen = []

    def compile_nothing(function: Callable[..., object], **options: object) -> Callable[..., object]:
        seen.append((function.__code__, options))
        return function

    def double(x: float) -> float:
        return 2 * x

    monkeypatch.setattr(torch, "compile", compile_nothing)
    assert [compiled(double)(3.0), compiled(double)(4.0)] == [6.0, 8.0]
    assert seen[0][0] is not seen[1][0]
    assert seen[0][1] == {"dynamic": False, "fullgraph": True}


@pytest.mark.gpu
@pytest.mark.parametrize("backend", [Flex("native.flex"), Compiled("native.compiled")], ids=lambda b: b.name)
@pytest.mark.parametrize("text", ON_GPU)
def test_right_on_a_gpu_and_compiled_once(
    backend: Flex | Compiled, text: str, assert_right: Callable[[Prefill, Tensors, Outputs], None]
) -> None:
    """The compiled call is right, and neither a repetition nor inference mode compiles it again."""
    import torch
    from torch._dynamo.utils import counters

    workload = Prefill.parse(text)
    inputs = workload.make_inputs(1, "cuda", planted=True)
    prepared = backend.prepare(workload, inputs)
    before = counters["stats"]["unique_graphs"]
    assert_right(workload, inputs, prepared.outputs(prepared.run()))
    with torch.inference_mode():
        prepared.run()
    assert counters["stats"]["unique_graphs"] == before
