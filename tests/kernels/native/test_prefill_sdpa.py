from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kernels.native.prefill import BACKENDS
from kernels.native.prefill_sdpa import OPERATORS, PinnedSdpa
from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.base import QUANTISED
from pytest_attnperf.workloads.prefill import Prefill

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
CUDA = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
ROCM = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
SDPA = {backend.name: backend for backend in BACKENDS if isinstance(backend, PinnedSdpa)}


@pytest.mark.parametrize("name", ["native.sdpa_flash", "native.sdpa_math"])
def test_right_on_every_small_problem_on_a_cpu(
    name: str, problem: Prefill, assert_right: Callable[[Prefill, Tensors, Outputs], None]
) -> None:
    """What SDPA does not refuse it gets right, bottom-right masks and grouped heads included."""
    pytest.importorskip("torch")
    if problem.lse:
        assert SDPA[name].unsupported_reasons(problem, CPU)
        return
    assert not SDPA[name].unsupported_reasons(problem, CPU)
    inputs = problem.make_inputs(1, "cpu", planted=True)
    prepared = SDPA[name].prepare(problem, inputs)
    assert_right(problem, inputs, prepared.outputs(prepared.run()))


@pytest.mark.parametrize("name", ["native.sdpa_flash", "native.sdpa_math"])
def test_right_with_windows_and_rows_without_keys_on_a_cpu(
    name: str, further_problem: Prefill, assert_right: Callable[[Prefill, Tensors, Outputs], None]
) -> None:
    """SDPA is right with windows, tf32 and rows that see no key, which it gives 0; it refuses 8 bits and lse."""
    pytest.importorskip("torch")
    if further_problem.lse or further_problem.dtype in QUANTISED:
        assert SDPA[name].unsupported_reasons(further_problem, CPU)
        return
    assert not SDPA[name].unsupported_reasons(further_problem, CPU)
    inputs = further_problem.make_inputs(1, "cpu", planted=True)
    prepared = SDPA[name].prepare(further_problem, inputs)
    outputs = prepared.outputs(prepared.run())
    assert_right(further_problem, inputs, outputs)
    assert bool((outputs["out"][:, : further_problem.rows_without_keys] == 0).all())


@pytest.mark.parametrize("name", ["native.sdpa_flash", "native.sdpa_math"])
def test_right_with_features_on_a_cpu(
    name: str, feature_problem: Prefill, assert_right: Callable[[Prefill, Tensors, Outputs], None]
) -> None:
    """SDPA is right with ALiBi and biases, as one added mask, and with a head dimension of v where it takes one."""
    pytest.importorskip("torch")
    refused = feature_problem.lse or feature_problem.dtype in QUANTISED
    if name == "native.sdpa_flash":
        refused = refused or feature_problem.head_dim_v != feature_problem.head_dim
    assert bool(SDPA[name].unsupported_reasons(feature_problem, CPU)) == refused
    if refused:
        return
    inputs = feature_problem.make_inputs(1, "cpu", planted=True)
    prepared = SDPA[name].prepare(feature_problem, inputs)
    assert_right(feature_problem, inputs, prepared.outputs(prepared.run()))
    prepared.load(other := feature_problem.make_inputs(2, "cpu", planted=True))
    assert_right(feature_problem, other, prepared.outputs(prepared.run()))


@pytest.mark.parametrize("name", ["native.sdpa_flash", "native.sdpa_math"])
@pytest.mark.parametrize("text", ["s8-h2-d16-f16-causal", "s8-kv12-h4-hk2-d16-bf16-causal", "s8-h2-d16-f32"])
def test_the_declared_operator_is_what_runs(name: str, text: str) -> None:
    """A profile of the call holds an operator of the declared name, and none of those that may never run."""
    torch = pytest.importorskip("torch")
    workload = Prefill.parse(f"prefill-b1-{text}")
    prepared = SDPA[name].prepare(workload, workload.make_inputs(0, "cpu", planted=False))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        prepared.run()
    ran = [event.key for event in profile.key_averages()]
    (declared,) = prepared.declares.operators
    assert any(re.search(declared, operator) for operator in ran)
    assert len(prepared.declares.never) == 3
    assert not any(re.search(never, operator) for never in prepared.declares.never for operator in ran)


def test_every_pinned_backend_declares_another_operator() -> None:
    """The declared names tell the four backends apart, in torch's spelling on CPUs and GPUs."""
    on_gpus = [
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_attention_math",
    ]
    fitting = {name: [op for op in on_gpus if re.search(OPERATORS[SDPA[name].backend], op)] for name in SDPA}
    assert sorted(fitting.values()) == sorted([op] for op in on_gpus)
    assert re.search(OPERATORS["EFFICIENT_ATTENTION"], "aten::_efficient_attention_forward")
    assert re.search(OPERATORS["FLASH_ATTENTION"], "aten::_flash_attention_forward")


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(SDPA))
def test_right_on_every_small_problem_on_a_gpu(
    name: str,
    problems: tuple[str, ...],
    further_problems: tuple[str, ...],
    feature_problems: tuple[str, ...],
    assert_right: Callable[[Prefill, Tensors, Outputs], None],
) -> None:
    """What a pinned backend does not refuse on a GPU it computes, and gets right."""
    texts = problems + further_problems + feature_problems
    taken = [w for w in map(Prefill.parse, texts) if not SDPA[name].unsupported_reasons(w, CUDA)]
    assert taken
    for workload in taken:
        inputs = workload.make_inputs(1, "cuda", planted=True)
        prepared = SDPA[name].prepare(workload, inputs)
        assert_right(workload, inputs, prepared.outputs(prepared.run()))


def test_torch_may_not_choose_another_backend() -> None:
    """A pinned backend that cannot take the call raises instead of being replaced."""
    torch = pytest.importorskip("torch")
    workload = Prefill.parse("prefill-b1-s8-h2-d16-f16")
    prepared = SDPA["native.sdpa_cudnn"].prepare(workload, workload.make_inputs(0, "cpu", planted=False))
    if torch.cuda.is_available():
        pytest.skip("with a GPU torch reports the CPU tensors differently")
    with pytest.raises(RuntimeError):
        prepared.run()


@pytest.mark.parametrize(
    ("name", "workload", "device", "reason"),
    [
        ("native.sdpa_math", "prefill-b1-s8-h2-d64-f16-lse", CPU, "returns no log-sum-exp"),
        ("native.sdpa_efficient", "prefill-b1-s8-h2-d64-f16", CPU, "exists on cuda, rocm, not on cpu"),
        ("native.sdpa_cudnn", "prefill-b1-s8-h2-d64-f16", ROCM, "exists on cuda, not on rocm"),
        ("native.sdpa_flash", "prefill-b1-s8-h2-d64-f32", CUDA, "on a GPU takes bf16, f16, not f32"),
        ("native.sdpa_efficient", "prefill-b1-s8-h2-d64-f32", CUDA, "on a GPU takes bf16, f16, tf32, not f32"),
        ("native.sdpa_flash", "prefill-b1-s8-h2-d64-tf32", CUDA, "on a GPU takes bf16, f16, not tf32"),
        ("native.sdpa_math", "prefill-b1-s8-h2-d64-f8e4m3", CUDA, "takes bf16, f16, f32, tf32, not f8e4m3"),
        ("native.sdpa_flash", "prefill-b1-s8-h2-d64-i8", CPU, "takes bf16, f16, f32, tf32, not i8"),
        ("native.sdpa_flash", "prefill-b1-s8-h2-d64-w4-f16-causal", CUDA, "no sliding window, .* one of 4 keys"),
        (
            "native.sdpa_flash",
            "prefill-b1-s8-kv5-h2-d64-f16-causal",
            CUDA,
            "0 for rows that see no key, .* first 3 rows",
        ),
        ("native.sdpa_efficient", "prefill-b1-s8-kv5-h2-d64-f16-causal", ROCM, "0 for rows that see no key"),
        ("native.sdpa_cudnn", "prefill-b1-s8-kv5-h2-d64-f16-causal", CUDA, "0 for rows that see no key"),
        ("native.sdpa_flash", "prefill-b1-s8-h2-d64-f16-alibi", CUDA, "on a GPU takes no ALiBi slopes"),
        ("native.sdpa_flash", "prefill-b1-s8-h2-d64-f16-bias", ROCM, "on a GPU takes no bias matrix"),
        (
            "native.sdpa_flash",
            "prefill-b1-s8-h2-d64-dv40-f16",
            CUDA,
            "one head dimension for q, k and v, not 64 and 40",
        ),
        ("native.sdpa_flash", "prefill-b1-s8-h2-d64-dv40-f16", CPU, "one head dimension for q, k and v, not 64 and 40"),
        ("native.sdpa_cudnn", "prefill-b1-s8-h2-d64-dv20-f16", CUDA, "to be a multiple of 8, not 20"),
        ("native.sdpa_cudnn", "prefill-b1-s1-h2-d64-f16-causal", CUDA, "no sequence of a single key"),
        ("native.sdpa_cudnn", "prefill-b1-s8-h2-d64-dv264-f16", CUDA, "takes head_dim up to 256, not 264"),
        ("native.sdpa_efficient", "prefill-b1-s8-h4-hk2-d64-f16", CUDA, r"no grouped K/V heads \(4 query .* 2 K/V"),
        ("native.sdpa_flash", "prefill-b1-s8-h2-d320-f16", CUDA, "takes head_dim up to 256, not 320"),
        ("native.sdpa_efficient", "prefill-b1-s8-h2-d20-f16", CUDA, "needs head_dim to be a multiple of 8, not 20"),
        ("native.sdpa_efficient", "prefill-b1-s8-h2-d18-tf32", CUDA, "needs head_dim to be a multiple of 4, not 18"),
    ],
)
def test_reasons_name_the_limit_and_the_value(name: str, workload: str, device: DeviceInfo, reason: str) -> None:
    """Each limit of a pinned backend is refused by exactly one reason that names it."""
    reasons = SDPA[name].unsupported_reasons(Prefill.parse(workload), device)
    assert len(reasons) == 1
    assert re.search(reason, reasons[0])


def test_flash_takes_heads_that_torch_pads() -> None:
    """`scaled_dot_product_attention` pads rows for flash attention itself; rows of 16 bytes need no padding."""
    for text in ("prefill-b1-s8-h2-d17-f16", "prefill-b1-s8-h2-d127-bf16-causal"):
        assert SDPA["native.sdpa_flash"].unsupported_reasons(Prefill.parse(text), CUDA) == []
    assert SDPA["native.sdpa_efficient"].unsupported_reasons(Prefill.parse("prefill-b1-s8-h2-d20-tf32"), CUDA) == []


def test_the_form_of_the_mask_is_recorded() -> None:
    """The result's config says which of SDPA's forms of a causal mask was timed."""
    pytest.importorskip("torch")
    forms = {}
    texts: tuple[str, ...] = ("s8-h2-d16-f16-causal-alibi", "s8-h2-d16-f16-bias")
    texts += ("s8-h2-d16-f16", "s8-h2-d16-f16-causal", "s8-kv12-h2-d16-f16-causal", "s8-h2-d16-w3-f16-causal")
    for text in texts:
        workload = Prefill.parse(f"prefill-b1-{text}")
        prepared = SDPA["native.sdpa_flash"].prepare(workload, workload.make_inputs(0, "cpu", planted=False))
        forms[text] = prepared.config["causal"]
    assert list(forms.values()) == ["added mask", "added mask", "none", "is_causal", "bool mask", "bool mask"]
