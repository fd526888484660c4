"""How a worker is started: its command line and its environment. Pure; `controller.py` runs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest_attnperf
from pytest_attnperf.records import Role

SCRUBBED = ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST")
SCRUBBED_PREFIXES = ("PYTEST_XDIST_",)
VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Set to one GPU per worker; ROCR_VISIBLE_DEVICES is left alone, because HIP counts within what it leaves."""

START = "import sys; del sys.path[: sys.path[0] == '']; import pytest_attnperf, pytest; sys.exit(pytest.main())"
"""What a worker's interpreter runs. Not `-m pytest`, which puts the current folder first on the path, before the
harness: in a base tree that holds an older copy of this package, that copy would run. Imported first for the same
reason: pytest puts what the tree's `pythonpath` setting names before everything else."""

FP_FUSION = "TRITON_DEFAULT_FP_FUSION"
"""Whether Triton joins a multiplication and an addition to one instruction where a kernel does not say. On to Triton
3.9, off from 3.10 on, which says so itself; every version is to compile what stored baselines were measured with."""

TEMPLATE = "template:"
"""Stands before the descriptor of a process that workers are to be forked from."""

WORKER_NAME = "ATTNPERF_WORKER"
"""Environment variable that tells a worker its own name, for logs and for the fake device's biases."""


@dataclass(frozen=True)
class LaunchPlan:
    """Everything that is the same for every worker of a run.

    files          test files holding the selected cases, as given to pytest
    rootdir        the tree whose suites and kernels run
    scratch        a folder of this run, for logs and private cache directories
    passed_options options of the user's command line that a worker needs too
    moved          for a base side in another tree (old, new): the folder it stands in for and the folder it is.
                   Entries of the inherited PYTHONPATH inside the old are read as inside the new
    selected       files and folders that were asked for as a whole; empty where only some of their cases were
    patterns       names of test files
    """

    files: Sequence[str]
    rootdir: Path
    scratch: Path
    role: Role
    config_file: Path | None = None
    import_mode: str = "prepend"
    passed_options: Sequence[str] = ()
    python: str = sys.executable
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    moved: tuple[Path, Path] | None = None
    selected: Sequence[Path] = ()
    patterns: Sequence[str] = ("test_*.py", "*_test.py")

    @property
    def harness(self) -> Path:
        """A folder that holds a link to this harness and nothing else.

        First on the worker's path, so that every side runs the working tree's harness, whatever is installed in its
        interpreter, without seeing the other packages that stand beside it.
        """
        return self.scratch / "harness"

    def link_harness(self) -> None:
        """Make the harness folder; does nothing when it stands already."""
        self.harness.mkdir(parents=True, exist_ok=True)
        link = self.harness / pytest_attnperf.__name__
        if not link.is_symlink():
            link.symlink_to(Path(pytest_attnperf.__file__).resolve().parent, target_is_directory=True)

    def make_command(self, fd: int | str, name: str) -> list[str]:
        """The worker's argv. `addopts` is emptied: `-n2`, `--lf` or `--junitxml` in it would act in the worker."""
        config = ["-c", str(self.config_file)] if self.config_file else []
        return [
            self.python,
            "-c",
            START,
            "-p",
            "pytest_attnperf.plugin.worker_session",
            *config,
            f"--rootdir={self.rootdir}",
            f"--confcutdir={self.rootdir}",
            f"--import-mode={self.import_mode}",
            *self.passed_options,
            "-o",
            "addopts=",
            "-o",
            f"cache_dir={self.scratch / (name + '.cache')}",
            "-s",
            "-q",
            "--runxfail",  # what a case is expected to do is no reason to judge it otherwise
            f"--attnperf-worker-fd={fd}",
            *self.files,
        ]

    def make_environment(self, base: Mapping[str, str], name: str, gpu: str | None) -> dict[str, str]:
        """The worker's environment: scrubbed of what would change its session, pinned to one GPU where given."""
        kept = {
            key: value for key, value in base.items() if key not in SCRUBBED and not key.startswith(SCRUBBED_PREFIXES)
        }
        kept["PYTHONUNBUFFERED"] = "1"
        kept[WORKER_NAME] = name
        if self.role is Role.INTERPRET:
            kept["TRITON_INTERPRET"] = "1"
            # Threads that meet at every barrier measure the scheduler of a shared machine: on two busy cores one of
            # them waits a whole time slice (4 ms) for the other. The thread count is part of the fingerprint.
            kept.setdefault("OMP_NUM_THREADS", "1")
        else:
            kept.pop("TRITON_INTERPRET", None)
        kept.setdefault(FP_FUSION, "1")
        kept["PYTHONPATH"] = os.pathsep.join(self._make_import_path(kept.get("PYTHONPATH", "")))
        if gpu is not None:
            kept.update(dict.fromkeys(VISIBLE_DEVICES, gpu))
        return {**kept, **self.extra_environment}

    def _make_import_path(self, inherited: str) -> list[str]:
        """The harness before the tree, and the tree before everything inherited or installed."""
        entries = [entry for entry in inherited.split(os.pathsep) if entry]
        if self.moved is not None:
            old, new = self.moved
            entries = [_move_entry(Path(os.path.abspath(entry)), old, new) for entry in entries]
        return list(dict.fromkeys([str(self.harness), str(self.rootdir), *entries]))


def _move_entry(entry: Path, old: Path, new: Path) -> str:
    """An entry of the import path as the other tree has it. An environment inside the old tree is no part of it."""
    resolved = entry.resolve()
    if not resolved.is_relative_to(old):
        return str(entry)
    part = resolved.relative_to(old)
    installed = any(name.startswith(".") or name == "site-packages" for name in part.parts)
    return str(entry if installed else new / part)
