"""Plans and pools of workers for this command line, and the run's log folder."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure.timers import timer_names
from pytest_attnperf.measure.timers.timer_table import LISTED_IN as TIMERS_LISTED_IN
from pytest_attnperf.plugin.config import RunConfig, run_config
from pytest_attnperf.plugin.features.gpus.gpu_choice import GpuChoice, choose_gpus
from pytest_attnperf.plugin.options import PASSED_TO_WORKERS
from pytest_attnperf.plugin.selection import whole_parts
from pytest_attnperf.plugin.session_setup import device_kind, role_of
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.session.interleaved import Against
from pytest_attnperf.session.settings import RunSettings
from pytest_attnperf.workers.base_side import BaseSide, base_plan, resolve_base_side
from pytest_attnperf.workers.command_plan import CommandPlan
from pytest_attnperf.workers.controller import WorkerPlan
from pytest_attnperf.workers.counterparts import refuse_without_suite
from pytest_attnperf.workers.interleave import InterleavePlan
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.pool import START_LIMIT_SECONDS, WorkerPool
from pytest_attnperf.workers.shared_gpus import SharedGpuPool

KEPT_OUT_PLUGINS = frozenset(
    {"no:cacheprovider", "no:terminal", "no:attnperf", "pytest_attnperf.plugin.main", "pytester", "xdist"}
)
"""Values of `-p` that are not passed to a worker, which loads this plugin itself."""
TRIAL_BYTES = 1 << 18
"""Bytes that must fit into the log folder before a run starts: logs of a few workers, results of a hundred cases."""

KEPT_RUNS = 5


@dataclass(frozen=True)
class RunSides:
    """The worker pool of a run, its GPUs, and its base side (the code to compare with).

    gpus      the GPUs that the run uses, with their leases
    base      the base side, if there is one; `against` is what the session needs of it
    """

    pool: WorkerPool
    gpus: GpuChoice = field(default_factory=GpuChoice)
    base: BaseSide | None = None
    against: Against | None = None


def make_sides(config: pytest.Config, cases: Sequence[pytest.Item], settings: RunSettings) -> RunSides:
    """Returns the pool, GPUs and base side of this run. Makes the log folder, checks out and builds revisions, and
    leases GPUs for timed runs. Raises UsageError for a side that does not exist or cannot be built."""
    asked, plan = run_config(config), make_launch_plan(config, cases)
    candidate_plan: WorkerPlan = plan
    notes: tuple[str, ...] = ()
    if asked.candidate:
        side = _resolve_candidate(asked.candidate, plan, asked.build)
        candidate_plan, notes = plan_of(plan, side), candidate_notes(side)
    base = resolve_base_side(asked.against, plan, build=asked.build) if asked.against else None
    gpus = choose_gpus(config, settings.mode)
    pool = _make_pool(candidate_plan, gpus, settings)
    if base is None:
        return RunSides(pool, gpus)
    against = Against(
        pool=WorkerPool(plan_of(plan, base), gpus=gpus.tokens, prefix="base"),
        label=base.label,
        notes=(*notes, *side_notes(base)),
        plan=make_interleave_plan(asked),
        everything=asked.choice("interleave") == "all",
        empty=base.empty,
        vanished=base.vanished,
    )
    return RunSides(pool, gpus, base, against)


def _resolve_candidate(text: str, plan: LaunchPlan, build: str) -> BaseSide:
    try:
        side = resolve_base_side(text, plan, build=build)
        if side.empty:
            refuse_without_suite(side.missing_files, f"the candidate {side.label}")
        return side
    except UsageError as error:
        raise UsageError(str(error).replace("--attnperf-against", "--attnperf-candidate")) from error


def plan_of(plan: LaunchPlan, side: BaseSide) -> WorkerPlan:
    """Returns how workers of a base side or candidate are started: by its own command, else as `plan`, that of the
    working tree, with the tree or interpreter of `side`."""
    return CommandPlan.from_launch_plan(plan, side.command) if side.command else base_plan(plan, side)


def side_notes(side: BaseSide) -> tuple[str, ...]:
    """Returns notes for the results on the base side: its own notes, and one that names test files it lacks."""
    missing = (
        [f"has no {', '.join(side.missing_files)}: their cases exist on one side only"] if side.missing_files else []
    )
    return tuple(f"base side {side.label}: {note}" for note in [*side.notes, *missing])


def candidate_notes(side: BaseSide) -> tuple[str, ...]:
    """Returns notes for the results: which tree is measured instead of the working tree, and notes on that tree."""
    measured = Note(NoteKind.CANDIDATE, f"candidate: {side.label}")
    return (measured, *(f"candidate {side.label}: {note}" for note in side.notes))


def make_interleave_plan(asked: RunConfig) -> InterleavePlan:
    """Returns the plan of interleaved measurements, with --attnperf-pairs and --attnperf-timer. Raises UsageError if
    one of them is invalid."""
    return InterleavePlan(pairs=asked.count("pairs"), timer=asked.choice("timer", timer_names(), TIMERS_LISTED_IN))


def make_launch_plan(config: pytest.Config, cases: Sequence[pytest.Item]) -> LaunchPlan:
    """Returns how workers of the working tree are started for the files of `cases`. Makes the run's log folder."""
    kind, _ = device_kind(config)
    return LaunchPlan(
        files=tuple(dict.fromkeys(str(item.path) for item in cases)),
        rootdir=config.rootpath,
        scratch=_make_scratch(config.rootpath),
        role=role_of(kind),
        config_file=config.inipath,
        import_mode=config.getoption("importmode"),
        passed_options=passed_options(config, kind),
        selected=whole_parts(config),
        patterns=tuple(config.getini("python_files")),
    )


def passed_options(config: pytest.Config, kind: str) -> tuple[str, ...]:
    """Returns the controller's options that a worker's pytest also gets; `kind` is 'gpu' or 'cpu'. Only listed options
    are passed, because most must take effect in the controller alone."""
    asked, passed = run_config(config), [f"--attnperf-device={kind}"]
    given = ((f"--attnperf-{name}", asked.text(name)) for name in PASSED_TO_WORKERS)
    passed += [f"{flag}={text}" for flag, text in given if text]
    for plugin in config.getoption("plugins") or []:
        if plugin not in KEPT_OUT_PLUGINS:
            passed += ["-p", plugin]
    for override in config.getoption("override_ini") or []:
        if not override.startswith(("addopts=", "cache_dir=")):
            passed += ["-o", override]
    return (*passed, *shlex.split(asked.worker_args))


def _make_pool(plan: WorkerPlan, gpus: GpuChoice, settings: RunSettings) -> WorkerPool:
    """Returns the pool of the measured side; with shared GPUs its processes take turns with those of other sessions."""
    if not gpus.turns:
        return WorkerPool(plan, gpus=gpus.tokens, held=gpus.leases)
    # A turn is a start, a canary and a case. Each other session on this GPU may take a turn first.
    limit_s = len(gpus.turns) * (2 * START_LIMIT_SECONDS + settings.case_limit_seconds)
    return SharedGpuPool(plan, gpus=gpus.tokens, held=gpus.leases, turns=gpus.turns, limit_s=limit_s)


def _make_scratch(root: Path) -> Path:
    """Returns this run's new log folder; removes old ones. Raises UsageError if it cannot be written to."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    logs = root / ".attnperf" / "logs"
    folder = logs / f"{stamp}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_old_logs(logs)
        trial = folder / "trial"
        try:
            trial.write_bytes(bytes(TRIAL_BYTES))
        finally:
            trial.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written to ({error.strerror or error}): logs, the journal and results.json of a run "
            f"go below {root / '.attnperf'}. Nothing was run; make room, allow writing, or run in a copy of the tree"
        ) from error
    return folder


def _remove_old_logs(logs: Path) -> None:
    """Removes log folders of ended runs, but keeps the last KEPT_RUNS; a live run needs its folder."""
    ended = [path for path in logs.iterdir() if path.is_dir() and not _is_running(path)]
    for old in sorted(ended)[:-KEPT_RUNS]:
        shutil.rmtree(old, ignore_errors=True)


def _is_running(folder: Path) -> bool:
    """Returns whether the process that made a log folder is alive; the folder's name ends with its id."""
    pid = folder.name.rpartition("-")[2]
    return pid.isdigit() and Path("/proc", pid).exists()
