from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    "prefill-b1-s257-h4-hk2-d64-w40-bf16-causal",
    "prefill-b1-s257-kv130-h2-d64-f16-causal",
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


@pytest.mark.parametrize("backend", [Flex("native.flex"), Compiled("native.compiled")], ids=lambda b: b.name)
@pytest.mark.parametrize("dtype", ["f8e4m3", "i8"])
def test_8_bits_are_refused(backend: Flex | Compiled, dtype: str) -> None:
    """Neither computes an 8-bit workload, and the reason names the dtype; windows and rows without keys they take."""
    taken = "prefill-b1-s8-kv5-h2-d64-w3-tf32-causal"
    assert backend.unsupported_reasons(Prefill.parse(taken), CUDA) == []
    assert backend.unsupported_reasons(Prefill.parse(f"prefill-b1-s8-h2-d64-{dtype}"), CUDA) == [
        f"{backend.name} takes bf16, f16, f32, tf32, not {dtype}"
    ]


def compile_nothing(function: Callable[..., object], **options: object) -> Callable[..., object]:
    """In place of torch.compile."""
    return function


@pytest.mark.parametrize("text", ["s33-kv40-h4-hk2-d32-w7-f32-causal", "s40-kv33-h4-d32-bf16-causal", "s40-h2-d32-f16"])
def test_what_is_compiled_is_right(
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    assert_right: Callable[[Prefill, Tensors, Outputs], None],
) -> None:
    """The function handed to torch.compile is right by itself, and both backends declare compiled kernels only."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "compile", compile_nothing)
    workload = Prefill.parse(f"prefill-b1-{text}")
    inputs = workload.make_inputs(1, "cpu", planted=True)
    prepared = Compiled("native.compiled").prepare(workload, inputs)
    assert_right(workload, inputs, prepared.outputs(prepared.run()))
    assert prepared.declares.kernels == ("triton_",)
    assert prepared.declares.never == ("scaled_dot_product",)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Operators of each graph that torch.compile makes, as Inductor would lower them; nothing is lowered."""
    torch = pytest.importorskip("torch")
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes

    seen: list[list[str]] = []
    compile_really = torch.compile

    def keep(graph: Any, inputs: Any) -> Any:
        joint_graph_passes(graph)
        seen.append([str(node.target) for node in graph.graph.nodes])
        return make_boxed_func(graph.forward)

    def compile_to_graph(function: Any, **options: Any) -> Any:
        backend = aot_autograd(fw_compiler=keep, inference_compiler=keep, decompositions=select_decomp_table())
        return compile_really(function, backend=backend, **options)

    monkeypatch.setattr(torch, "compile", compile_to_graph)
    return seen


@pytest.mark.parametrize("text", ["s16-h2-d16-f32", "s16-h2-d16-f32-causal", "s16-h4-hk2-d16-f32-lse"])
def test_inductor_finds_no_attention_to_replace(text: str, graphs: list[list[str]]) -> None:
    """After Inductor's own passes the graph is still two products, not scaled_dot_product_attention."""
    workload = Prefill.parse(f"prefill-b1-{text}")
    Compiled("native.compiled").prepare(workload, workload.make_inputs(1, "cpu", planted=True))
    (operators,) = graphs
    assert operators.count("aten.bmm.default") == 2
    assert not any("scaled_dot_product" in operator for operator in operators)


def test_inductor_replaces_attention_where_the_scale_is_a_number(graphs: list[list[str]]) -> None:
    """What the test above looks for does happen to the plain form, so that it can fail."""
    import torch

    def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * 0.25, dim=-1) @ v

    compiled(plain)(*(torch.randn(1, 2, 16, 16) for _ in range(3)))
    (operators,) = graphs
    assert any("scaled_dot_product" in operator for operator in operators)


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
