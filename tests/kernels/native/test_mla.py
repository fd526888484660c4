from __future__ import annotations

import pytest
import torch

from kernels.native.mla import BACKENDS, hidden_keys
from pytest_attnperf.backends import Backend, Registry
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.mla import Mla
from tests.kernels.judging import assert_runs_what_it_declares, find_problems

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
NAIVE, ABSORB = BACKENDS

PROBLEMS = (
    "mla-b2-s1-kv97-h4-d16-r16-c32-f16",
    "mla-b1-s1-kv97-h3-d24-dv16-r8-c48-bf16-causal-lse",
    "mla-b2-s33-kv65-h1-d40-dv64-r24-c64-f32-lse",
    "mla-b1-s33-kv70-h2-d24-dv16-r8-c48-bf16-causal",
    "mla-b2-s64-h2-d16-dv48-r8-c16-f32-causal",
    "mla-b1-s65-h3-d64-r32-c128-f16-causal",
    "mla-b2-s40-kv32-h2-d16-dv33-r12-c48-bf16",
    "mla-b1-s3-kv65-h5-d40-r24-c64-f16-causal-lse",
)


@pytest.fixture(scope="module")
def references() -> References:
    """Shared by the backends of a problem."""
    return References()


def wrong(references: References, backend: Backend, text: str, *, device: str = "cpu", seed: int = 1) -> list[str]:
    """What is beyond the backend's budget on inputs that are planted for odd seeds."""
    workload, planted = Mla.parse(text), bool(seed % 2)
    inputs = workload.make_inputs(seed, device, planted=planted)
    expected = references.compute_expected(workload, inputs, seed=seed, planted=planted)
    prepared = backend.prepare(workload, inputs)
    return list(find_problems(expected, prepared.outputs(prepared.run()), backend.tolerance))


@pytest.mark.parametrize("text", PROBLEMS)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_right_on_every_small_problem(backend: Backend, text: str, references: References) -> None:
    """Both forms are within budget on ragged, causal, cross-length problems of all dtypes; naive gives no lse."""
    reasons = backend.unsupported_reasons(Mla.parse(text), CPU)
    if text.endswith("lse") and backend is NAIVE:
        assert reasons == ["scaled_dot_product_attention returns no log-sum-exp"]
        return
    assert reasons == []
    assert wrong(references, backend, text) == []


def test_a_long_cache_is_not_projected_up() -> None:
    """The naive form refuses keys and values beyond a GiB, with their size; the absorbed form needs none."""
    workload = Mla.parse("mla-b32-s1-kv4096-h16-d128-r64-c512-bf16")
    (reason,) = NAIVE.unsupported_reasons(workload, CPU)
    assert "into 1,342,177,280 bytes of keys and values in every call, above 1,073,741,824" in reason
    assert ABSORB.unsupported_reasons(workload, CPU) == []


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_no_seed_is_a_false_alarm(backend: Backend, dtype: str, references: References) -> None:
    """Each of 20 seeds is within budget, planted or not."""
    text = f"mla-b2-s24-kv48-h4-d32-r16-c64-{dtype}-causal"
    assert [found for seed in range(20) for found in wrong(references, backend, text, seed=seed)] == []


@pytest.mark.gpu
@pytest.mark.parametrize("text", PROBLEMS)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_right_on_every_small_problem_on_a_gpu(backend: Backend, text: str, references: References) -> None:
    """A GPU, which multiplies in its own order, is within budget too."""
    if text.endswith("lse") and backend is NAIVE:
        pytest.skip("scaled_dot_product_attention returns no log-sum-exp")
    assert wrong(references, backend, text, device="cuda") == []


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_what_is_declared_is_what_runs(backend: Backend) -> None:
    """Every declared operator is among those of a profile of the call, and none that must never run."""
    assert_runs_what_it_declares(backend, Mla.parse("mla-b1-s16-kv24-h4-d16-r8-c32-bf16-causal"))


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_other_inputs_go_into_the_same_memory(backend: Backend) -> None:
    """`load` refills the tensors a captured graph would read; the call changes none, and never the caller's."""
    workload = Mla.parse("mla-b2-s5-kv9-h4-d16-r8-c32-f16-causal")
    first, second = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 2))
    kept = tuple(tensor.clone() for tensor in first)
    prepared = backend.prepare(workload, first)
    addresses = [tensor.data_ptr() for tensor in prepared.tensors]
    prepared.load(second)
    loaded = prepared.outputs(prepared.run())
    assert [tensor.data_ptr() for tensor in prepared.tensors] == addresses
    assert not {tensor.data_ptr() for tensor in (*first, *second)} & set(addresses)
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(second, prepared.tensors, strict=True))
    fresh = backend.prepare(workload, second)
    expected = fresh.outputs(fresh.run())
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)


def test_hidden_keys_are_bottom_right() -> None:
    """With two queries and four keys, row 0 does not see key 3, and row 1 sees all."""
    hidden = hidden_keys(Mla(1, 2, 1, 4, 4, 4, seq_kv=4, causal=True), torch.device("cpu"))
    assert hidden.tolist() == [[False, False, False, True], [False] * 4]


def test_backends_register_for_their_family_only() -> None:
    """Both are found under 'mla' and neither under 'prefill'."""
    registry = Registry()
    registry.add(*BACKENDS)
    assert [backend.name for backend in registry.for_family("mla")] == ["native.mla_naive", "native.mla_absorb"]
    assert registry.for_family("prefill") == []
