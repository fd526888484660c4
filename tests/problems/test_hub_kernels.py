"""Scripts of Hugging Face's `kernels`, whose library is not installed here: a stand-in has its names."""

from __future__ import annotations

import sys
import types
import unittest
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.problems.hub_kernels import list_problems, load_kernel
from tests.problems.hub_stub import ACTIVATION, BENCHMARK, LIBRARY, write_library, write_repository

SUITE = """
import pytest
from pytest_attnperf.problems import hub_kernels

@pytest.mark.parametrize("problem", hub_kernels.list_problems("repository"), ids=str)
def test_hub(attnperf, problem):
    problem.gate(attnperf)
"""
MORE = """
    def benchmark_unproven(self):
        pass

    def benchmark_broken(self):
        self.kernel.silu_and_mul(self.out, self.x)

    def verify_broken(self):
        return self.x @ self.x
"""


def test_a_repository_is_gated(
    pytester: pytest.Pytester, lean_processes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An honest kernel passes; one that leaves out a row is INCORRECT, and a reference that fails an ERROR, each by its
    class and name; what has no reference is skipped with the reason."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(write_library(pytester.path / "site")), prepend=":")
    write_repository(pytester.path / "repository", ACTIVATION + MORE)
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_suite=SUITE)
    result = pytester.runpytest_subprocess("-p", "no:randomly", "--attnperf-device=cpu", "-rs", timeout=300)
    result.assert_outcomes(passed=1, failed=2, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "INCORRECT: suite/gate/test_hub?Activation.wrong?",
            "*32 of 1024 elements beyond, all in ?31, 0:32?*",
            "ERROR: suite/gate/test_hub?Activation.broken?",
            "*SKIPPED*Activation has no verify_unproven: there is nothing to prove the result with; add it",
        ]
    )


def test_without_the_library_cases_are_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason says what to install. What else a script or a kernel needs and cannot import is an error."""
    monkeypatch.setitem(sys.modules, "kernels", None)
    handle: Any = None
    write_repository(tmp_path)

    def need_another() -> None:
        raise ModuleNotFoundError("no not_there", name="not_there")

    for kernel in (None, lambda: None):
        with pytest.raises(
            unittest.SkipTest, match=r"benchmark_activation\.py or its kernel needs the library 'kernels'"
        ):
            list_problems(tmp_path, kernel=kernel)[0].gate(handle)
    with pytest.raises(ModuleNotFoundError, match="not_there"):
        list_problems(tmp_path, kernel=need_another)[0].gate(handle)


def test_objects_of_tensors_are_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The case is skipped with the attribute's name, not judged by half."""
    for name, code in (("kernels", LIBRARY), ("kernels.benchmark", BENCHMARK)):
        module = types.ModuleType(name)
        exec(code, vars(module))
        monkeypatch.setitem(sys.modules, name, module)
    handle: Any = None
    write_repository(
        tmp_path, ACTIVATION.replace("        self.x =", "        self.layer = torch.nn.ReLU()\n        self.x =")
    )
    with pytest.raises(
        unittest.SkipTest, match="setup stores ReLU in layer: tensors in it cannot be given other values"
    ):
        list_problems(tmp_path)[0].gate(handle)


def test_ids_are_class_and_name(tmp_path: Path) -> None:
    """With the file where two scripts share them; the same from the repository, its folder and the script."""
    script = write_repository(tmp_path)
    assert [str(one) for one in list_problems(tmp_path)] == ["Activation.honest", "Activation.wrong"]
    assert list_problems(script) == list_problems(script.parent) == list_problems(tmp_path)
    (script.parent / "benchmark_b.py").write_text(script.read_text())
    assert str(list_problems(tmp_path)[3]) == "benchmark_b.Activation.wrong"


def test_two_workloads_of_one_name_are_refused(tmp_path: Path) -> None:
    """Letters that an id may not have become '_'."""
    methods = "".join(f"    def benchmark_{name}(self): ...\n" for name in ("é", "è"))
    write_repository(tmp_path, f"class A(Benchmark):\n{methods}")
    with pytest.raises(UsageError, match=r"two workloads are named benchmark_activation\.A\._; rename one"):
        list_problems(tmp_path)


def test_where_a_kernel_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function, a folder that is built, or a repository of the Hub at a revision."""
    library: Any = types.ModuleType("kernels")
    exec(LIBRARY, vars(library))
    monkeypatch.setitem(sys.modules, "kernels", library)
    write_repository(tmp_path)
    assert load_kernel(lambda: 7) == 7
    assert load_kernel(tmp_path).silu_and_mul is not None
    assert load_kernel("kernels-community/activation@v1") == ("kernels-community/activation", "v1")
    for wrong in ("kernels-community/activation", "./none@v1", "a/b/c@v1", "none"):
        with pytest.raises(UsageError, match=r"there is no such folder, and a repository of the Hub needs a revision"):
            load_kernel(wrong)


def test_another_library_of_that_name_is_not_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder `kernels` on the path is no reason to fail with an attribute that it lacks."""
    monkeypatch.setitem(sys.modules, "kernels", types.ModuleType("kernels"))
    with pytest.raises(ModuleNotFoundError, match="is not Hugging Face's library"):
        load_kernel(tmp_path)
