from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.triton.prefill import TritonFlash
from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.prefill import Prefill

BACKEND = TritonFlash("triton.flash")
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
INTERPRETING = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)
ROOT = Path(__file__).parents[3]


TF32 = "prefill-b1-s65-h4-hk2-d64-tf32-causal-lse"


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory, problems: tuple[str, ...]) -> dict[str, Any]:
    """Outputs and config of every small problem, computed by the interpreter in one process."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    saved = tmp_path_factory.mktemp("interpreted") / "outputs.pt"
    script = Path(__file__).with_name("run_interpreted.py")
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(saved), *problems, TF32]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(torch.load(saved))


def test_right_on_every_small_problem(
    problem: Prefill, interpreted: dict[str, Any], assert_right: Callable[[Prefill, Tensors, Outputs], None]
) -> None:
    """The interpreted kernel is within budget on ragged, grouped, causal, cross-length, padded and lse problems."""
    assert_right(problem, problem.make_inputs(1, "cpu", planted=True), interpreted[problem.id]["outputs"])


def test_tf32_is_multiplied_as_fp32(
    interpreted: dict[str, Any], assert_right: Callable[[Prefill, Tensors, Outputs], None]
) -> None:
    """tf32 inputs are right, by the budget of f32 even."""
    for text in (TF32, TF32.replace("tf32", "f32")):
        workload = Prefill.parse(text)
        assert_right(workload, workload.make_inputs(1, "cpu", planted=True), interpreted[TF32]["outputs"])


def test_what_the_kernel_declares() -> None:
    """Its own kernel must be among what ran on a GPU, and torch's attention must not; half precision is multiplied by
    matrix instructions."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    for dtype, element, matrix in (("f16", torch.half, True), ("bf16", torch.bfloat16, True), ("f32", None, False)):
        workload = Prefill.parse(f"prefill-b1-s8-h2-d64-{dtype}")
        inputs = tuple(torch.zeros(1, 8, 2, 64, dtype=element) for _ in range(3))
        declares = BACKEND.prepare(workload, inputs).declares
        assert declares.kernels == ("prefill_forward_kernel",)
        assert declares.never == ("scaled_dot_product",)
        assert declares.matrix is matrix


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("s8-h2-d64-w4-f16-causal", "triton.flash takes no sliding window, this workload has one of 4 keys"),
        (
            "s8-kv5-h2-d64-f16-causal",
            "triton.flash is not known to give 0 for rows that see no key, and the first 3 rows of this workload see "
            "none",
        ),
        ("s8-h2-d64-f8e5m2", "triton.flash takes bf16, f16, f32, tf32, not f8e5m2"),
    ],
)
def test_says_what_it_does_not_compute(text: str, reason: str) -> None:
    """Windows, rows without keys and 8 bits are each refused by one reason with the value seen."""
    assert BACKEND.unsupported_reasons(Prefill.parse(f"prefill-b1-{text}"), INTERPRETING) == [reason]


def test_the_configuration_and_its_source_are_recorded(interpreted: dict[str, Any]) -> None:
    """What was launched, and where its figures come from, is part of the result."""
    config = next(iter(interpreted.values()))["config"]
    assert config["config_arch"] == "interpreter"
    assert config["BLOCK_M"] == "32"
    assert "small tiles" in config["config_source"]


def test_a_stored_configuration_is_replayed(interpreted: dict[str, Any]) -> None:
    """Pinned, it runs with the stored sizes instead of the files', and its source says so."""
    first = next(iter(interpreted.values()))
    source = first["config"]["config_source"]
    assert first["config"]["BLOCK_N"] == "32"
    assert first["replayed"] == first["config"] | {"BLOCK_N": "16", "config_source": f"pinned: {source}"}


@pytest.mark.gpu
def test_right_on_every_small_problem_on_a_gpu(
    problems: tuple[str, ...], assert_right: Callable[[Prefill, Tensors, Outputs], None]
) -> None:
    """The compiled kernel is within budget on the same problems."""
    for workload in map(Prefill.parse, problems):
        inputs = workload.make_inputs(1, "cuda", planted=True)
        prepared = BACKEND.prepare(workload, inputs)
        assert_right(workload, inputs, prepared.outputs(prepared.run()))


@pytest.mark.gpu
def test_right_with_a_stored_configuration_on_a_gpu(
    assert_right: Callable[[Prefill, Tensors, Outputs], None],
) -> None:
    """Other block sizes than the files' are compiled, recorded, and right."""
    workload = Prefill.parse("prefill-b1-s65-h4-hk2-d64-f16-causal-lse")
    inputs = workload.make_inputs(1, "cuda", planted=True)
    stored = BACKEND.prepare(workload, inputs).config | {"BLOCK_M": "32", "BLOCK_N": "16", "num_warps": "2"}
    prepared = BACKEND.pinned(stored).prepare(workload, inputs)
    assert prepared.config["BLOCK_M"] == "32"
    assert_right(workload, inputs, prepared.outputs(prepared.run()))


@pytest.mark.gpu
def test_positions_past_32_bits_are_right() -> None:
    """The last rows of tensors of more than 2^31 elements equal the same rows of a small problem."""
    import torch

    from kernels.triton.prefill_forward import prefill_forward

    config = {"BLOCK_M": 64, "BLOCK_N": 64, "PRELOAD_V": False, "num_warps": 4, "num_stages": 2}
    rows, batch = 64, 2**31 // (64 * 128 * 64) + 1
    q = torch.zeros(batch, rows, 64, 128, dtype=torch.float16, device="cuda")
    q[-1] = torch.randn(rows, 64, 128, device="cuda")
    out, _ = prefill_forward(q, q, q, causal=True, with_lse=False, config=config)
    alone, _ = prefill_forward(q[-1:], q[-1:], q[-1:], causal=True, with_lse=False, config=config)
    assert q.numel() > 2**31
    assert torch.equal(out[-1:], alone)


def test_says_how_to_run_without_a_gpu() -> None:
    """Without a GPU and without the interpreter, the reason names the variable to set."""
    workload = Prefill.parse("prefill-b1-s8-h2-d64-f16")
    assert BACKEND.unsupported_reasons(workload, CPU) == [
        "Triton compiles for GPUs only; without one, set TRITON_INTERPRET=1 before triton is imported"
    ]
    assert BACKEND.unsupported_reasons(workload, INTERPRETING) == []


def test_says_which_head_dim_is_too_large() -> None:
    """A head dimension above 256 is refused with both figures."""
    workload = Prefill.parse("prefill-b1-s8-h2-d320-f16")
    assert BACKEND.unsupported_reasons(workload, INTERPRETING) == [
        "head_dim 320 is above 256, the largest this kernel takes"
    ]


def test_says_that_triton_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing triton is a reason, not an import error."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    workload = Prefill.parse("prefill-b1-s8-h2-d64-f16")
    assert BACKEND.unsupported_reasons(workload, INTERPRETING) == ["triton is not installed"]
