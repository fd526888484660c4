"""Headers of journals: settings, tests, commit and plugin files, which must match for a run to be resumed."""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import stat
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf import __version__
from pytest_attnperf.environment.provenance import without_credentials
from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.config import RunConfig, run_config
from pytest_attnperf.plugin.keys import build_key, case_key
from pytest_attnperf.plugin.session_setup import device_kind
from pytest_attnperf.records import METHOD_VERSION
from pytest_attnperf.reports.files.journal import JOURNAL_SCHEMA, JournalHeader
from pytest_attnperf.session.looking import UNTIMED
from pytest_attnperf.session.resume import list_changed_settings
from pytest_attnperf.session.settings import RunMode, RunSettings

FOLDER = Path(".attnperf") / "journal"
FLAG = "--attnperf-resume"
MEANT = (
    *("isolate", "against", "interleave", "pairs", "build", "timer", "accept", "processes", "second-look"),
    *("effort", "determinism", "trials", "sanitize", "baselines", "worker-args", "seed"),
    *(option.name for option in (*options.CASE_OPTIONS, *options.CODE_OPTIONS)),
)
"""Options that change how verdicts are made. Options that select cases show in the number of tests instead."""

MEANT_FLAGS = ("record_local", "pin_config", "profile", "changed", "invariance")
EVERYWHERE = "."
"""Used instead of a folder: all source and binary files of the tree, because kernels may come from any folder."""

CODE = (
    *(".py", ".pyx", ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".hip", ".inl", ".inc"),
    *(".cl", ".s", ".asm", ".ll", ".bc", ".ptx", ".cubin", ".fatbin", ".hsaco", ".co", ".o", ".a", ".so"),
)
"""Suffixes of source files and of files that are built from them."""

TOOLCHAIN = (
    *("TRITON_", "TORCH", "PYTORCH_", "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_TF32", "HIP_", "HSA_", "ROCR_", "ROCM_"),
    *("ROCBLAS_", "HIPBLASLT_", "AMD_", "GPU_", "AITER_", "FLASH_ATTENTION_", "ATTN", "DISABLE_LLVM_OPT", "MLIR_"),
    *("LLVM_", "OMP_", "MKL_", "KMP_", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONOPTIMIZE"),
)
"""Prefixes of environment variables that compilers, libraries and kernels read."""

PLACE_ONLY = ("_VISIBLE_DEVICES", "_DEVICE_ORDINAL", "_CACHE_DIR", "_CACHE_PATH")
"""Suffixes of variables that are left out: they name devices or folders, and differ between xdist's workers."""

LARGE_BYTES = 1 << 22
"""For a larger file the digest uses size and modification time instead of the contents."""


def refuse_resume(config: pytest.Config, settings: RunSettings) -> None:
    """Raises UsageError if a run with these settings cannot resume an interrupted one."""
    if settings.mode in UNTIMED:
        raise UsageError(f"{FLAG} continues a run that measures: give it with --attnperf or --update-baselines")
    why = _reason_not_resumable(run_config(config), settings)
    if why:
        raise UsageError(f"{FLAG} with {why}; drop one")


def _reason_not_resumable(asked: RunConfig, settings: RunSettings) -> str:
    """Returns why a run with these settings can neither resume nor be resumed; '' if it can."""
    if settings.budget_seconds is not None:
        return "--attnperf-budget: its time was divided among all cases together"
    if settings.isolate == "none":
        return "--attnperf-isolate=none: without workers it is not known which files a case loaded"
    if asked.candidate:
        return "--attnperf-candidate: changes in the files of another tree cannot be seen"
    return ""


def compare_headers(then: JournalHeader, now: JournalHeader) -> list[str]:
    """Returns differences between two runs that prevent resuming, as texts; [] if there are none. A test count of 0 is
    unknown and not compared."""
    found = list_changed_settings({"mode": then.mode, **then.settings}, {"mode": now.mode, **now.settings})
    if then.tests and now.tests and then.tests != now.tests:
        found.append(f"the number of selected tests was {then.tests} and is {now.tests}")
    if then.mode == RunMode.UPDATE.value and then.commit != now.commit:
        found.append(f"the commit was {then.commit} and is {now.commit}")
    plugin = [f"{header.version}, method {header.method}, files {header.harness}" for header in (then, now)]
    if plugin[0] != plugin[1]:
        found.append(f"the plugin was {plugin[0]} and is {plugin[1]}")
    return found


def file_digest(root: Path, name: str) -> str:
    """Returns the SHA-256 of a file of the tree; '' if it does not exist or lies outside the tree."""
    path = (root / name).resolve()
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_relative_to(root.resolve()) else ""
    except (OSError, ValueError):
        return ""


def folder_digest(root: Path, folder: str) -> str:
    """Returns a digest of all files in a top-level folder; with EVERYWHERE of all source and binary files of the tree.
    Returns '' if `folder` is empty, nested or outside.

    Hidden files, caches and installed packages are left out. An unreadable file counts with its error number.
    """
    everywhere = folder == EVERYWHERE
    if folder in ("", "..") or folder != (EVERYWHERE if everywhere else Path(folder).name):  # a journal is untrusted
        return ""
    found = hashlib.sha256()
    for name, folders, files in os.walk(root / folder):
        folders[:] = sorted(inside for inside in folders if not _is_left_out(Path(name, inside)))
        for file in sorted(files):
            path = Path(name, file)
            if file.startswith(".") or path.suffix == ".pyc" or (everywhere and path.suffix.lower() not in CODE):
                continue
            content = _read_content(path)
            found.update(f"{path.relative_to(root).as_posix()} {len(content)} ".encode("utf-8", "surrogateescape"))
            found.update(content)
    return found.hexdigest()[:16]


def _is_left_out(folder: Path) -> bool:
    left_out = folder.name.startswith(".") or folder.name in ("__pycache__", "site-packages", "node_modules")
    return left_out or (folder / "pyvenv.cfg").exists()


def _read_content(path: Path) -> bytes:
    """Returns a file's bytes; size and time if it is large, the error number if unreadable, b'' if no regular file."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return b""
        large = status.st_size > LARGE_BYTES
        return f"{status.st_size} {status.st_mtime_ns}".encode() if large else path.read_bytes()
    except OSError as error:
        return f"unreadable {error.errno}".encode()


@functools.lru_cache(maxsize=1)
def harness_digest() -> str:
    """Returns a digest of the plugin's own files, which can change without a new version."""
    package = Path(__file__).parents[3]
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        found.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]


def collect_verdict_settings(config: pytest.Config, settings: RunSettings) -> dict[str, str]:
    """Returns option or variable -> value, for the settings that change how verdicts are made."""
    asked = run_config(config)
    found = {options.BY_NAME[name].label: asked.text(name) for name in MEANT}
    for name in MEANT_FLAGS:
        found[f"--attnperf-{name.replace('_', '-')}"] = "given" if getattr(asked, name) else ""
    found["--attnperf-override"] = ", ".join(asked.override)
    found["--attnperf-device"] = device_kind(config)[0]
    found |= {f"the variable {name}": value for name, value in toolchain_variables(os.environ).items()}
    if settings.mode is RunMode.CALIBRATE:
        found["--attnperf-calibrate"] = str(settings.processes)
    return found


def toolchain_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns name -> value of the environment variables that change how kernels are compiled or which kernel runs."""
    names = (name for name in sorted(environ) if name.startswith(TOOLCHAIN) and not name.endswith(PLACE_ONLY))
    return {name: environ[name].encode("utf-8", "replace").decode() for name in names if environ[name]}


def make_header(config: pytest.Config, settings: RunSettings, commit: str) -> JournalHeader:
    """Returns the journal header of this run. In xdist's controller the number of tests is 0: not known yet."""
    items = list_selected(config)
    asked = run_config(config)
    typed = [word for word in asked.words if word != FLAG]
    return JournalHeader(
        attnperf_journal=JOURNAL_SCHEMA,
        version=__version__,
        method=METHOD_VERSION,
        harness=harness_digest(),
        mode=settings.mode.value,
        settings=collect_verdict_settings(config, settings),
        tests=len(items),
        selected=sum(case_key(item) is not None or build_key(item) is not None for item in items),
        command=without_credentials(shlex.join(["pytest", *typed])),
        commit=commit,
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        pid=os.getpid(),
        refused=_reason_not_resumable(asked, settings),
    )


def list_selected(config: pytest.Config) -> Sequence[pytest.Item]:
    """Returns the tests of this process; () in xdist's controller, which collects none."""
    session: Any = config.pluginmanager.get_plugin("session")
    return getattr(session, "items", None) or ()


def describe_run(header: JournalHeader) -> str:
    """Returns the name of a run in messages: 'the run of 2026-01-31 12:03 UTC'."""
    return f"the run of {header.started.replace('T', ' ')[:16]} UTC"


def format_resume_command(command: str) -> str:
    """Returns the command that resumes a run started by `command`."""
    return f"{command} {FLAG}"


def describe_differences(then: JournalHeader, now: JournalHeader) -> str:
    """Returns a message on how an interrupted run differs from this one, and what to type instead."""
    found = compare_headers(then, now)
    text = f"{FLAG}: {describe_run(then)}, which was interrupted, differs: {'; '.join(found)}"
    same_plugin = (then.version, then.method, then.harness) == (now.version, now.method, now.harness)
    go_on = f"resume it by: {format_resume_command(then.command)}; or " if same_plugin else ""
    return f"{text}; {go_on}start anew without {FLAG}"


def describe_nothing_to_resume(others: Sequence[JournalHeader]) -> str:
    """Returns a message that there is nothing to resume, with the newest run that cannot be resumed, and why."""
    what = f"{FLAG}: nothing to resume: no interrupted run of this tree is in {FOLDER}"
    for header in others[:1]:
        why = f"was started with {header.refused}" if header.refused else f"is still running (process {header.pid})"
        what += f"; {describe_run(header)} {why}"
    return f"{what}. Start anew without {FLAG}"
