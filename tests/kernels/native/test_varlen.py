from __future__ import annotations

import re
from typing import Any

import pytest

from kernels.native.varlen import BACKENDS, EagerVarlen, FlashVarlen
from pytest_attnperf.backends import Tensors
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.varlen import Varlen
from tests.kernels.judging import find_problems

torch = pytest.importorskip("torch")
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
CUDA = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
ROCM = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
EAGER, FLASH = EagerVarlen("native.eager_varlen"), FlashVarlen("native.sdpa_varlen")
CASES = (
    "varlen-q5_33_17-h4-hk2-d64-f16-causal-lse",
    "varlen-q5_33_17-kv3_60_17-h3-hk1-d40-w9-bf16-causal-lse-alibi",
    "varlen-q2x31_40-kv20_70_1-h2-d64-f32",
    "varlen-q2x1_7-h1-d16-tf32-alibi",
    "varlen-q1_130_3x64-kv97_130_3x70-h4-hk1-d128-bf16-causal",
    "varlen-q100_40-kv100_90-h4-hk2-d64-w30-f16-causal-lse",
    "varlen-q200-kv300-h2-d256-f16",
    "varlen-q5_33-kv20_9-h4-hk2-d40-f16-bias",
    "varlen-q5_33-kv20_40-h2-d40-i8-causal-lse-bias",
    "varlen-q5_33-h2-d40-i8-pv16-outf16-alibi",
    "varlen-q5_9-h2-d40-i8-kv8-outf32-causal",
    "varlen-q5_9-h2-d40-f8e4m3-outf32-lse",
    "varlen-q5_9-h2-d512-f16-causal",
)


def found_wrong(workload: Varlen, inputs: Tensors, outputs: dict[str, Any], seed: int) -> tuple[str, ...]:
    """What the judge's arithmetic finds wrong."""
    expected = References().compute_expected(workload, inputs, seed=seed, planted=True)
    return find_problems(expected, outputs, EAGER.tolerance)


@pytest.mark.parametrize("text", CASES)
def test_the_loop_is_right(text: str) -> None:
    """One sequence after the other is within budget, also for inputs that are loaded later; inputs are not changed."""
    workload = Varlen.parse(text)
    assert EAGER.unsupported_reasons(workload, CPU) == []
    inputs, later = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 2))
    kept = tuple(tensor.clone() for tensor in inputs)
    prepared = EAGER.prepare(workload, inputs)
    assert found_wrong(workload, inputs, dict(prepared.outputs(prepared.run())), 1) == ()
    assert all(torch.equal(a, b) for a, b in zip(inputs, kept, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(prepared.tensors, kept, strict=True))
    prepared.load(later)
    assert found_wrong(workload, later, dict(prepared.outputs(prepared.run())), 2) == ()


def test_sequences_of_the_same_lengths_share_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks are built once for each pair of lengths, however many sequences have it."""
    import kernels.native.varlen as module

    built = []
    really = module.eager_attention
    monkeypatch.setattr(module, "eager_attention", lambda one, device: built.append(one) or really(one, device))
    module.eager_varlen(Varlen((64,) * 100 + (3,), 2, 16, causal=True), torch.device("cpu"))
    assert len(built) == 2


@pytest.mark.parametrize("text", ["varlen-q100_40-kv100_90-h4-hk2-d64-w30-f16-causal-lse", "varlen-q5_9-h2-d16-bf16"])
def test_flash_is_called_with_what_the_workload_says(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets, longest lengths, scale, mask and window reach the operator by names it has; its results come back."""
    workload = Varlen.parse(text)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    plain, calls = workload.plain(inputs), []
    schema = {argument.name for argument in torch.ops.aten._flash_attention_forward.default._schema.arguments}

    def operator(*given: Any, **named: Any) -> tuple[Any, ...]:
        calls.append((given[3:], named))
        return plain["out"], plain.get("lse"), None, None, None

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", operator)
    prepared = FLASH.prepare(workload, inputs)
    assert found_wrong(workload, inputs, dict(prepared.outputs(prepared.run())), 1) == ()
    ((given, named),) = calls
    assert [x.tolist() for x in given[:2]] == [inputs[3].tolist(), inputs[4].tolist()]
    assert given[2:] == (workload.max_q, workload.max_kv, 0.0, workload.causal, False)
    window = {"window_size_left": 29, "window_size_right": 0} if workload.window else {}
    assert named == {"scale": workload.head_dim**-0.5, **window}
    assert named.keys() <= schema


@pytest.mark.parametrize(
    ("text", "device", "reason"),
    [
        ("q5_9-h2-d64-f16", CPU, "offered on cuda alone, not on cpu"),
        ("q5_9-h2-d64-f16", ROCM, "offered on cuda alone, not on rocm"),
        ("q5_9-h2-d320-f16", CUDA, "takes head_dim up to 256, not 320"),
        ("q5_9-h2-d20-f16", CUDA, "needs head_dim to be a multiple of 8, not 20"),
        ("q5_9-h2-d64-tf32", CUDA, "takes bf16, f16, not tf32"),
        ("q5_9-h2-d64-f16-alibi", CUDA, "takes no ALiBi slopes"),
        ("q5_9-h2-d64-f16-bias", CUDA, "takes no bias matrix"),
        ("q5_9-h2-d64-i8", CUDA, "takes bf16, f16, not i8"),
        ("q5_9-kv5_7-h2-d64-f16-causal", CUDA, "0 for rows that see no key, and the first 2 rows"),
    ],
)
def test_flash_names_the_limit_and_the_value(text: str, device: DeviceInfo, reason: str) -> None:
    """Each limit is refused by exactly one reason that names it."""
    reasons = FLASH.unsupported_reasons(Varlen.parse(f"varlen-{text}"), device)
    assert len(reasons) == 1
    assert re.search(reason, reasons[0])


def test_flash_takes_what_flash_attention_takes() -> None:
    """Grouped heads, windows, log-sum-exp and more keys than queries are not refused on an NVIDIA GPU."""
    assert FLASH.unsupported_reasons(Varlen.parse("varlen-q5_9-kv7_9-h4-hk2-d64-w3-f16-causal-lse"), CUDA) == []


@pytest.mark.gpu
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: str(backend.name))
def test_right_on_a_gpu(backend: EagerVarlen | FlashVarlen) -> None:
    """What a backend does not refuse on a GPU it computes, and gets right."""
    taken = [w for w in map(Varlen.parse, CASES) if not backend.unsupported_reasons(w, CUDA)]
    assert taken
    for workload in taken:
        inputs = workload.make_inputs(1, "cuda", planted=True)
        prepared = backend.prepare(workload, inputs)
        assert found_wrong(workload, inputs, dict(prepared.outputs(prepared.run())), 1) == ()
