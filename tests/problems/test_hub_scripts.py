from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.problems.hub_scripts import find_scripts, read_workloads

HEAD = "from kernels.benchmark import Benchmark\nimport kernels\nraise SystemExit('executed')\n"
TWO = """
class Base(kernels.benchmark.Benchmark):
    def benchmark_small(self): ...
    def verify_small(self): ...

class Large(Base):
    benchmark_large = Base.benchmark_small
    def verify_large(self): ...

class Other:
    def helper(self): ...
"""


def written(folder: Path, code: str, name: str = "benchmark_a.py") -> Path:
    """A script."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(HEAD + code)
    return path


def test_workloads_are_read_and_not_executed(tmp_path: Path) -> None:
    """Every benchmark_NAME of a class, inherited and assigned ones too, and whether a verify_NAME is there."""
    found = read_workloads(written(tmp_path, TWO + "class C(Benchmark):\n def benchmark_x(self): ...\n"))
    assert [(one.kind, one.name, one.is_verified) for one in found] == [
        ("Base", "small", True),
        ("Large", "small", True),
        ("Large", "large", True),
        ("C", "x", False),
    ]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", r"benchmark_a\.py has no class that derives from kernels\.benchmark\.Benchmark"),
        ("class A: ...\nclass B(A): ...\n", r"derives from kernels\.benchmark\.Benchmark; it has the classes A, B"),
        ("class A(Benchmark): ...\n", r"class A has no method benchmark_NAME; add one, or drop the class"),
        ("class A(B):\n def benchmark_x(self): ...\n", r"class A derives from B, which the file does not define: what"),
        (
            "class A(Benchmark):\n def benchmark_large(self): ...\n def verify_lrage(self): ...\n",
            r"A\.verify_lrage has no benchmark_lrage \(did you mean 'large'\?\): nothing would run it; rename one",
        ),
        ("class A(\n", r"benchmark_a\.py is no Python file: "),
        ("\x00", r"benchmark_a\.py is no Python file: "),
        ("x = " + "(" * 100_000, r"benchmark_a\.py is no Python file: "),
    ],
)
def test_a_script_that_breaks_the_convention(tmp_path: Path, code: str, said: str) -> None:
    """The file, the class and what to do are named."""
    with pytest.raises(UsageError, match=said):
        read_workloads(written(tmp_path, code))


def test_where_scripts_are_found(tmp_path: Path) -> None:
    """In benchmarks/ of a repository, in the folder itself, or the one file."""
    first = written(tmp_path / "benchmarks", TWO)
    second = written(tmp_path / "benchmarks", TWO, "benchmark.py")
    written(tmp_path / "benchmarks", TWO, "other.py")
    assert find_scripts(tmp_path) == find_scripts(tmp_path / "benchmarks") == (second, first)
    assert find_scripts(first) == (first,)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty has no benchmark\*\.py, and no benchmarks/benchmark\*\.py; name a"):
        find_scripts(tmp_path / "empty")
    with pytest.raises(UsageError, match=r"there is no .*none; name a kernel repository"):
        find_scripts(tmp_path / "none")


def test_a_pipe_and_a_huge_file_are_refused(tmp_path: Path) -> None:
    """Reading ends at once."""
    os.mkfifo(tmp_path / "benchmark_pipe.py")
    with pytest.raises(UsageError, match="is a pipe"):
        read_workloads(tmp_path / "benchmark_pipe.py")
    with (tmp_path / "benchmark_huge.py").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UsageError, match="at most 1,048,576 are read"):
        read_workloads(tmp_path / "benchmark_huge.py")
