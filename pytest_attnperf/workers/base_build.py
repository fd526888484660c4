"""Building the base side: its build command, and build folders that no other side writes into."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_attnperf.errors import UsageError

BUILD_LIMIT_SECONDS = 3600.0
LOG_TAIL_LINES = 25
TOOLCHAIN = ("torch", "triton", "pytorch-triton-rocm", "amd-aiter", "aiter")
"""Distributions whose version decides whether an extension built earlier still loads."""


def toolchain_id(python: str) -> str:
    """Ten hexadecimal digits that differ when the interpreter or a library that extensions are built against does.

    The versions are those installed beside this process, whose interpreter a revision's workers run with.
    """
    parts = [python, sys.version]
    for name in TOOLCHAIN:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            parts.append(f"{name} {importlib.metadata.version(name)}")
    return short_hash(*parts)


def short_hash(*parts: str) -> str:
    """Ten hexadecimal digits of the SHA-256 of the parts."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:10]


def build_folders(folder: Path, *, own_aiter: bool) -> dict[str, str]:
    """Environment variables that send what a side compiles while it runs into folders of its own, made here.

    torch keys an extension by its name alone, so two sides that share the folder load each other's kernels.
    TRITON_CACHE_DIR stays shared: Triton keys by content. AITER_JIT_DIR is set only for a side that brings its own
    aiter: setting it makes aiter build everything again, for minutes, also what was installed ready to use.
    """
    names = {"TORCH_EXTENSIONS_DIR": "torch_extensions", "TORCHINDUCTOR_CACHE_DIR": "torchinductor"}
    if own_aiter:
        names["AITER_JIT_DIR"] = "aiter"
    folders = {variable: folder / name for variable, name in names.items()}
    for path in folders.values():
        path.mkdir(parents=True, exist_ok=True)
    return {variable: str(path) for variable, path in folders.items()}


def remove_stale_locks(folder: Path) -> None:
    """Remove the lock files of compilers that were killed: torch and aiter wait for them for ever.

    Call only while no other run uses the folder.
    """
    for pattern in ("torch_extensions/*/lock", "aiter/build/lock_*"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def run_build(
    command: str,
    *,
    label: str,
    folder: Path,
    python: str,
    environment: Mapping[str, str],
    log: Path,
    limit_seconds: float = BUILD_LIMIT_SECONDS,
) -> None:
    """Run a build command through the shell in `folder`, everything it prints in `log`.

    `python` in the command is the interpreter of the workers: its folder comes first on PATH. A tree of a revision has
    no `.git`. Raises UsageError with the exit status and the log's end; the command and its children are then gone.
    """
    path = os.pathsep.join([str(Path(python).parent), environment.get("PATH", os.defpath)])
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            shell=True,
            cwd=folder,
            env={**environment, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"base side {label}: the build command {command!r} did not end within {limit_seconds:.0f} s{_tail(log)}"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status != 0:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        raise UsageError(f"base side {label}: the build command {command!r} in {folder} {how}{_tail(log)}")


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    return "\n".join([f"\n--- end of {log} ---", *lines]) if lines else f"; it printed nothing ({log})"
