from __future__ import annotations

import importlib.metadata
import re

import pytest
import torch

from kernels.native.backward import BACKENDS, hidden_keys
from pytest_attnperf.backends import Backend, Registry, Tensors
from pytest_attnperf.correctness.budget import list_problems
from pytest_attnperf.correctness.metrics import compare_output
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.backward import Backward
from tests.kernels.judging import assert_runs_what_it_declares

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
CUDA = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
ROCM = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
EAGER, FLASH = BACKENDS

PROBLEMS = (
    "backward-b1-s1-kv97-h2-d64-f32-causal",
    "backward-b2-s1-kv97-h4-hk2-d40-bf16",
    "backward-b1-s33-kv130-h2-d128-f16-causal",
    "backward-b2-s33-kv130-h3-hk1-d16-f32-causal",
    "backward-b2-s33-kv130-h4-hk2-d80-bf16",
    "backward-b1-s63-h2-d256-bf16-causal",
    "backward-b2-s63-h3-hk1-d16-bf16-causal",
    "backward-b1-s64-h4-hk2-d64-f32-causal",
    "backward-b2-s64-h2-d16-f16",
    "backward-b1-s65-h2-d13-f16-causal",
    "backward-b2-s65-h3-hk1-d128-bf16",
    "backward-b1-s70-kv31-h4-hk2-d40-f16",
    "backward-b1-s70-kv31-h2-d32-f32",
    "backward-b2-s70-kv31-h4-hk2-d64-bf16-causal",
    "backward-b1-s70-kv31-h2-d16-f32-causal",
)


@pytest.fixture(scope="module")
def references() -> References:
    """Shared by the backends of a problem."""
    return References()


def wrong(
    references: References, backend: Backend, workload: Backward, *, device: str = "cpu", seed: int = 1
) -> list[str]:
    """What is beyond the backend's budget in the gradients of inputs, planted for odd seeds."""
    planted = bool(seed % 2)
    inputs = workload.make_inputs(seed, device, planted=planted)
    expected = references.compute_expected(workload, inputs, seed=seed, planted=planted)
    prepared = backend.prepare(workload, inputs)
    outputs = prepared.outputs(prepared.run())
    assert outputs.keys() == {"dq", "dk", "dv"}
    return [
        problem
        for name, output in outputs.items()
        for problem in list_problems(
            [compare_output(name, name, output, expected.reference[name], expected.yardsticks[name], backend.tolerance)]
        )
    ]


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("backend", [EAGER, FLASH], ids=lambda backend: backend.name)
def test_right_on_every_small_problem_on_a_cpu(backend: Backend, problem: str, references: References) -> None:
    """What is not refused is within budget, on grouped, ragged, causal, cross-length and short-key problems."""
    workload = Backward.parse(problem)
    reasons = backend.unsupported_reasons(workload, CPU)
    if workload.causal and workload.seq_kv < workload.seq_q and backend is FLASH:
        assert reasons == ["gives NaN where a query row sees no key (causal with seq_q=70 and seq_kv=31)"]
        return
    assert reasons == []
    assert wrong(references, backend, workload) == []


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_no_seed_is_a_false_alarm(backend: Backend, dtype: str, references: References) -> None:
    """Each of 40 seeds is within budget on a problem of a few thousand elements, planted or not."""
    workload = Backward.parse_line(f"b=2,s=48,h=4,hk=2,d=32,causal,{dtype}")
    assert [text for seed in range(40) for text in wrong(references, backend, workload, seed=seed)] == []


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", ["b=2,s=48,h=4,hk=2,d=32,causal", "s=64,h=3,hk=1,d=40"])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_no_seed_of_1000_is_a_false_alarm(backend: Backend, shape: str, dtype: str, references: References) -> None:
    """0 false INCORRECT over 1,000 seeds per case."""
    workload = Backward.parse_line(f"{shape},{dtype}")
    assert [text for seed in range(1000) for text in wrong(references, backend, workload, seed=seed)] == []


@pytest.mark.gpu
@pytest.mark.parametrize("problem", PROBLEMS)
def test_eager_is_right_on_every_small_problem_on_a_gpu(problem: str, references: References) -> None:
    """The plain operators are within budget on a GPU too, which multiplies in its own order."""
    assert wrong(references, EAGER, Backward.parse(problem), device="cuda") == []


def test_the_refusal_of_rows_without_keys_is_warranted() -> None:
    """The CPU operator really gives NaN for them, so the reason is no excuse."""
    workload = Backward.parse("backward-b1-s70-kv31-h2-d16-f32-causal")
    prepared = FLASH.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
    assert any(output.isnan().any() for output in prepared.outputs(prepared.run()).values())


@pytest.mark.parametrize("device", [CUDA, ROCM], ids=lambda device: device.kind)
def test_flash_is_refused_on_gpus(device: DeviceInfo) -> None:
    """The one reason names the device and what is missing there; eager is refused nowhere."""
    workload = Backward.parse("backward-b1-s8-h2-d16-f16")
    (reason,) = FLASH.unsupported_reasons(workload, device)
    assert re.search(rf"torch on {device.kind} needs .* cumulative lengths and random state", reason)
    assert EAGER.unsupported_reasons(workload, device) == []


@pytest.mark.parametrize(
    ("release", "shown"), [("2.8.1+cpu", "2.8"), ("2.6.0", "2.6"), ("2.9.0", ""), ("2.13.0+cpu", ""), ("3.0", "")]
)
def test_grouped_heads_need_a_torch_that_takes_them(release: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch whose operator does not take them is refused, with both versions and both counts of heads."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: release)
    reasons = FLASH.unsupported_reasons(Backward.parse("backward-b1-s8-h4-hk2-d16-f16"), CPU)
    expected = f"from torch 2.9 on, not in {shown} (4 query heads, 2 K/V heads)"
    assert [expected in reason for reason in reasons] == ([True] if shown else [])
    assert FLASH.unsupported_reasons(Backward.parse("backward-b1-s8-h4-d16-f16"), CPU) == []


def test_without_torch_reasons_are_still_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collecting on a machine without torch raises nothing."""

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    (reason,) = FLASH.unsupported_reasons(Backward.parse("backward-b1-s8-h4-hk2-d16-f16"), CPU)
    assert "not in 0.0" in reason


@pytest.mark.parametrize("backend", [EAGER, FLASH], ids=lambda backend: backend.name)
def test_what_is_declared_is_what_runs(backend: Backend) -> None:
    """Every declared operator is among those of a profile of the call, and none that must never run."""
    assert_runs_what_it_declares(backend, Backward.parse("backward-b1-s16-kv24-h4-hk2-d16-bf16-causal"))


@pytest.mark.parametrize("backend", [EAGER, FLASH], ids=lambda backend: backend.name)
def test_other_inputs_go_into_the_same_memory(backend: Backend) -> None:
    """`load` refills the tensors a captured graph would read; the call changes none, and never the caller's."""
    workload = Backward.parse("backward-b2-s33-kv40-h4-hk2-d16-f16-causal")
    first, second = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 2))
    kept = tuple(tensor.clone() for tensor in first)
    prepared = backend.prepare(workload, first)
    addresses = [tensor.data_ptr() for tensor in prepared.tensors]
    prepared.load(second)
    before = tuple(tensor.clone() for tensor in prepared.tensors)
    loaded = prepared.outputs(prepared.run())
    assert [tensor.data_ptr() for tensor in prepared.tensors] == addresses
    assert not {tensor.data_ptr() for tensor in (*first, *second)} & set(addresses)
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before, prepared.tensors, strict=True))
    fresh = backend.prepare(workload, second)
    expected = fresh.outputs(fresh.run())
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)


def test_the_layout_is_heads_first_and_the_outputs_canonical() -> None:
    """The timed tensors are contiguous (B, H, S, D), grouped heads not expanded; outputs come back (B, S, H, D)."""
    workload = Backward.parse("backward-b2-s8-kv12-h4-hk2-d16-f16")
    for backend in (EAGER, FLASH):
        prepared = backend.prepare(workload, workload.make_inputs(0, "cpu", planted=False))
        rows, keys = (2, 4, 8, 16), (2, 2, 12, 16)
        assert [tuple(tensor.shape) for tensor in prepared.tensors] == [rows, keys, keys, rows, rows, (2, 4, 8)]
        assert all(tensor.is_contiguous() for tensor in prepared.tensors)
        shapes = {name: tuple(tensor.shape) for name, tensor in prepared.outputs(prepared.run()).items()}
        assert shapes == {"dq": (2, 8, 4, 16), "dk": (2, 12, 2, 16), "dv": (2, 12, 2, 16)}


def test_the_form_of_the_mask_is_recorded() -> None:
    """The result's config says how the flash operator was told the causal mask."""
    forms = {}
    for text in ("s8-h2-d16-f16", "s8-h2-d16-f16-causal", "s8-kv12-h2-d16-f16-causal"):
        workload = Backward.parse(f"backward-b1-{text}")
        prepared = FLASH.prepare(workload, workload.make_inputs(0, "cpu", planted=False))
        forms[text] = prepared.config["causal"]
    assert list(forms.values()) == ["none", "is_causal", "fp32 mask"]


def test_hidden_keys_are_bottom_right() -> None:
    """With two queries and four keys, row 0 does not see key 3; with four and two, the first two rows see none."""
    wide = hidden_keys(Backward(1, 2, 1, 4, seq_kv=4, causal=True), torch.device("cpu"))
    assert wide.tolist() == [[False, False, False, True], [False] * 4]
    tall = hidden_keys(Backward(1, 4, 1, 4, seq_kv=2, causal=True), torch.device("cpu"))
    assert tall.tolist() == [[True, True], [True, True], [False, True], [False, False]]


def test_backends_register_for_their_family_only() -> None:
    """Both are found under 'backward' and neither under 'prefill'."""
    registry = Registry()
    registry.add(*BACKENDS)
    assert [backend.name for backend in registry.for_family("backward")] == [
        "native.eager_backward",
        "native.sdpa_flash_backward",
    ]
    assert registry.for_family("prefill") == []


@pytest.mark.gpu
def test_eager_replays_in_a_graph(references: References) -> None:
    """Captured once, a replay reads the loaded tensors and gives the gradients of other inputs."""
    workload = Backward.parse("backward-b2-s63-h3-hk1-d16-bf16-causal")
    first, second = (workload.make_inputs(seed, "cuda", planted=True) for seed in (1, 2))
    prepared = EAGER.prepare(workload, first)
    prepared.run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        raw = prepared.run()
    prepared.load(second)
    graph.replay()
    expected: Tensors = tuple(references.compute_expected(workload, second, seed=2, planted=True).reference.values())
    for output, reference in zip(prepared.outputs(raw).values(), expected, strict=True):
        assert float((output.double() - reference).norm() / reference.norm()) < 0.02
