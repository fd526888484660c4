"""Benchmark scripts of Hugging Face's `kernels` as gated cases.

    from pytest_attnperf.problems import hub_kernels

    @pytest.mark.parametrize("problem", hub_kernels.list_problems("activation"), ids=str)
    def test_hub(attnperf, problem):
        problem.gate(attnperf)

A case is a method `benchmark_NAME` of a subclass of `kernels.benchmark.Benchmark`, proven against `verify_NAME`. The
tensors that `setup_NAME` (else `setup`) stores in attributes are its inputs, drawn again for every seed; `self.out` is
its result. https://github.com/huggingface/kernels, docs/source/cli-benchmark.md; its own check is one allclose with
atol=1e-2. The code of scripts and kernels is executed in the worker: read it before.
"""

from __future__ import annotations

import importlib
import os
import re
import unittest
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_attnperf.errors import UnsupportedError, UsageError
from pytest_attnperf.problems.hub_instance import HubInstance
from pytest_attnperf.problems.hub_scripts import FOLDER, VERIFY, ScriptWorkload, find_scripts, read_workloads

if TYPE_CHECKING:
    from pytest_attnperf.plugin.fixtures import CaseHandle

Kernel: TypeAlias = "str | os.PathLike[str] | Callable[[], Any]"
"""See `list_problems`."""

LIBRARY = "kernels"


@dataclass(frozen=True)
class HubProblem:
    """A workload of a script, and the kernel that it runs; str() of it is the test's id."""

    id: str
    workload: ScriptWorkload
    kernel: Kernel

    def __str__(self) -> str:
        return self.id

    def gate(self, attnperf: CaseHandle, **options: Any) -> None:
        """Proves the workload right; with `--attnperf` also measures and gates it. `options` are those of
        `attnperf.gate`, such as flops or costs. Skips the test, which makes the case UNSUPPORTED, where the library
        `kernels` or a reference is missing, or setup stores objects whose tensors cannot be replaced. Raises UsageError
        for a script that breaks its convention."""
        workload = self.workload
        if not workload.is_verified:
            raise unittest.SkipTest(
                f"{workload.kind} has no {VERIFY}{workload.name}: there is nothing to prove the result with; add it"
            )
        try:
            case = HubInstance(workload, load_kernel(self.kernel))
        except UnsupportedError as error:
            raise unittest.SkipTest(str(error)) from error
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != LIBRARY:
                raise
            raise unittest.SkipTest(
                f"{workload.script.name} or its kernel needs the library {LIBRARY!r}: pip install {LIBRARY}"
            ) from error
        attnperf.gate(
            _clean(workload.kind), case.call, reference=case.reference, inputs=case.make_inputs,
            **{"contiguous": True, "in_place": case.in_place, **options},
        )  # fmt: skip


def list_problems(path: str | os.PathLike[str], *, kernel: Kernel | None = None) -> list[HubProblem]:
    """Returns the workloads of all scripts, in the order of files, classes and methods. Reads the scripts only.

    path     a kernel repository, whose benchmarks/benchmark*.py are read, a folder of such scripts, or one script
    kernel   what `self.kernel` is: a repository of the Hub with its revision ('kernels-community/activation@v1'), a
             folder with a built kernel, or a function that returns it; None for `path` as a folder with a built one

    Raises UsageError as `hub_scripts.find_scripts` and `read_workloads` do.
    """
    root = Path(path).resolve()
    scripts = find_scripts(root)
    workloads = [workload for script in scripts for workload in read_workloads(script)]
    names = [f"{_clean(one.kind)}.{_clean(one.name)}" for one in workloads]
    counts = Counter(names)
    ids = [
        name if counts[name] == 1 else f"{_clean(one.script.stem)}.{name}"
        for name, one in zip(names, workloads, strict=True)
    ]
    if repeated := [one for one, count in Counter(ids).items() if count > 1]:
        raise UsageError(f"{root}: two workloads are named {repeated[0]}; rename one")
    chosen = kernel if kernel is not None else _find_repository(root)
    return [HubProblem(name, workload, chosen) for name, workload in zip(ids, workloads, strict=True)]


def load_kernel(kernel: Kernel) -> Any:
    """Returns the kernel of a function, a folder with a built one, or a repository of the Hub at a revision.

    Raises UsageError for a text that is neither a folder nor OWNER/NAME@REVISION, ModuleNotFoundError without the
    library, and what loading raises.
    """
    if callable(kernel):
        return kernel()
    folder = Path(kernel)
    name, _, revision = str(kernel).partition("@")
    is_hub = isinstance(kernel, str) and name.count("/") == 1 and not name.startswith((".", "/"))
    if not folder.exists() and not (is_hub and revision):
        raise UsageError(
            f"kernel is {str(kernel)[:200]!r}: there is no such folder, and a repository of the Hub needs a revision, "
            "as in 'kernels-community/activation@v1'"
        )
    # Hugging Face's library; where this package is developed, a folder has that name.
    kernels: Any = importlib.import_module(LIBRARY)
    if not hasattr(kernels, "get_kernel"):
        raise ModuleNotFoundError(f"{kernels!r} is not Hugging Face's library", name=LIBRARY)
    return kernels.get_local_kernel(folder) if folder.exists() else kernels.get_kernel(name, revision=revision)


def _find_repository(root: Path) -> Path:
    """Returns the folder of a kernel repository: the path itself, or what holds its benchmarks/."""
    folder = root.parent if root.is_file() else root
    return folder.parent if folder.name == FOLDER else folder


def _clean(name: str) -> str:
    """Returns a name with '_' for everything that a test's id or a backend's name may not have."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
