"""What an interrupted run was, so that another may go on with it: by settings, tests, commit and the plugin's files."""

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
    *("blocks", "block-us", "budget-ms", "determinism", "baselines", "worker-args", "seed"),
    *(option.name for option in (*options.CASE_OPTIONS, *options.CODE_OPTIONS)),
)
"""Options that change what a verdict is made from. What selects cases shows in their number."""

MEANT_FLAGS = ("record_local", "pin_config", "profile", "changed")
EVERYWHERE = "."
"""In place of a folder: the code of the whole tree, whichever folder built kernels were made from."""

CODE = (
    *(".py", ".pyx", ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".hip", ".inl", ".inc"),
    *(".cl", ".s", ".asm", ".ll", ".bc", ".ptx", ".cubin", ".fatbin", ".hsaco", ".co", ".o", ".a", ".so"),
)
"""Suffixes of sources and of what is made from them."""

TOOLCHAIN = (
    *("TRITON_", "TORCH", "PYTORCH_", "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_TF32", "HIP_", "HSA_", "ROCR_", "ROCM_"),
    *("ROCBLAS_", "HIPBLASLT_", "AMD_", "GPU_", "AITER_", "FLASH_ATTENTION_", "ATTN", "DISABLE_LLVM_OPT", "MLIR_"),
    *("LLVM_", "OMP_", "MKL_", "KMP_", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONOPTIMIZE"),
)
"""How variables begin that compilers, libraries and kernels go by."""

PLACE_ONLY = ("_VISIBLE_DEVICES", "_DEVICE_ORDINAL", "_CACHE_DIR", "_CACHE_PATH")
"""How those of them end that say where, which the fingerprint speaks for; under xdist they differ by worker."""

LARGE_BYTES = 1 << 22
"""Of a larger file beside the sources its size and time stand for what is in it."""


def refuse_resume(config: pytest.Config, settings: RunSettings) -> None:
    """Raise UsageError where nothing can be taken over, whatever an earlier run did."""
    if settings.mode in UNTIMED:
        raise UsageError(f"{FLAG} goes on with a run that measures: give it with --attnperf or --update-baselines")
    why = _reason_not_resumable(run_config(config), settings)
    if why:
        raise UsageError(f"{FLAG} with {why}; drop one")


def _reason_not_resumable(asked: RunConfig, settings: RunSettings) -> str:
    """Why a run of these settings can neither resume nor be resumed, after 'with'; '' where it can."""
    if settings.budget_seconds is not None:
        return "--attnperf-budget: how its time was spent followed from all cases together"
    if settings.isolate == "none":
        return "--attnperf-isolate=none: which files a case ran is not known of the pytest process"
    if asked.candidate:
        return "--attnperf-candidate: the files of another tree may change unseen"
    return ""


def compare_headers(then: JournalHeader, now: JournalHeader) -> list[str]:
    """How two runs differ, so that one cannot go on with the other; numbers of tests only where both are known."""
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
    """SHA-256 of a file of the tree; '' where there is none, and for a name that leads out of it."""
    path = (root / name).resolve()
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_relative_to(root.resolve()) else ""
    except (OSError, ValueError):
        return ""


def folder_digest(root: Path, folder: str) -> str:
    """Of all files in a top-level folder; of EVERYWHERE, of the code in the whole tree.

    Hidden files, caches and installed packages are left out. A file that cannot be read counts as such.
    """
    everywhere = folder == EVERYWHERE
    if folder in ("", "..") or folder != (EVERYWHERE if everywhere else Path(folder).name):  # a journal is data
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
    """What stands for a file: its bytes, or where there are many or none can be had, size and time."""
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
    """Of the plugin's own files: between releases it changes without its version."""
    package = Path(__file__).parents[3]
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        found.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]


def collect_verdict_settings(config: pytest.Config, settings: RunSettings) -> dict[str, str]:
    """Settings that change what a verdict is made from, by the option's name."""
    asked = run_config(config)
    found = {f"--attnperf-{name}": asked.text(name) for name in MEANT}
    for name in MEANT_FLAGS:
        found[f"--attnperf-{name.replace('_', '-')}"] = "given" if getattr(asked, name) else ""
    found["--attnperf-override"] = ", ".join(asked.override)
    found["--attnperf-device"] = device_kind(config)[0]
    found |= {f"the variable {name}": value for name, value in toolchain_variables(os.environ).items()}
    if settings.mode is RunMode.CALIBRATE:
        found["--attnperf-calibrate"] = str(settings.processes)
    return found


def toolchain_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that change what a kernel is compiled to or which one runs."""
    names = (name for name in sorted(environ) if name.startswith(TOOLCHAIN) and not name.endswith(PLACE_ONLY))
    return {name: environ[name].encode("utf-8", "replace").decode() for name in names if environ[name]}


def make_header(config: pytest.Config, settings: RunSettings, commit: str) -> JournalHeader:
    """This run's header; a controller of xdist does not know its tests yet."""
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
    """The tests of this process; none in a controller of xdist."""
    session: Any = config.pluginmanager.get_plugin("session")
    return getattr(session, "items", None) or ()


def describe_run(header: JournalHeader) -> str:
    """'the run of 2026-01-31 12:03 UTC'."""
    return f"the run of {header.started.replace('T', ' ')[:16]} UTC"


def format_resume_command(command: str) -> str:
    """What to type to go on with a run that was typed so."""
    return f"{command} {FLAG}"


def describe_differences(then: JournalHeader, now: JournalHeader) -> str:
    """What differs between two runs, with what to type instead."""
    found = compare_headers(then, now)
    text = f"{FLAG}: {describe_run(then)}, which was interrupted, was another one: {'; '.join(found)}"
    same_plugin = (then.version, then.method, then.harness) == (now.version, now.method, now.harness)
    go_on = f"go on with it by: {format_resume_command(then.command)}; or " if same_plugin else ""
    return f"{text}; {go_on}start anew without {FLAG}"


def describe_nothing_to_resume(others: Sequence[JournalHeader]) -> str:
    """Why there is nothing to resume, with what there is instead."""
    what = f"{FLAG}: nothing to resume: no interrupted run of this tree is in {FOLDER}"
    for header in others[:1]:
        why = f"was started with {header.refused}" if header.refused else f"still goes on (process {header.pid})"
        what += f"; {describe_run(header)} {why}"
    return f"{what}. Start anew without {FLAG}"
