"""benchmarks/figures/suite: what is added to a case, and that its result stays right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import figures_cases
import figures_copy
import figures_injection
import pytest
from figures_injection import Injection

from pytest_attnperf.backends import Backend
from pytest_attnperf.workloads.prefill import Prefill

ROOT = Path(__file__).parents[3]

INTERPRETED = """
import torch
from slowed_flash import slowed_call
from kernels.triton.prefill.backend import TritonFlash
from pytest_attnperf.workloads.prefill import Prefill

for text in ("prefill-b1-s40-h2-hk1-d16-f32-causal", "prefill-b1-s32-kv70-h2-d16-f32"):
    workload = Prefill.parse(text)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    prepared = TritonFlash("triton.flash").prepare(workload, inputs)
    honest = prepared.run()[0]
    slowed, lse = slowed_call(workload, prepared, 3)(*prepared.tensors)
    assert lse is None
    assert torch.equal(honest, slowed), text
print("equal")
"""


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A counter of captures that the test moves by hand, in place of torch's."""
    captures = [0]
    monkeypatch.setattr(figures_injection, "capture_counter", lambda: lambda: captures[0])
    return captures


@pytest.mark.parametrize(
    ("every", "calls", "extra"), [(100, 100, 1), (100, 91, 1), (100, 114, 1), (91, 455, 5), (1, 3, 3), (100, 49, 0)]
)
def test_block_holds_the_rounded_number_of_extra_calls(
    monkeypatch: pytest.MonkeyPatch, every: int, calls: int, extra: int
) -> None:
    """A captured block of c calls holds about c / every extra ones, in every capture, whatever ran before."""
    captures, made = counted(monkeypatch), []
    slowed = figures_injection.with_extra_calls(lambda tensor: made.append(tensor), every, 0)
    for _ in range(7):
        slowed("warm-up")
    for capture in (1, 2):
        captures[0] = capture
        made.clear()
        for _ in range(calls):
            slowed("captured")
        assert len(made) == calls + extra


def test_slice_is_of_one_batch_and_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra call sees views of the first batch and rows, the timed call everything, last."""
    import torch

    counted(monkeypatch)
    shapes: list[tuple[int, ...]] = []
    slowed = figures_injection.with_extra_calls(lambda *tensors: shapes.extend(t.shape for t in tensors), 1, 64)
    slowed(torch.zeros(4, 8, 1, 16), torch.zeros(4, 8, 128, 16))
    assert shapes == [(1, 8, 1, 16), (1, 8, 64, 16), (4, 8, 1, 16), (4, 8, 128, 16)]


def test_tree_without_settings_slows_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The base side runs the backend itself; the candidate's settings slow the case and label they name."""
    backend = Backend("a")
    workload: Any = Prefill.parse("prefill-b1-s64-h1-d16-f16")
    injections = {f"a/{workload.id}": {"slow1": {"kind": "calls", "nominal": 0.01, "every": 100}}}
    path = tmp_path / "settings.json"
    assert figures_cases.settings(path) == {"device": "gpu", "injections": {}}
    path.write_text(json.dumps({"device": "cpu", "injections": injections}))
    monkeypatch.setattr(figures_injection, "settings", lambda: figures_cases.settings(path))
    assert figures_injection.slowed(backend, workload, "slow3") is backend
    slowed = figures_injection.slowed(backend, workload, "slow1")
    assert isinstance(slowed, figures_injection.Slowed)
    assert slowed.injection.describe() == "a whole extra call before one call in 100"


@pytest.mark.parametrize(
    ("injection", "words"),
    [
        (Injection("calls", 0.01, every=1, rows=256), "a call on one batch and 256 rows before one call in 1"),
        (Injection("inside", 0.01, extra=40), "40 extra steps in every program of the kernel"),
        (Injection("copy", 0.01, share=0.01), "1 % more bytes in the one copy"),
    ],
)
def test_injection_says_what_it_adds(injection: Injection, words: str) -> None:
    """In words, for the report and the case's configuration."""
    assert injection.describe() == words


def test_unknown_injection_is_refused() -> None:
    """The error names the kinds that exist."""
    with pytest.raises(ValueError, match="'sleep' is not known; one of calls, inside, copy"):
        Injection("sleep", 0.01)


def test_copy_moves_more_and_returns_the_same() -> None:
    """A slowed copy returns what the plain one does; more than the spare part is refused."""
    import torch

    size = 1 << 12
    source = figures_copy.source_of(size, "cpu")(1)
    plain, slowed = figures_copy.copy_of(size)(source), figures_copy.copy_of(size, 0.05)(source)
    assert plain.numel() == size // 2
    assert slowed.untyped_storage().nbytes() == pytest.approx(1.05 * size, abs=2)
    assert torch.equal(plain, slowed)
    assert torch.equal(plain, figures_copy.reference_of(size)(source))
    with pytest.raises(ValueError, match=r"share is 0\.5, must be from 0 to 1/16"):
        figures_copy.copy_of(size, 0.5)


def test_extra_work_inside_our_kernel_leaves_the_result() -> None:
    """Interpreted, the slowed kernel gives the product kernel's bits: causal and not, ragged tiles, grouped heads."""
    pytest.importorskip("triton")
    path = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks" / "figures" / "suite")])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    ran = subprocess.run(
        [sys.executable, "-c", INTERPRETED], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.stdout.strip() == "equal", ran.stderr
