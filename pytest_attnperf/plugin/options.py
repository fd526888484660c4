"""The table of all options of the command line and keys of the ini file. They give two kinds of settings.

**Run settings** are resolved once (`config`): command line over ini over default. **Case settings** per item:
`--attnperf-override` over marker over command line over ini over default (a marker is more specific than a project).
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator

import pytest

from pytest_attnperf.plugin.switches import SWITCHES, Option, Switch

MIN_BASELINE_PROCESSES = 7
XDIST_GPUS = "ATTNPERF_XDIST_GPUS"
"""Name of the environment variable by which xdist's controller passes its GPUs to its workers (see `xdist_gpus`)."""


GROUPS = {
    "select": "pytest-attnperf: which cases run",
    "measure": "pytest-attnperf: what is measured, and how",
    "compare": "pytest-attnperf: what is compared, and what fails",
    "record": "pytest-attnperf: baselines",
    "report": "pytest-attnperf: results and reports",
}
"""Group of options -> its title in `pytest --help`."""

ADVANCED = "pytest-attnperf: advanced"
HELP_INDENT = "    "
KEYS = "pytest-attnperf: settings without an option (ini key, marker argument, --attnperf-override=KEY=VALUE)"
FIRST = "Options of pytest-attnperf. A marker's argument comes before an option, an option before its ini key."
COSTS_HELP = "growth in percent that other costs of a call may have, e.g. host_us=20,peak_bytes=0; default: by test"


OPTIONS: tuple[Option, ...] = (
    Option(
        "backend",
        "",
        "run only these backends, separated by commas (triton selects every triton.*); default: all",
        "NAMES",
        group="select",
    ),
    Option(
        "workload",
        "",
        'run these workloads: "b=1,s=512,h=8,d=64,causal,f16", or a .csv/.jsonl file; default: those of the tests',
        "TEXT|FILE",
        group="select",
    ),
    Option(
        "model",
        "",
        "run the workloads of a model's attention layers, by its config.json; fields: tp=8, batch=1:16, seq=512:4096, "
        "ignore=FIELD:FIELD; default: those of the tests",
        "FILE[,FIELD=...]",
        path=True,
        found=True,
        group="select",
    ),
    Option(
        "device",
        "auto",
        "device that runs the cases: gpu, cpu, or auto (a GPU if there is one); default: auto",
        "KIND",
        group="measure",
        choices=("auto", "gpu", "cpu"),
    ),
    Option(
        "isolate",
        "worker",
        "which cases share a worker process. worker: all, until one breaks it; backend: consecutive ones of a backend; "
        "case: none, each gets a fresh process; none: no workers, cases run in pytest's process for debugging and are "
        "never gated; default: worker",
        "HOW",
        choices=("worker", "backend", "case", "none"),
    ),
    Option(
        "pin-gpu",
        "",
        "use only these of the visible GPUs: indices, UUIDs or PCI addresses; default: all",
        "GPU,GPU",
        group="measure",
    ),
    Option(
        "against",
        "",
        "compare suspects with this base side in interleaved pairs (A B B A): a git revision, a directory, another "
        "python, or a command that speaks the worker protocol; default: no base side",
        "REV|DIR|PYTHON|COMMAND",
        path=True,
        group="compare",
    ),
    Option(
        "candidate",
        "",
        "with --attnperf-against: measure this revision, directory or command instead; default: the working tree",
        "REV|DIR|COMMAND",
        path=True,
    ),
    Option(
        "interleave",
        "suspects",
        "cases to compare in pairs: suspects (what the stored baseline leaves open) or all; default: suspects",
        "HOW",
        group="compare",
        choices=("suspects", "all"),
    ),
    Option(
        "pairs",
        "8",
        "fresh pairs of processes per case, half if that shows SAME; default: 8",
        "N",
        group="compare",
        least=2,
    ),
    Option("build", "", "shell command to build a revision's tree, once per revision; default: no build", "COMMAND"),
    Option(
        "timer",
        "auto",
        "the timer to use; an unknown name lists them all; default: auto (by device)",
        "NAME",
        group="measure",
    ),
    Option(
        "accept",
        "",
        "with --update-baselines: why slowdowns since the anchor are wanted; default: none",
        "REASON",
        group="record",
    ),
    Option(
        "processes",
        str(MIN_BASELINE_PROCESSES),
        "fresh processes per baseline entry, at least 7; default: 7",
        "N",
        least=MIN_BASELINE_PROCESSES,
    ),
    Option("second-look", "3", "fresh processes of the second look at a suspect; default: 3", "N", least=1),
    Option(
        "determinism",
        "0",
        "calls on the same inputs that must give the same bits (0: no check); default: 0",
        "N",
        least=0,
    ),
    Option(
        "trials",
        "",
        "prove right cases again under changed circumstances, separated by commas: guards, layouts, jitter; all or "
        "none; default: guards (all with --attnperf-tier=nightly)",
        "NAMES",
    ),
    Option(
        "sanitize",
        "",
        "prove every case under these tools, separated by commas, and time nothing: memcheck, racecheck, initcheck, "
        "synccheck (NVIDIA's compute-sanitizer), asan (ROCm's address sanitizer); default: none",
        "TOOLS",
    ),
    Option(
        "effort",
        "normal",
        "blocks that a process times per case: low (half), normal, high (double), or fields of "
        "blocks=30,block_us=600,budget_ms=120; default: normal",
        "HOW",
        group="measure",
    ),
    Option(
        "case-limit",
        "300",
        "seconds per case, then its worker is killed; default: 300 (warm: 14400)",
        "SECONDS",
        group="measure",
        least=0.5,
        whole=False,
    ),
    Option("seed", "", "seed of the inputs of checks, printed when a check fails; default: random", "N", least=0),
    Option(
        "baselines", "baselines", "folder of the stored baselines; default: baselines", "DIR", path=True, group="record"
    ),
    Option(
        "results",
        ".attnperf/results.json",
        "results file; default: .attnperf/results.json",
        "FILE",
        path=True,
        group="report",
    ),
    Option(
        "report",
        "",
        "folder for results.json, report.html and all other reports; default: none",
        "DIR",
        path=True,
        group="report",
    ),
    Option(
        "history",
        "",
        "append the run to a database: a file (SQLite) or postgresql://USER@HOST/NAME; default: none",
        "URL|FILE",
        group="report",
    ),
    Option(
        "benchmark",
        "auto",
        "auto: pass samples to pytest-benchmark, if it is active, for its table and files; off: do not; default: auto",
        "HOW",
        choices=("auto", "off"),
    ),
    Option(
        "tier",
        "",
        "pr (without cases of nightly runs) or nightly (all); default: pr; nightly if single tests are named",
        "TIER",
        group="select",
    ),
    Option(
        "shard",
        "",
        "with --attnperf: run one of several parts of the selected cases, INDEX/COUNT from 1/COUNT, or auto: by the "
        "variables of Buildkite, GitLab, Slurm arrays, Kubernetes jobs, or ATTNPERF_SHARD_INDEX and _COUNT; divided by "
        "the seconds in case_seconds.json of the baselines' folder; default: all cases",
        "INDEX/COUNT|auto",
    ),
    Option("first", "", "run tests of these files first, in this order (comma-separated); default: none", "NAMES"),
    Option(
        "budget",
        "",
        "wall time of the run, e.g. 10m: a first look at all cases, the rest for the least decided; default: no limit",
        "TIME",
        group="measure",
    ),
    Option("worker-args", "", "options of your own conftest that workers also need; default: none", "ARGS"),
    Option(
        "threshold", "2", "slowdown in percent that fails a case; default: 2", "PERCENT", case=True, group="compare"
    ),
    Option(
        "floor-us", "0.5", "slowdown in microseconds below which no case fails; default: 0.5", "US", case=True, key=True
    ),
    Option(
        "creep",
        "5",
        "slowdown in percent since the anchor, summed over all recordings, that is a finding; default: 5",
        "PERCENT",
        case=True,
        key=True,
    ),
    Option(
        "suite-rate",
        "0.01",
        "false alarms allowed per suite run, as a fraction; default: 0.01",
        "RATE",
        case=True,
        key=True,
    ),
    Option("costs", "", COSTS_HELP, "COST=PERCENT,...", case=True),
    Option(
        "fail-on",
        "SLOWER,INCORRECT,SUSPICIOUS,ERROR",
        "verdicts that fail a test; default: SLOWER,INCORRECT,SUSPICIOUS,ERROR",
        "VERDICTS",
        case=True,
        group="compare",
    ),
    Option(
        "arch",
        "",
        "compile kernels for these architectures, e.g. gfx942,gfx1100, or all; default: gfx942 and AMD GPUs found here",
        "ARCHS",
        group="select",
    ),
    Option("code-set", "", "compile with other settings, e.g. BLOCK_M=128; never gates; default: their own", "K=V"),
    Option(
        "code-fail-on",
        "occupancy,wider_loads",
        "changes of a code object that fail a test, besides those that always do: occupancy, wider_loads, vgprs, lds, "
        "code_size, launch; or all; default: occupancy,wider_loads",
        "KINDS",
        code=True,
        key=True,
    ),
    Option(
        "code-growth",
        "1",
        "accepted growth of LDS and code size in percent; default: 1",
        "PERCENT",
        code=True,
        key=True,
    ),
)
BY_NAME = {option.name: option for option in OPTIONS}
CASE_OPTIONS = tuple(option for option in OPTIONS if option.case)
CODE_OPTIONS = tuple(option for option in OPTIONS if option.code)
"""Settings of one code object: override over marker over command line over ini over default, as for a case."""
_FLAGS = (
    *("update_baselines", "calibrate", "together", "warm", "profile", "changed", "execute", "resume", "record_local"),
    *("invariance", "pin_config", "strict", "override", "worker_fd", "worker_role"),
)
FLAGS = {"gate": "attnperf", **{name: f"attnperf_{name}" for name in _FLAGS}}
"""Field of `RunConfig` -> attribute of `config.option`, for the options that are not in `OPTIONS`."""

TIMED = (
    ("gate", "--attnperf"),
    ("update_baselines", "--update-baselines"),
    ("calibrate", "--attnperf-calibrate"),
    ("together", "--attnperf-together"),
)
"""Fields of `RunConfig` that make a run measure, each with its command-line option."""

PASSED_TO_WORKERS = ("backend", "workload", "code-set", "model")


def add_options(parser: pytest.Parser) -> None:
    """Declares all options and ini keys with pytest, whose help shows only the options that have a group."""
    groups = {name: parser.getgroup(f"attnperf-{name}", title) for name, title in GROUPS.items()}
    hidden = parser.getgroup("attnperf")
    for switch in SWITCHES:
        shown = switch.help if switch.group else argparse.SUPPRESS
        groups.get(switch.group, hidden).addoption(switch.flag, help=shown, **switch.settings)
    for option in OPTIONS:
        default = option.default or "see --attnperf-help"
        parser.addini(option.dest, _describe_key(option, default), default=None)
        if not option.key:
            shown = option.help if option.group else argparse.SUPPRESS
            groups.get(option.group, hidden).addoption(
                option.flag, dest=option.dest, default=None, metavar=option.metavar, help=shown
            )


def _describe_key(option: Option, default: str) -> str:
    """Returns the ini key's line in `pytest --help`."""
    return option.help if option.key else f"sets {option.flag} if not typed; default: {default}"


def render_option_help(width: int) -> str:
    """Returns all options by group, the advanced ones and the settings without an option last, in lines of at most
    `width` columns."""
    options: tuple[Switch | Option, ...] = (*SWITCHES, *(option for option in OPTIONS if not option.key))
    lines = textwrap.wrap(FIRST, width)
    for group, title in {**GROUPS, "": ADVANCED}.items():
        lines += ["", f"{title}:"]
        for known in options:
            if known.group == group:
                lines += _format_option(known, width)
    lines += ["", *textwrap.wrap(f"{KEYS}:", width)]
    for option in OPTIONS:
        if option.key:
            lines += _format_option(option, width)
    return "\n".join(lines) + "\n"


def _format_option(known: Switch | Option, width: int) -> Iterator[str]:
    """Yields the option's line, its indented help, and its ini key and marker argument."""
    yield f"  {_format_usage(known)}"
    yield from textwrap.wrap(known.help, width, initial_indent=HELP_INDENT, subsequent_indent=HELP_INDENT)
    if isinstance(known, Option):
        marker = f", marker {known.field}=" if known.case or known.code else ""
        yield f"{HELP_INDENT}ini {known.dest}{marker}"


def _format_usage(known: Switch | Option) -> str:
    """Returns e.g. '--attnperf-pairs=N'; the flag alone if it takes no value; 'floor_us=US' if there is no option."""
    metavar = known.metavar if isinstance(known, Option) else known.settings.get("metavar")
    flag = known.field if isinstance(known, Option) and known.key else known.flag
    return f"{flag}={metavar}" if metavar else flag
