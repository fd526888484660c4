"""benchmarks/bandwidth_plateau.py: shares of peak and plateau, and a run on a CPU."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "bandwidth_plateau.py"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("bandwidth_plateau", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bandwidth_plateau"] = module
    spec.loader.exec_module(module)
    return module


def test_the_plateau_is_the_fastest_size_in_memory(program: ModuleType) -> None:
    """Sizes that a cache may hold are faster, and do not count; shares are of the peak and of the plateau."""
    rows = [
        program.Row("copy", 1, 2.0 * 2**20, 8000.0, False),
        program.Row("copy", 512, 1024.0 * 2**20, 3000.0, True),
        program.Row("copy", 1024, 2048.0 * 2**20, 4000.0, True),
    ]
    shared = program.shared(rows, 4800.0)
    assert [row.share_of_plateau for row in shared] == [2.0, 0.75, 1.0]
    assert [row.share_of_peak for row in shared] == pytest.approx([5 / 3, 0.625, 5 / 6])
    lines = program.table(shared).splitlines()
    assert lines[1].split() == ["copy", "1", "2.0", "8000.0", "166.7%", "200.0%"]
    assert lines[3].split() == ["copy", "1024", "2048.0", "4000.0", "83.3%", "100.0%", "*"]


def test_unknown_shares_are_left_out(program: ModuleType) -> None:
    """Without a peak in the table of devices, and without a size in memory, there is nothing to be a share of."""
    (row,) = program.shared([program.Row("read", 1, 2.0**20, 10.0, False)], None)
    assert (row.share_of_peak, row.share_of_plateau) == (None, None)
    assert program.table([row]).splitlines()[1].split() == ["read", "1", "1.0", "10.0", "-", "-"]


def test_sizes_are_powers_of_two_up_to_the_largest(program: ModuleType) -> None:
    """From 1 MiB on, without exceeding what was asked for."""
    assert program.sizes(8) == [1, 2, 4, 8]
    assert program.sizes(9) == [1, 2, 4, 8]
    assert program.sizes(1) == [1]


def test_a_run_on_a_cpu_prints_and_stores_every_kind(tmp_path: Path) -> None:
    """Every kind is measured at the one size asked for, and the stored figures are those printed."""
    pytest.importorskip("torch")
    path = tmp_path / "plateau.json"
    command = [sys.executable, str(PROGRAM), "--largest-mib", "1", "--backend", "native.copy_", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    held = json.loads(path.read_text())
    assert [row["kind"] for row in held["rows"]] == ["copy", "read", "write", "triad"]
    assert all(row["gb_s"] > 0 for row in held["rows"])
    assert held["backend"] in done.stdout
    assert len(done.stdout.splitlines()) == 2 + 4


def test_bad_arguments_are_refused() -> None:
    """A size below 1 MiB is refused with the value seen."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--largest-mib", "-4"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--largest-mib must be at least 1, got -4" in done.stderr
