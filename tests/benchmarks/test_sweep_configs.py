"""benchmarks/sweep_configs.py: which candidate wins, and what is written of it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kernels
from kernels.configured import Configured
from pytest_attnperf.backends import Registry
from pytest_attnperf.workloads.families import parse_workload

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SWEEPS = sorted(p.stem for p in (BENCHMARKS / "sweeps").glob("*.py") if p.stem not in ("__init__", "sweep"))


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("sweep_configs", BENCHMARKS / "sweep_configs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["sweep_configs"] = module
    spec.loader.exec_module(module)
    return module


def test_the_best_over_all_workloads_wins(program: ModuleType) -> None:
    """A candidate that is good everywhere beats one that is best once and bad once; cost is relative to the fastest."""
    from benchmarks.sweeps.sweep import SizeClass  # type: ignore[import-not-found]

    good, uneven = frozenset({("BLOCK", 1)}), frozenset({("BLOCK", 2)})
    size = SizeClass({}, ("small", "large"), ())
    times = {uneven: {"small": 1.0, "large": 2000.0}, good: {"small": 1.1, "large": 1000.0}}
    assert program.ranked(size, times) == [good, uneven]


@pytest.mark.parametrize(("folder", "backend"), [("FOLDER", "triton.gemm"), ("HIP_FOLDER", "hip.gemm")])
def test_found_rules_replace_those_of_the_same_problems(
    program: ModuleType, tmp_path: Path, monkeypatch: Any, folder: str, backend: str
) -> None:
    """Found rules come first, rules for other problems stay, and a new architecture starts from the default's."""
    monkeypatch.setattr(program, folder, tmp_path)
    (tmp_path / "gemm").mkdir()
    rules = [{"when": {"m_max": 16}, "config": {}, "source": "a"}, {"when": {}, "config": {}, "source": "b"}]
    (tmp_path / "gemm" / "default.json").write_text(json.dumps({"schema": 2, "rules": rules}))
    rule = {"when": {}, "config": {"BLOCK": 1}, "source": "swept"}
    found: dict[str, Any] = {"kernel": "gemm", "backend": backend, "arch": "sm_90", "rules": [rule]}
    path = program.apply(found)
    assert path == tmp_path / "gemm" / "sm_90.json"
    assert json.loads(path.read_text())["rules"] == [found["rules"][0], rules[0]]


@pytest.mark.parametrize("name", SWEEPS)
def test_sweeps_name_what_exists(program: ModuleType, name: str) -> None:
    """Kernel, backend and workloads exist, candidates hold what the kernel is configured by, and no class is empty."""
    sweep = importlib.import_module(f"benchmarks.sweeps.{name}").SWEEP
    registry = Registry()
    kernels.register(registry)
    backend = registry.get(sweep.backend)
    assert isinstance(backend, Configured)
    (space,) = [space for space in backend.spaces if space.kernel == sweep.kernel]
    assert space.config_path("default").is_file()
    for size in sweep.classes:
        assert size.candidates
        assert {parse_workload(text).family for text in size.workloads} <= set(backend.families)
        for candidate in size.candidates:
            assert space.required <= candidate.keys() <= space.constants.keys() | space.options
        wanted = {name.removesuffix("_max").removesuffix("_min") for name in size.when}
        assert wanted <= set(space.properties)


def test_says_what_it_needs() -> None:
    """Without names, and without a GPU, one line says so."""
    program = BENCHMARKS / "sweep_configs.py"
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, "needs names of sweeps and --out" in done.stderr) == (2, True)
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU; the program would tune for minutes")
    command = [sys.executable, str(program), "gemm", "--out", "unused"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "needs a GPU that torch can use" in done.stderr) == (2, True)
