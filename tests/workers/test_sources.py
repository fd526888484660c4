"""Whose code ran: files by content, and what judges and measures is the package's own code, or the case fails."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import pytest_attnperf.correctness.judge
import pytest_attnperf.measure.subject
import pytest_attnperf.workloads.adhoc
from pytest_attnperf.correctness import metrics
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.testing.project import full_results
from pytest_attnperf.workers.sources import OwnCode, loaded_sources
from pytest_attnperf.workloads import attention_math, prefill


def module(name: str, path: Path) -> ModuleType:
    """A loaded module of that file."""
    made = ModuleType(name)
    made.__file__ = str(path)
    return made


def write(path: Path, text: str) -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_loaded_files_of_the_tree_are_hashed(tmp_path: Path) -> None:
    """Each loaded module of the repository is named relative to it, with its content's SHA-256."""
    path = write(tmp_path / "kernels" / "flash.py", "x = 1\n")
    hashes, foreign = loaded_sources(tmp_path, {"kernels.flash": module("kernels.flash", path)})
    assert hashes == {"kernels/flash.py": hashlib.sha256(b"x = 1\n").hexdigest()}
    assert foreign == []


def test_a_changed_file_changes_the_hash(tmp_path: Path) -> None:
    """Hashes follow the content, although they are remembered between cases."""
    path = write(tmp_path / "kernels" / "flash.py", "x = 1\n")
    modules = {"kernels.flash": module("kernels.flash", path)}
    before, _ = loaded_sources(tmp_path, modules)
    path.write_text("x = 22\n")
    after, _ = loaded_sources(tmp_path, modules)
    assert before != after


def test_silent_a_against_a_is_named(tmp_path: Path) -> None:
    """A module whose package stands in this tree but was loaded from another one is reported with both paths."""
    write(tmp_path / "here" / "kernels" / "flash.py", "x = 1\n")
    other = write(tmp_path / "other" / "kernels" / "flash.py", "x = 1\n")
    _, foreign = loaded_sources(tmp_path / "here", {"kernels.flash": module("kernels.flash", other)})
    assert len(foreign) == 1
    assert "kernels.flash was loaded from" in foreign[0]
    assert str(other) in foreign[0]


def test_a_package_of_another_tree_is_named_once(tmp_path: Path) -> None:
    """With its first module, and the number of the others."""
    write(tmp_path / "here" / "kernels" / "flash.py", "x = 1\n")
    names = ("kernels", "kernels.decode", "kernels.flash")
    others = {name: module(name, write(tmp_path / "other" / f"{name}.py", "")) for name in names}
    _, foreign = loaded_sources(tmp_path / "here", others)
    assert len(foreign) == 1
    assert foreign[0].startswith("module kernels was loaded from")
    assert foreign[0].endswith(", and so were 2 more of kernels")


def test_tests_may_stand_in_a_folder_called_like_an_installed_package(tmp_path: Path) -> None:
    """A folder of nothing but tests is not the package that its tests import."""
    write(tmp_path / "here" / "xformers" / "test_norms.py", "")
    write(tmp_path / "here" / "xformers" / "conftest.py", "")
    installed = {"xformers": module("xformers", write(tmp_path / "installed" / "xformers" / "__init__.py", ""))}
    assert loaded_sources(tmp_path / "here", installed) == ({}, [])


def test_installed_packages_are_not_the_repository(tmp_path: Path) -> None:
    """A virtual environment inside the tree, the harness itself, and other packages are left out."""
    inside = write(tmp_path / ".venv" / "lib" / "site-packages" / "torch" / "x.py", "")
    harness = write(tmp_path / "pytest_attnperf" / "x.py", "")
    elsewhere = write(tmp_path.parent / "elsewhere" / "scipy.py", "")
    hashes, foreign = loaded_sources(
        tmp_path,
        {
            "torch.x": module("torch.x", inside),
            "pytest_attnperf.x": module("pytest_attnperf.x", harness),
            "scipy": module("scipy", elsewhere),
        },
    )
    assert (hashes, foreign) == ({}, [])


BY = f"was replaced by {__file__}:"


def another(*_: Any, **__: Any) -> Any:
    """Anything."""


@pytest.fixture
def looked() -> OwnCode:
    """What has looked once, and seen nothing."""
    own = OwnCode()
    assert own.find_problem() == ""
    return own


def test_nothing_is_said_of_the_package_as_it_is(looked: OwnCode) -> None:
    """Dataclasses, properties, decorated functions and what is imported from libraries are no replacement."""
    assert looked.find_problem() == ""
    assert OwnCode().find_problem() == ""


REPLACED = [
    (attention_math, "compute_reference", "workloads.attention_math.compute_reference"),
    (prefill.Prefill, "reference", "workloads.prefill.Prefill.reference"),
    (metrics, "compare_output", "correctness.metrics.compare_output"),
    (HostTimer, "_calls_us", "measure.timers.host.HostTimer._calls_us"),
    (HostTimer, "measure", "measure.timers.host.HostTimer.measure"),
    (pytest_attnperf.correctness.judge, "Judge", "correctness.judge.Judge"),
]


@pytest.mark.parametrize(("owner", "name", "said"), REPLACED, ids=[case[2] for case in REPLACED])
def test_a_replaced_function_is_named(
    owner: Any, name: str, said: str, looked: OwnCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first look, as a conftest does it, and after it, as a test or a kernel does."""
    assert hasattr(owner, name)
    monkeypatch.setattr(owner, name, another)
    for own in (OwnCode(), looked):
        found = own.find_problem()
        assert found.startswith(f"pytest_attnperf.{said} {BY}"), found
        assert "Remove the replacement" in found
    monkeypatch.undo()
    assert looked.find_problem() == ""


IN_TORCH = [
    (torch, "equal", "torch.equal"),
    (torch.linalg, "vector_norm", "torch.linalg.vector_norm"),
    (torch.cuda, "synchronize", "torch.cuda.synchronize"),
    (torch.cuda.Event, "elapsed_time", "torch.cuda.Event.elapsed_time"),
    (torch.Tensor, "clone", "torch.Tensor.clone"),
    (torch.Tensor, "__sub__", "torch.Tensor.__sub__"),
]


@pytest.mark.parametrize(("owner", "name", "said"), IN_TORCH, ids=[case[2] for case in IN_TORCH])
def test_a_replaced_function_of_torch_is_named(
    owner: Any, name: str, said: str, looked: OwnCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison that always agrees, a clock that reads less, a copy that is none."""
    own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, another)
    try:
        found = looked.find_problem()
    finally:
        setattr(owner, name, before) if own else delattr(owner, name)
    assert found.startswith(f"{said} {BY}"), found
    assert looked.find_problem() == ""


def test_what_a_project_adds_to_torch_is_no_replacement(looked: OwnCode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method of another name, and a function that neither judges nor measures."""
    monkeypatch.setattr(torch.Tensor, "in_our_layout", another, raising=False)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", another)
    assert looked.find_problem() == ""


def test_a_class_of_a_suites_own_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its methods need not be looked at."""
    monkeypatch.setattr(pytest_attnperf.correctness.judge, "Judge", type("Judge", (), {"__module__": __name__}))
    assert OwnCode().find_problem().startswith(f"pytest_attnperf.correctness.judge.Judge was replaced by {__file__}")


def test_a_replaced_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without a file, or with a file elsewhere, is none of the package's."""
    fake = ModuleType("pytest_attnperf.workloads.attention_math")
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    assert OwnCode().find_problem().startswith(f"{fake.__name__} was replaced by a module without a file")
    fake.__file__ = __file__
    assert OwnCode().find_problem().startswith(f"{fake.__name__} was replaced by {__file__}")


CONFTEST = """
from pytest_attnperf.correctness import metrics
from pytest_attnperf.measure.timers.host import HostTimer

def replaced(real):
    return lambda *args, **kwargs: real(*args, **kwargs)
"""
REPLACING = {
    "comparison": ("metrics.compare_output = replaced(metrics.compare_output)", "correctness.metrics.compare_output"),
    "timer": ("HostTimer._calls_us = replaced(HostTimer._calls_us)", "measure.timers.host.HostTimer._calls_us"),
}
SUITE = """
import torch

def softmax(x):
    return torch.softmax(x, -1)

def test_softmax(attnperf):
    attnperf.gate("softmax", softmax, reference=softmax, inputs=lambda seed: torch.randn(16, 64))
"""


@pytest.mark.parametrize(("code", "said"), REPLACING.values(), ids=REPLACING)
def test_a_conftest_that_replaces_our_code_gets_no_verdict(pytester: pytest.Pytester, code: str, said: str) -> None:
    """What a user types: the case is an ERROR that names what was replaced, and where."""
    pytester.makeconftest(CONFTEST + code + "\n")
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess("--attnperf-device=cpu", "-p", "no:randomly")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"*pytest_attnperf.{said} was replaced by *conftest.py:*"])


def test_a_conftest_that_replaces_the_clock_changes_no_time(pytester: pytest.Pytester) -> None:
    """A suite that freezes `time.perf_counter_ns`, as libraries for tests of dates do, is timed as it is."""
    pytester.makeconftest("import time\ntime.perf_counter_ns = lambda: 0\n")
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess("--attnperf", "--attnperf-device=cpu", "-p", "no:randomly", "-rA")
    result.stdout.fnmatch_lines(["*NO_BASELINE*"])
    (case,) = full_results(pytester.path / ".attnperf" / "results.json")["cases"]
    assert 1.0 < case["median_us"] < 1e5
