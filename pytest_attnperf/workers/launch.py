"""Command line and environment of a worker; `controller.py` starts it."""

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
"""Set to one GPU per worker. ROCR_VISIBLE_DEVICES is not changed, because HIP counts within it."""

START = "import sys; del sys.path[: sys.path[0] == '']; import pytest_attnperf, pytest; sys.exit(pytest.main())"
"""Code that a worker's interpreter runs. `-m pytest` would put the current folder first on the path, before the
harness: in a base tree with an older copy of this package, that copy would run. The package is imported first for the
same reason: pytest puts folders of the tree's `pythonpath` setting before all others."""

FP_FUSION = "TRITON_DEFAULT_FP_FUSION"
"""Whether Triton fuses a multiplication and an addition by default. It does up to 3.9, but not from 3.10 on. It
is set, so that every version compiles as it did for stored baselines."""

EXIT_LIMIT_SECONDS = 10.0

TEMPLATE = "template:"
"""Prefix of the descriptor in `--attnperf-worker-fd` for a template, from which workers are forked."""

WORKER_NAME = "ATTNPERF_WORKER"
"""Environment variable with a worker's own name, for logs and for the fake device's biases."""

IMPORTED = "ATTNPERF_IMPORTED"
"""Environment variable with the folder into which a worker writes what it has imported; see
`plugin/imported_modules.py`."""


@dataclass(frozen=True)
class LaunchPlan:
    """What is the same for all workers of a run.

    files          test files with the selected cases, as given to pytest
    rootdir        tree whose suites and kernels run
    scratch        folder of this run, for logs and private cache folders
    passed_options options of the user's command line that workers also need
    moved          for a base side in another tree: (folder of the working tree, its counterpart). Entries of the
                   inherited PYTHONPATH inside the first are moved to the second
    selected       files and folders that are selected as a whole; empty if a filter selects only some of their cases
    patterns       name patterns of test files
    wrapped_by     words before the command of a worker: a program that runs it and watches it
    forks          whether workers may be forked from one that is started ahead
    exit_seconds   how long a worker may take to end once it is asked to
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
    wrapped_by: Sequence[str] = ()
    forks: bool = True
    exit_seconds: float = EXIT_LIMIT_SECONDS

    @property
    def harness(self) -> Path:
        """A folder that contains only a link to this package.

        It is first on the worker's path, so that every side runs the working tree's harness, whatever its interpreter
        has installed, without seeing other packages next to it.
        """
        return self.scratch / "harness"

    def link_harness(self) -> None:
        """Makes the folder `harness` and its link to this package, if they do not exist."""
        self.harness.mkdir(parents=True, exist_ok=True)
        link = self.harness / pytest_attnperf.__name__
        if not link.is_symlink():
            link.symlink_to(Path(pytest_attnperf.__file__).resolve().parent, target_is_directory=True)

    def make_command(self, fd: int | str, name: str) -> list[str]:
        """Returns the worker's argv; `fd` is its channel, `name` names its cache folder. It clears `addopts`: `-n2`,
        `--lf` or `--junitxml` must not act in the worker."""
        config = ["-c", str(self.config_file)] if self.config_file else []
        return [
            *self.wrapped_by,
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
            "--runxfail",  # an xfail mark must not change the judging of a case
            f"--attnperf-worker-fd={fd}",
            *self.files,
        ]

    def make_environment(self, base: Mapping[str, str], name: str, gpu: str | None) -> dict[str, str]:
        """Returns the environment of worker `name`: `base` without variables that would change its session, plus its
        own and `extra_environment`. Only GPU `gpu` is visible; None leaves the GPUs as they are."""
        kept = {
            key: value for key, value in base.items() if key not in SCRUBBED and not key.startswith(SCRUBBED_PREFIXES)
        }
        kept["PYTHONUNBUFFERED"] = "1"
        kept[WORKER_NAME] = name
        if self.role is Role.INTERPRET:
            kept["TRITON_INTERPRET"] = "1"
            # Threads that wait for each other at barriers would measure the scheduler of a shared machine: on two busy
            # cores one waits a whole time slice (4 ms) for the other. The thread count is in the fingerprint.
            kept.setdefault("OMP_NUM_THREADS", "1")
        else:
            kept.pop("TRITON_INTERPRET", None)
        kept.setdefault(FP_FUSION, "1")
        kept["PYTHONPATH"] = os.pathsep.join(self._make_import_path(kept.get("PYTHONPATH", "")))
        if gpu is not None:
            kept.update(dict.fromkeys(VISIBLE_DEVICES, gpu))
        return {**kept, **self.extra_environment}

    def _make_import_path(self, inherited: str) -> list[str]:
        """Returns PYTHONPATH as a list: harness folder, rootdir, then inherited entries, moved by `moved`."""
        entries = [entry for entry in inherited.split(os.pathsep) if entry]
        if self.moved is not None:
            old, new = self.moved
            entries = [_move_entry(Path(os.path.abspath(entry)), old, new) for entry in entries]
        return list(dict.fromkeys([str(self.harness), str(self.rootdir), *entries]))


def _move_entry(entry: Path, old: Path, new: Path) -> str:
    """Returns the import path entry with `old` at its start replaced by `new`. An entry outside `old`, or in a virtual
    environment there, is returned unchanged."""
    resolved = entry.resolve()
    if not resolved.is_relative_to(old):
        return str(entry)
    part = resolved.relative_to(old)
    installed = any(name.startswith(".") or name == "site-packages" for name in part.parts)
    return str(entry if installed else new / part)
