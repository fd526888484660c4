from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernels.native.prefill_compiled import DECISIVE, CompiledPrefill, Flex, compile_for_shapes, compile_settings
from pytest_attnperf.backends import Outputs, Pinnable, Tensors
from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure.autotuners import parse_config, record_choices
from pytest_attnperf.measure.pinned_backend import pin_backend
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
    "prefill-b1-s257-h4-hk2-d64-bf16-causal-alibi",
    "prefill-b2-s257-kv130-h2-d64-f16-bias",
    "prefill-b1-s128-h4-d128-dv64-f16-causal",
)


@pytest.mark.parametrize("backend", [Flex("native.flex"), CompiledPrefill("native.compiled")], ids=lambda b: b.name)
def test_neither_is_offered_on_a_cpu(backend: Flex | CompiledPrefill) -> None:
    """On a CPU both say that Inductor would need a C++ compiler."""
    (reason,) = backend.unsupported_reasons(Prefill.parse("prefill-b1-s8-h2-d64-f16"), CPU)
    assert reason.startswith(f"{backend.name} is compiled by Inductor and offered on GPUs only")


def test_flex_says_that_it_gives_no_lse() -> None:
    """A log-sum-exp workload is refused by flex with the reason, and taken by the compiled plain form."""
    workload = Prefill.parse("prefill-b1-s8-h2-d64-f16-lse")
    assert Flex("native.flex").unsupported_reasons(workload, CUDA) == [
        "native.flex gives no log-sum-exp: FlexAttention's argument for it differs between releases"
    ]
    assert CompiledPrefill("native.compiled").unsupported_reasons(workload, CUDA) == []


@pytest.mark.parametrize("backend", [Flex("native.flex"), CompiledPrefill("native.compiled")], ids=lambda b: b.name)
@pytest.mark.parametrize("dtype", ["f8e4m3", "i8"])
def test_8_bits_are_refused(backend: Flex | CompiledPrefill, dtype: str) -> None:
    """Neither computes an 8-bit workload, and the reason names the dtype; windows and rows without keys they take."""
    taken = "prefill-b1-s8-kv5-h2-d64-w3-tf32-causal"
    assert backend.unsupported_reasons(Prefill.parse(taken), CUDA) == []
    assert backend.unsupported_reasons(Prefill.parse(f"prefill-b1-s8-h2-d64-{dtype}"), CUDA) == [
        f"{backend.name} takes bf16, f16, f32, tf32, not {dtype}"
    ]


def compile_nothing(function: Callable[..., object], **options: object) -> Callable[..., object]:
    """In place of torch.compile."""
    return function


@pytest.mark.parametrize(
    "text",
    [
        "s33-kv40-h4-hk2-d32-w7-f32-causal",
        "s40-kv33-h4-d32-bf16-causal",
        "s40-h2-d32-f16",
        "s33-kv40-h4-hk2-d32-dv24-f16-causal-alibi",
        "s40-h2-d32-bf16-bias",
    ],
)
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
    prepared = CompiledPrefill("native.compiled").prepare(workload, inputs)
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


@pytest.mark.parametrize(
    "text",
    [
        "s16-h2-d16-f32",
        "s16-h2-d16-f32-causal",
        "s16-h4-hk2-d16-f32-lse",
        "s16-h2-d16-f32-bias",
        "s16-h2-d16-f16-bias",
        "s16-h2-d16-f32-causal-bias",
        "s16-h2-d16-f32-alibi",
        "s16-h2-d16-dv8-f16-causal-alibi",
    ],
)
def test_inductor_finds_no_attention_to_replace(text: str, graphs: list[list[str]]) -> None:
    """After Inductor's own passes the graph is still two products, not scaled_dot_product_attention."""
    workload = Prefill.parse(f"prefill-b1-{text}")
    CompiledPrefill("native.compiled").prepare(workload, workload.make_inputs(1, "cpu", planted=True))
    (operators,) = graphs
    assert operators.count("aten.bmm.default") == 2
    assert not any("scaled_dot_product" in operator for operator in operators)


def test_inductor_replaces_attention_where_the_scale_is_a_number(graphs: list[list[str]]) -> None:
    """What the test above looks for does happen to the plain form, so that it can fail."""
    import torch

    def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * 0.25, dim=-1) @ v

    compile_for_shapes(plain)(*(torch.randn(1, 2, 16, 16) for _ in range(3)))
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
    assert [compile_for_shapes(double)(3.0), compile_for_shapes(double)(4.0)] == [6.0, 8.0]
    assert seen[0][0] is not seen[1][0]
    assert seen[0][1] == {"dynamic": False, "fullgraph": True}


@pytest.mark.gpu
@pytest.mark.parametrize("backend", [Flex("native.flex"), CompiledPrefill("native.compiled")], ids=lambda b: b.name)
@pytest.mark.parametrize("text", ON_GPU)
def test_right_on_a_gpu_and_compiled_once(
    backend: Flex | CompiledPrefill, text: str, assert_right: Callable[[Prefill, Tensors, Outputs], None]
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


STORED = {
    "compiled": "flex_attention, dynamic=False, fullgraph=True",
    "autotuned.triton_poi_fused_0": "XBLOCK: 512, num_warps: 4, num_stages: 1",
    "autotuned.triton_tem_fused_flex_attention_1": "BLOCK_M: 128, BLOCK_N: 64, SPARSE_Q_BLOCK_SIZE: 128, "
    "num_warps: 8, num_stages: 3",
}


def test_flex_replays_its_template() -> None:
    """The template's block sizes, warps and stages are handed to FlexAttention; nothing else of it is."""
    backend = Flex("native.flex")
    options = (("BLOCK_M", 128), ("BLOCK_N", 64), ("num_warps", 8), ("num_stages", 3))
    assert backend.replay_config(STORED).kernel_options == options
    assert isinstance(backend, Pinnable)


def test_flex_says_what_is_not_stored() -> None:
    """A baseline from before the template was recorded cannot be replayed: the error says what there is."""
    text = r"has no entry autotuned\.triton_tem_\* .*; it has block_mask, compiled; record the baseline again"
    with pytest.raises(UsageError, match=text):
        Flex("native.flex").replay_config({"compiled": "yes", "block_mask": "True"})


def test_flex_takes_the_options_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is pinned reaches torch's function as `kernel_options`; without a pin the choice is left to torch."""
    torch = pytest.importorskip("torch")
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    given = []

    def note(q: Any, k: Any, v: Any, **options: Any) -> Any:
        given.append(options["kernel_options"])
        return q

    monkeypatch.setattr(torch, "compile", compile_nothing)
    monkeypatch.setattr(flex, "flex_attention", note)
    workload = Prefill.parse("prefill-b1-s16-h2-d16-f32")
    for backend in (Flex("native.flex"), Flex("native.flex").replay_config(STORED)):
        backend.prepare(workload, workload.make_inputs(1, "cpu", planted=True))
    assert given == [None, {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3}]


def test_settings_that_decide_what_is_chosen_are_said() -> None:
    """At torch's defaults only our arguments are said; a setting changed from outside is said beside them."""
    inductor = pytest.importorskip("torch._inductor.config")
    assert compile_settings() == "dynamic=False, fullgraph=True"
    with inductor.patch({"max_autotune": True, "triton.autotune_pointwise": False}):
        said = "dynamic=False, fullgraph=True, max_autotune=True, triton.autotune_pointwise=False"
        assert compile_settings() == said


def test_the_installed_torch_has_these_settings() -> None:
    """Every setting that is looked at exists, so that a renamed one is noticed."""
    inductor = pytest.importorskip("torch._inductor.config")
    assert all(inductor.get_config_copy().get(name, "missing") != "missing" for name in DECISIVE)


def test_the_graph_is_traced_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken from AOTAutograd's cache, where nobody would be asked any more which products to pad."""
    torch = pytest.importorskip("torch")
    settings = pytest.importorskip("torch._functorch.config")
    seen, before = [], settings.enable_autograd_cache

    def compile_noting(function: Callable[..., object], **options: object) -> Callable[..., object]:
        def call(*tensors: object, **further: object) -> object:
            seen.append(settings.enable_autograd_cache)
            return function(*tensors, **further)

        return call

    monkeypatch.setattr(torch, "compile", compile_noting)
    workload = Prefill.parse("prefill-b1-s16-h2-d16-f32")
    CompiledPrefill("native.compiled").prepare(workload, workload.make_inputs(1, "cpu", planted=True))
    assert (seen, settings.enable_autograd_cache) == ([False], before)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", [Flex("native.flex"), CompiledPrefill("native.compiled")], ids=lambda b: b.name)
@pytest.mark.parametrize("text", ["prefill-b1-s257-h2-d64-f16-causal", "prefill-b1-s2049-h4-d64-f16-causal"])
def test_choices_are_recorded_and_replayed_on_a_gpu(
    backend: Flex | CompiledPrefill, text: str, assert_right: Callable[[Prefill, Tensors, Outputs], None]
) -> None:
    """Every kernel's choice is recorded; other choices for all of them are compiled, run, recorded, and right."""
    workload = Prefill.parse(text)
    inputs = workload.make_inputs(1, "cuda", planted=True)
    with record_choices() as chosen:
        backend.prepare(workload, inputs)
    own = chosen.build_config_entries()
    assert own
    other = {name: _otherwise(text) for name, text in own.items() if not name.startswith("autotuned.pad_mm")}
    with record_choices() as chosen:
        prepared = pin_backend(backend, other).prepare(workload, inputs)
    assert prepared.config["pinned"] == "as stored"
    now = chosen.build_config_entries()
    assert {name: parse_config(now[name]) for name in other} == {
        name: parse_config(text) for name, text in other.items()
    }
    assert_right(workload, inputs, prepared.outputs(prepared.run()))


def _otherwise(choice: str) -> str:
    """Half as many warps, where there is more than one."""
    warps = int(parse_config(choice)["num_warps"])
    return choice.replace(f"num_warps: {warps}", f"num_warps: {max(1, warps // 2)}")
