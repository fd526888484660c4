"""`attnperf tune`: searches the configuration of one backend, and writes the files that its kernel and aiter read."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import inspect
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.auditing import add_audit, run_audit
from pytest_attnperf.cli.option_groups import add_old_spelling, add_tests, settle_all
from pytest_attnperf.cli.output import add_page, asks_page, write_page
from pytest_attnperf.errors import CodeObjectError, UsageError
from pytest_attnperf.session.time_left import parse_seconds

if TYPE_CHECKING:
    from pytest_attnperf.environment.cards import Lease
    from pytest_attnperf.plugin.tuning import TuningProject
    from pytest_attnperf.tools.tuner.job import TuneJob, TunePools
    from pytest_attnperf.tuning_records import Candidate, Tunable, TuningSpace, Value
    from pytest_attnperf.workers.controller import Ready
    from pytest_attnperf.workers.launch import LaunchPlan
    from pytest_attnperf.workloads.base import Workload

GROUP = "deeper"
ORDER = 180
SUMMARY = "search a backend's best configuration, and write its files"
DESCRIPTION = "Searches one backend's configuration for some workloads, and compares the best with the default."

JOURNAL = "journal.jsonl"
CACHE = Path(".attnperf") / "cache" / "compiled"
VERSIONS = ("rocm", "torch", "triton", "aiter")
"""Software whose versions a tuned rule names, if they are known."""

SOURCES = frozenset({".py", ".hip", ".h", ".cu", ".cpp"})
WARM_MOST = 12
"""Most processes that compile at once: each holds some 0.5 GB of a GPU's memory beside its inputs."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as in a shell."""

EPILOG = f"""Candidates are compiled, and rejected if their code objects spill, need more LDS than there is or fit
no launch. The others are proven right and timed in fresh processes. The best is compared with the
default in further processes, interleaved, on every workload that the changed rule serves. Files are
written only if it is better.

DIR holds {JOURNAL} (an interrupted run continues from it), tune.json, report.md, and
configuration files as the kernel and, for aiter's, aiter reads them. attnperf report DIR --open shows
a finished run as a page.

--audit says which workloads have an exact entry in the backends' and aiter's files, which take the
nearest or a default, and what is older than the Triton in use (STALE). It needs no GPU. An entry that
records no version is of unknown age, which fails nothing.

exit status: 0 better, or no better than the default; 1 better on what was tuned and slower
elsewhere (nothing is written); 2 the command or a file is invalid, or nothing could be measured;
{INTERRUPTED} interrupted. With --audit: 0 all exact and none STALE, 1 gaps or STALE, 2 invalid

examples:
  attnperf tune triton.flash --workload b=4,s=512,h=8,d=256,causal --budget 10m
  attnperf tune triton.gemm --workload sizes.csv --out tuned/gemm --strategy optuna --trials 200
  attnperf tune triton.flash --workload b=4,s=512,h=8,d=256,causal --static gfx942
  attnperf tune --audit --arch gfx942 --model suites/models/llama3-8b.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf tune` to its parser."""
    add = parser.add_argument
    add("backend", nargs="?", default="", help="name of a registered backend, e.g. triton.flash")
    add("--family", default="", help="op family, if the backend has several")
    workload = add(
        "--workload",
        action="append",
        default=[],
        metavar="LINE|ID|FILE",
        help="workload to tune for, as in --attnperf-workload; may be repeated (default: all of the suites)",
    )
    add_old_spelling(parser, "--workloads", workload)
    add("--out", type=Path, metavar="DIR", help="folder of the results (default: .attnperf/tune/BACKEND)")
    add("--budget", default="10m", metavar="TIME", help="time limit, e.g. 90s, 10m, 1h (default: %(default)s)")
    add("--strategy", default="auto", metavar="NAME", help="auto, race, optuna or exhaustive (default: %(default)s)")
    add("--trials", type=int, metavar="N", help="most trials; a trial is one candidate on one workload in one process")
    add("--processes", type=int, default=5, metavar="N", help="fresh processes per finalist (default: 5)")
    add("--pairs", type=int, default=8, metavar="N", help="fresh pairs behind the verdict (default: 8)")
    add("--min-gain", type=float, default=1.0, metavar="PERCENT", help="least gain worth a change (default: 1)")
    add("--kernel", default="", metavar="NAME", help="kernel to tune, if the backend has several")
    add(
        "--when",
        action="append",
        default=[],
        metavar="K=V",
        help="restrict the written rule, e.g. rows_max=65536; may be repeated",
    )
    add("--default", default="", metavar="K=V,...", help="start from these values instead of the stored ones")
    add("--static", default="", metavar="ARCH", help="rank by code object for this architecture; times nothing")
    add("--static-files", action="store_true", help="with --static: write the files of the best-ranked candidate")
    add("--gpus", default="1", metavar="N|all", help="GPUs to search on, one worker each (default: 1)")
    add("--seed", type=int, default=0, metavar="N", help="seed of every random choice (default: 0)")
    add(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes that compile (default: CPU cores)"
    )
    add_page(parser)
    add_tests(parser)
    add("--device", choices=("auto", "gpu", "cpu"), default="auto", help="run on it (default: a GPU if any)")
    add_audit(parser)


def run(options: argparse.Namespace) -> int:
    """Searches a backend's fastest configuration, prints the result and writes files. Returns 1 if the configuration is
    slower on another workload, INTERRUPTED after Ctrl-C, else 0. Raises UsageError for invalid options."""
    settle_all(options, options.dependent)
    if options.audit:
        return run_audit(options)
    _check_options(options)
    from pytest_attnperf.plugin.tuning import collect_project

    # A static run needs every workload of the suites, even those too large for this machine.
    device = "gpu" if options.static else options.device
    try:
        return collect_project(
            lambda project: _tune_backend(project, options),
            options.backend,
            options.family,
            options.tests,
            f"--attnperf-device={device}",
        )
    except KeyboardInterrupt:
        _print_progress("attnperf: interrupted")
        return INTERRUPTED


def _check_options(options: argparse.Namespace) -> None:
    """Raises UsageError for numbers out of range, an unknown AMD architecture, and options that exclude each other,
    before anything is loaded."""
    if not options.backend:
        raise UsageError("name the backend to tune, e.g. triton.flash; only --audit takes none")
    for name, least in (("trials", 1), ("processes", 1), ("pairs", 3), ("jobs", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise UsageError(f"--{name} {value} must be at least {least}")
    if not 0 <= options.min_gain < 100:
        raise UsageError(f"--min-gain {options.min_gain:g} must be a percentage from 0 to below 100")
    if options.static_files and not options.static:
        raise UsageError("--static-files needs --static ARCH: a run that times writes files only if they are better")
    if options.static and not options.static.startswith("sm_"):
        _require_arch(options.static)
    if options.gpus != "all" and not (options.gpus.isdecimal() and int(options.gpus) > 0):
        raise UsageError(f"--gpus {options.gpus!r} must be 'all' or a number of at least 1")
    parse_seconds(options.budget)


def _require_arch(name: str) -> None:
    from pytest_attnperf.codeobject.arch import limits_of

    try:
        limits_of(name)
    except CodeObjectError as error:
        raise UsageError(f"--static {name}: {error}") from error


def _tune_backend(project: TuningProject, options: argparse.Namespace) -> int:
    from pytest_attnperf.tools.tuner.tune import tune
    from pytest_attnperf.tools.tuner.tuned_files import write_tune_result
    from pytest_attnperf.tuning_records import SLOWER_ELSEWHERE, Tunable

    backend = project.backend
    if not isinstance(backend, Tunable):
        raise UsageError(
            f"{backend.name} declares no tuning space; a backend that can be tuned implements "
            "`pytest_attnperf.tuning_records.Tunable` beside `pinned`"
        )
    if not options.static and project.kind == "cpu" and not backend.times_on_cpu:
        raise UsageError(
            f"{backend.name} is interpreted without a GPU ({project.kind_reason}), so its times mean nothing; "
            "--static ARCH ranks candidates by their code objects"
        )
    out = options.out or Path(".attnperf") / "tune" / backend.name
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out}: the folder cannot be created ({error.strerror}); give another") from error
    if options.static and (out / JOURNAL).exists():
        raise UsageError(f"--out {out} holds results of a timed run; give another folder for --static")
    with contextlib.ExitStack() as stack:
        result = tune(_make_job(project, backend, options, out, stack))
    sys.stdout.write(f"{write_tune_result(result, out)}\n")
    if asks_page(options):
        from pytest_attnperf.tools.tuner.tune_page import build_sections

        write_page(options, "tune", f"Tuning of {result.backend}", build_sections(result))
    return 1 if result.verdict == SLOWER_ELSEWHERE else 0


@dataclass(frozen=True)
class Machine:
    """What the search runs on: leased GPUs (none on a CPU), and what the first process reported about them."""

    plan: LaunchPlan
    leases: Sequence[Lease]
    ready: Ready

    def start_pools(self) -> TunePools:
        """Returns worker pools: one per GPU for the search, and three on the first GPU, for the default
        configuration, the winner and warm-up."""
        from pytest_attnperf.tools.tuner.job import TunePools
        from pytest_attnperf.workers.pool import WorkerPool

        tokens = [lease.token for lease in self.leases]
        first = tuple(tokens[:1])
        lanes = [WorkerPool(self.plan, (token,), prefix=f"tune{number}-") for number, token in enumerate(tokens)]
        return TunePools(
            lanes=lanes or [WorkerPool(self.plan, prefix="tune0-")],
            base=WorkerPool(self.plan, first, prefix="default-"),
            new=WorkerPool(self.plan, first, prefix="winner-"),
            warm=WorkerPool(self.plan, first, prefix="warm-"),
        )


def _make_job(
    project: TuningProject, backend: Tunable, options: argparse.Namespace, out: Path, stack: contextlib.ExitStack
) -> TuneJob:
    from pytest_attnperf.plugin.config import run_config
    from pytest_attnperf.tools.tuner.job import Served, TuneJob
    from pytest_attnperf.tools.tuner.tuner_decision import DecisionRule
    from pytest_attnperf.tools.tuner.tuner_settings import TuneSearchSettings
    from pytest_attnperf.workers.interleave import InterleavePlan
    from pytest_attnperf.workers.tree_state import read_tree_state

    tuned = project.list_workloads(options.workload)
    every = {workload.id: workload for workload in (*tuned, *project.suite_workloads)}
    machine = None if options.static else lease_machine(project, options.gpus, list(every.values()), stack)
    arch = options.static or _arch_of(machine)
    when = _parse_values(options.when, "--when")
    space = backend.tuning_space(tuned, arch, kernel=options.kernel, when=when or None)
    root = project.config.rootpath
    return TuneJob(
        backend=backend,
        name=project.backend.name,
        tuned={workload.id: Served(project.key_of(workload), workload) for workload in tuned},
        suite={name: Served(project.key_of(workload), workload) for name, workload in every.items()},
        elsewhere=project.other_families,
        arch=arch,
        root=root,
        cache=root / CACHE,
        journal=out / JOURNAL,
        pools=_no_pools if machine is None else machine.start_pools,
        source=_describe_source(None if machine is None else machine.ready),
        kernel=options.kernel,
        when=when or None,
        default=parse_default(space, options.default),
        identity={
            "commit": read_tree_state(root, run_config(project.config).baselines).name,
            "sources": hash_sources(project.backend),
        },
        static=bool(options.static),
        static_files=options.static_files,
        budget_s=parse_seconds(options.budget),
        settings=TuneSearchSettings(
            options.strategy, max_trials=options.trials, processes=options.processes, seed=options.seed
        ),
        decision=DecisionRule(min_gain=options.min_gain / 100),
        pairs=InterleavePlan(pairs=options.pairs),
        jobs=options.jobs,
        warm_processes=min(options.jobs, WARM_MOST),
        say=_print_progress,
    )


def hash_sources(backend: object) -> str:
    """Returns 16 hex digits, the hash of all sources in the folder of a backend's class: an edited kernel is
    another."""
    folder = Path(inspect.getfile(type(backend))).parent
    files = [path for path in sorted(folder.rglob("*")) if path.suffix in SOURCES and path.is_file()]
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def lease_machine(
    project: TuningProject, gpus: str, workloads: Sequence[Workload], stack: contextlib.ExitStack
) -> Machine:
    """Leases GPUs (none on a CPU) and asks a first worker what they are. Closing `stack` releases and ends both.

    gpus   how many, or 'all' that are free
    """
    from pytest_attnperf.environment.gpu_tokens import visible_gpus_here
    from pytest_attnperf.workers.pool import WorkerPool

    leases: Sequence[Lease] = ()
    if project.kind == "gpu":
        leases = lease_gpus(visible_gpus_here(), gpus)
        for lease in leases:
            stack.callback(lease.release)
    plan = project.make_plan(workloads)
    pool = WorkerPool(plan, [lease.token for lease in leases[:1]], prefix="first-")
    stack.callback(pool.shutdown)
    machine = Machine(plan, leases, pool.wait_until_ready(0))
    pool.shutdown()
    return machine


def lease_gpus(tokens: Sequence[str], wanted: str, folder: Path | None = None) -> list[Lease]:
    """Leases `wanted` of the GPUs `tokens`, or with 'all' every free one, and returns the leases.

    Raises GpuBusyError if none is free, UsageError if too few are free; then it keeps none.
    """
    from pytest_attnperf.environment.cards import GpuBusyError, lease_gpu

    most = len(tokens) if wanted == "all" else int(wanted)
    found: list[Lease] = []
    while len(found) < most:
        rest = [token for token in tokens if token not in {lease.token for lease in found}]
        try:
            found.append(lease_gpu(rest, folder))
        except GpuBusyError:
            if not found:
                raise
            break
    if wanted != "all" and len(found) < most:
        for lease in found:
            lease.release()
        raise UsageError(
            f"--gpus {wanted}: {len(found)} of {len(tokens)} visible GPUs are free; wait, or give --gpus {len(found)}"
        )
    return found


def _arch_of(machine: Machine | None) -> str:
    assert machine is not None
    return machine.ready.device.arch


def _no_pools() -> TunePools:
    raise UsageError("a static run starts no process that measures")


def _describe_source(ready: Ready | None) -> str:
    """Returns the text that says where tuned values come from: device, versions, date. `ready` describes the device;
    None for a --static run, which times nothing."""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    if ready is None:
        return f"attnperf tune --static, {today}: by code object, nothing was timed"
    device, named = ready.device, ready.fingerprint.named
    versions = [f"{name} {named[name]}" for name in VERSIONS if not named.get(name, "none").startswith("none")]
    return ", ".join([f"attnperf tune on {device.name or device.product}", *versions, today])


def parse_default(space: TuningSpace, text: str) -> Candidate | None:
    """Returns the space's default candidate with the values 'K=V,...' of `text` replaced; None for an empty text.

    Raises UsageError for a name that the default does not have, and for a value of another type.
    """
    from pytest_attnperf.tuning_records import Candidate

    if not text:
        return None
    given = _parse_values(text.split(","), "--default")
    known = space.default.values
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        raise UsageError(f"--default: {space.kernel} has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    for name, value in given.items():
        if type(value) is not type(known[name]):
            raise UsageError(f"--default: {name}={value!r} must be of the type of the stored {known[name]!r}")
    return Candidate({**known, **given})


def _parse_values(texts: Sequence[str], option: str) -> dict[str, Value]:
    """Returns name -> value of 'K=V' texts: integers, booleans (True or true) and words. Raises UsageError naming
    `option` for another form, or a name given twice."""
    found: dict[str, Value] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise UsageError(f"{option} {text!r}: expected NAME=VALUE, e.g. BLOCK_M=64")
        if name in found:
            raise UsageError(f"{option} gives {name} twice; give it once")
        found[name] = _parse_value(value)
    return found


def _parse_value(text: str) -> Value:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text


def _print_progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
