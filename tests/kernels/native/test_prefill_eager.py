from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kernels.native.prefill_eager import Eager
from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.prefill import Prefill

torch = pytest.importorskip("torch")
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")


@pytest.fixture
def tf32_allowed() -> Iterator[None]:
    """torch's float32 matmul precision at 'high', which lets GPUs use TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("backend", [Eager("native.eager"), Eager("native.eager_fp32", upcast=True)], ids=str)
def test_right_on_every_small_problem(
    backend: Eager, problem: Prefill, assert_right: Callable[[Prefill, Tensors, Outputs], None]
) -> None:
    """Eager attention is within budget on grouped, ragged, causal, cross-length and lse problems."""
    inputs = problem.make_inputs(1, "cpu", planted=True)
    prepared = backend.prepare(problem, inputs)
    assert_right(problem, inputs, prepared.outputs(prepared.run()))


@pytest.mark.parametrize("backend", [Eager("native.eager"), Eager("native.eager_fp32", upcast=True)], ids=str)
def test_right_with_windows_rows_without_keys_and_8_bits(
    backend: Eager, further_problem: Prefill, assert_right: Callable[[Prefill, Tensors, Outputs], None]
) -> None:
    """Eager attention is within budget in every dtype, with windows, and where rows see no key (0 and -inf there)."""
    inputs = further_problem.make_inputs(1, "cpu", planted=True)
    prepared = backend.prepare(further_problem, inputs)
    outputs = prepared.outputs(prepared.run())
    assert_right(further_problem, inputs, outputs)
    assert bool((outputs["out"][:, : further_problem.rows_without_keys] == 0).all())


@pytest.mark.parametrize("backend", [Eager("native.eager"), Eager("native.eager_fp32", upcast=True)], ids=str)
def test_right_with_features(
    backend: Eager, feature_problem: Prefill, assert_right: Callable[[Prefill, Tensors, Outputs], None]
) -> None:
    """Eager attention is within budget with ALiBi, biases, another head dimension of v, and every mode of i8."""
    inputs = feature_problem.make_inputs(1, "cpu", planted=True)
    prepared = backend.prepare(feature_problem, inputs)
    assert_right(feature_problem, inputs, prepared.outputs(prepared.run()))
    prepared.load(other := feature_problem.make_inputs(2, "cpu", planted=True))
    assert_right(feature_problem, other, prepared.outputs(prepared.run()))


@pytest.mark.parametrize("text", ["b1-s8-h2-d320-f32-lse", "b1-s8-kv4-h2-d64-w3-f8e4m3-causal-lse", "b1-s8-h2-d64-i8"])
def test_nothing_is_refused(text: str) -> None:
    """Eager has no reason against any workload: everything else is compared with it."""
    workload = Prefill.parse(f"prefill-{text}")
    assert Eager("native.eager").unsupported_reasons(workload, CPU) == []
    assert Eager("native.eager_fp32", upcast=True).unsupported_reasons(workload, CPU) == []


def test_eager_times_8_bit_inputs_and_upcast_does_not() -> None:
    """native.eager's timed tensors are the stored bytes and their scales; native.eager_fp32's are fp32 values."""
    workload = Prefill.parse("prefill-b2-s8-h4-d16-f8e4m3")
    inputs = workload.make_inputs(0, "cpu", planted=False)
    stored = Eager("native.eager").prepare(workload, inputs)
    assert [tensor.dtype for tensor in stored.tensors] == [torch.float8_e4m3fn] * 3 + [torch.float32] * 3
    assert stored.run().dtype == torch.bfloat16
    upcast = Eager("native.eager_fp32", upcast=True).prepare(workload, inputs)
    assert [(tensor.dtype, tensor.shape) for tensor in upcast.tensors] == [(torch.float32, (2, 4, 8, 16))] * 3
    assert stored.config["compute_dtype"] == upcast.config["compute_dtype"] == "f32"


def test_eager_declares_that_it_is_not_sdpa() -> None:
    """torch's fused attention among what ran would be a substitute for the eager form, and no operator has its name."""
    workload = Prefill.parse("prefill-b1-s8-h2-d16-f16")
    prepared = Eager("native.eager").prepare(workload, workload.make_inputs(0, "cpu", planted=False))
    assert prepared.declares.never == ("scaled_dot_product",)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        prepared.run()
    names = [event.key for event in profile.key_averages()]
    assert "aten::matmul" in names
    assert not any("scaled_dot_product" in name for name in names)


def test_fp32_upcasts_before_the_timed_call() -> None:
    """The tensors that native.eager_fp32 times are fp32 already, in (B, H, S, D)."""
    workload = Prefill.parse("prefill-b2-s8-h4-d16-f16")
    prepared = Eager("native.eager_fp32", upcast=True).prepare(workload, workload.make_inputs(0, "cpu", planted=False))
    assert {(t.dtype, tuple(t.shape), t.is_contiguous()) for t in prepared.tensors} == {
        (torch.float32, (2, 4, 8, 16), True)
    }
    assert prepared.config == {"compute_dtype": "f32", "float32_matmul": "highest"}


@pytest.mark.usefixtures("tf32_allowed")
def test_fp32_refuses_tf32() -> None:
    """The fp32 reference says so when torch would be free to use TF32, and what to call."""
    workload = Prefill.parse("prefill-b1-s8-h2-d16-f16")
    inputs = workload.make_inputs(0, "cpu", planted=False)
    with pytest.raises(AttnperfError, match=r"native\.eager_fp32 needs full fp32 products.*'high'.*'highest'"):
        Eager("native.eager_fp32", upcast=True).prepare(workload, inputs)


@pytest.mark.parametrize("upcast", [False, True])
def test_other_inputs_go_into_the_same_memory(
    upcast: bool, assert_right: Callable[[Prefill, Tensors, Outputs], None]
) -> None:
    """`load` refills the tensors a captured graph would read, and leaves the caller's inputs alone."""
    workload = Prefill.parse("prefill-b1-s33-kv40-h4-hk2-d16-f16-causal-lse")
    first = workload.make_inputs(1, "cpu", planted=False)
    kept = tuple(t.clone() for t in first)
    prepared = Eager("native.eager", upcast=upcast).prepare(workload, first)
    addresses = [t.data_ptr() for t in prepared.tensors]
    second = workload.make_inputs(2, "cpu", planted=True)
    prepared.load(second)
    assert [t.data_ptr() for t in prepared.tensors] == addresses
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))
    assert_right(workload, second, prepared.outputs(prepared.run()))
