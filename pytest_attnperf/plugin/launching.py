"""How the plugin starts workers for this command line, and what it knows of the working tree."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest

from pytest_attnperf.environment.gpus import visible_gpus
from pytest_attnperf.environment.lease import lease_gpu
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.session_setup import device_kind, role_of
from pytest_attnperf.session.settings import Mode, RunSettings
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.pool import WorkerPool

KEPT_OUT_PLUGINS = frozenset(
    {"no:cacheprovider", "no:terminal", "no:attnperf", "pytest_attnperf.plugin.main", "pytester", "xdist"}
)
"""Values of `-p` that a worker must not repeat; it loads this plugin itself."""
KEPT_RUNS = 5


def make_pool(
    config: pytest.Config, cases: Sequence[pytest.Item], settings: RunSettings, *, on_gpu: bool
) -> WorkerPool:
    """The pool of this run, its log folder made, a GPU leased where cases are timed on one."""
    kind, _ = device_kind(config)
    plan = LaunchPlan(
        files=tuple(dict.fromkeys(str(item.path) for item in cases)),
        rootdir=config.rootpath,
        scratch=_scratch(config.rootpath),
        role=role_of(kind),
        config_file=config.inipath,
        import_mode=config.getoption("importmode"),
        passed_options=passed_options(config, kind),
    )
    tokens, lease = _gpus(settings.mode) if on_gpu else ((), None)
    return WorkerPool(plan, gpus=tokens, held=lease)


def passed_options(config: pytest.Config, kind: str) -> tuple[str, ...]:
    """Options a worker needs too: an allow-list, because most of a command line would act twice."""
    passed = [f"--attnperf-device={kind}"]
    for name in options.PASSED_TO_WORKERS:
        text = options.run_text(config, name)
        if text:
            passed.append(f"{options.BY_NAME[name].flag}={text}")
    for plugin in config.getoption("plugins") or []:
        if plugin not in KEPT_OUT_PLUGINS:
            passed += ["-p", plugin]
    for override in config.getoption("override_ini") or []:
        if not override.startswith(("addopts=", "cache_dir=")):
            passed += ["-o", override]
    return (*passed, *shlex.split(options.run_text(config, "worker-args")))


def commit_of(root: Path) -> str:
    """The working tree's commit, '+dirty' behind it where it differs, 'unknown' without git history."""
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty=+dirty", "--abbrev=12", "--exclude=*"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return answer.stdout.strip() if answer.returncode == 0 and answer.stdout.strip() else "unknown"


def _gpus(mode: Mode) -> tuple[tuple[str, ...], object]:
    """Visible-device tokens and what holds them: all behind a baseline, one leased GPU for a gate."""
    tokens = visible_gpus(os.environ)
    if mode is Mode.UPDATE or not tokens:
        return tokens, None
    if mode is Mode.CHECK:
        return tokens[:1], None
    lease = lease_gpu(tokens)
    return (lease.token,), lease


def _scratch(root: Path) -> Path:
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    logs = root / ".attnperf" / "logs"
    folder = logs / f"{stamp}-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    _forget_old(logs)
    return folder


def _forget_old(logs: Path) -> None:
    """Keep the logs of the last few runs, and of every run that still goes on: its workers start from there."""
    ended = [path for path in logs.iterdir() if path.is_dir() and not _goes_on(path)]
    for old in sorted(ended)[:-KEPT_RUNS]:
        shutil.rmtree(old, ignore_errors=True)


def _goes_on(folder: Path) -> bool:
    """Whether the process that made a log folder, whose id ends its name, runs."""
    pid = folder.name.rpartition("-")[2]
    return pid.isdigit() and Path("/proc", pid).exists()
