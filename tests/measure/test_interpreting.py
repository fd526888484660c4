from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import interpreting
from pytest_attnperf.measure.interpreting import Interpreted
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="test")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """What `interpreted_kernels.py` prints in a process that interprets."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}
    program = str(HERE / "interpreted_kernels.py")
    ran = subprocess.run([sys.executable, program], env=env, cwd=HERE, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@needs_triton
def test_an_autotuner_runs_its_first_configuration(facts: dict[str, Any]) -> None:
    """Once, after early pruning, without its model of a GPU and without a benchmark; the launch is noted."""
    assert facts["blocks"] == [64]
    assert facts["scaled"]
    assert facts["watched"] == [False, True]


@needs_triton
def test_libdevice_is_computed_on_the_cpu(facts: dict[str, Any]) -> None:
    """What numpy has is right; what it lacks needs a GPU, and a type that libdevice lacks is the kernel's error."""
    assert facts["library"]
    kind, text = facts["unknown"]
    assert kind == "UnsupportedError"
    assert text.startswith(
        "needs a GPU, and is interpreted here: libdevice.erfcx was requested, but only a GPU has it ("
    )
    kind, text = facts["half"]
    assert kind == "InterpretedKernelError"
    assert "TypeError: libdevice.pow takes fp32 or fp64, got fp16; convert it with .to()" in text


@needs_triton
@pytest.mark.parametrize(
    ("fact", "kind", "text"),
    [
        ("loop_index", "UnsupportedError", "cannot be interpreted: AttributeError: 'int' object has no attribute 'to'"),
        ("misspelt", "InterpretedKernelError", "interpreted kernel raised AttributeError: 'tensor' object has no "),
        ("asserting", "InterpretedKernelError", "interpreted kernel raised AssertionError: BLOCK is too small\n  at "),
        ("stream", "UnsupportedError", "needs a GPU, and is interpreted here: triton.runtime.driver.active.get_curr"),
        ("warmed", "UnsupportedError", ""),
        ("name", "UnsupportedError", "needs a GPU, and is interpreted here: "),
    ],
)
def test_what_needs_a_gpu_is_told_from_what_is_broken(facts: dict[str, Any], fact: str, kind: str, text: str) -> None:
    """What Triton's interpreter or driver, or torch.cuda, cannot do is unsupported; a kernel's own error is not."""
    assert facts[fact][0] == kind
    assert facts[fact][1].startswith(text)
    assert "interpreted_kernels.py:" in facts[fact][1]


@needs_triton
def test_a_warm_up_compiles_nothing(facts: dict[str, Any]) -> None:
    """What is asked of the compiled kernel is named; Triton 3.5 cannot warm up an interpreted kernel at all."""
    assert re.search(
        r"the compiled kernel of_library\.n_regs was requested|has no attribute 'warmup'", facts["warmed"][1]
    )


@needs_triton
def test_the_driver_says_that_it_is_an_interpreter(facts: dict[str, Any]) -> None:
    """Its target is a CPU, and its tensors lie there: no GPU is claimed."""
    assert facts["device"] == "cpu"
    assert facts["target"] == ["cpu", "interpreter"]


def test_nothing_is_changed_where_triton_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TRITON_INTERPRET=1 beginning does nothing; with it, twice is as once, and ending takes it back."""
    before = list(sys.meta_path)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    interpreting.start_interpreting()
    assert sys.meta_path == before
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(interpreting, "_make_patches", list)
    interpreting.start_interpreting()
    interpreting.start_interpreting()
    assert len(sys.meta_path) == len(before) + 1
    interpreting.stop_interpreting()
    interpreting.stop_interpreting()
    assert sys.meta_path == before


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Callable[[torch.Tensor], torch.Tensor]:
    """Doubles a tensor by what looks like an interpreted kernel."""
    module: Any = ModuleType("triton.runtime.interpreter")
    module.GridExecutor = type("GridExecutor", (), {"__call__": lambda self, x: 2 * x})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return lambda x: module.GridExecutor()(x)


def _prepared(call: Callable[..., Any], reference: Callable[..., Any]) -> TorchSubject:
    workload = AdHoc("late", lambda seed: torch.randn(8, generator=torch.manual_seed(seed)), reference)
    subject = TorchSubject(CallableBackend("mine", call), workload, CPU, Seeds(0, 1, 2))
    subject.prepare()
    return subject


def test_a_kernel_that_is_interpreted_late_is_not_timed(kernel: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A call that runs an interpreted kernel in its check has no time, and one in its last run loses it."""
    interprets = [False]

    def call(x: torch.Tensor) -> torch.Tensor:
        return kernel(x) if interprets[0] else 2 * x

    timed, checked = _prepared(call, lambda x: 2 * x), _prepared(call, lambda x: 2 * x)
    assert timed.check().right
    assert timed.measure_blocks(2, 100.0, 1e6).block_us
    interprets[0] = True
    assert checked.check().right
    with pytest.raises(CaseFailedError, match="is not timed interpreted: Triton runs without compiling here"):
        checked.measure_blocks(2, 100.0, 1e6)
    with pytest.raises(CaseFailedError, match="is not timed interpreted: "):
        timed.finish()
    assert checked.not_timed_reason() == timed.not_timed_reason() == interpreting.NOT_TIMED


def test_a_reference_may_be_interpreted(kernel: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A torch function is timed, whatever computes what it is held against."""
    subject = _prepared(lambda x: 2 * x, kernel)
    assert subject.check().right
    assert subject.measure_blocks(2, 100.0, 1e6).block_us
    assert subject.finish().check.right
    assert subject.not_timed_reason() == ""


def test_a_case_without_a_kernel_is_not_interpreted() -> None:
    """Nothing is noted, and nothing is left behind, where no kernel runs."""
    before, seen = list(sys.meta_path), Interpreted()
    with interpreting.watch_kernels(seen):
        assert len(sys.meta_path) == len(before) + 1
    assert not seen.seen
    assert sys.meta_path == before
