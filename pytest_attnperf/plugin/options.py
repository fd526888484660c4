"""The table of all options of the command line and keys of the ini file. They give two kinds of settings.

**Run settings** are resolved once (`config`): command line over ini over default. **Case settings** per item:
`--attnperf-override` over marker over command line over ini over default (a marker is more specific than a project).
"""

from __future__ import annotations

import argparse
import itertools
import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin.switches import SWITCHES, Switch

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
FIRST = "Options of pytest-attnperf. A marker's argument comes before an option, an option before its ini key."
INDENT = "    "


@dataclass(frozen=True)
class Option:
    """One option: `--attnperf-NAME` on the command line and `attnperf_NAME` in the ini file.

    path     whether its value is a path
    found    whether a relative path is made absolute before workers get it: it is relative to the current folder, or
             in the ini file to rootdir, but workers start elsewhere and all revisions must read the same file
    case     whether it is a setting of a timed case, which markers can change
    code     whether it is a setting of a code object, which markers can change
    group    one of `GROUPS`, under which `pytest --help` shows it; '' if only `--attnperf-help` does
    """

    name: str
    default: str
    help: str
    metavar: str = "VALUE"
    path: bool = False
    found: bool = False
    case: bool = False
    code: bool = False
    group: str = ""

    @property
    def flag(self) -> str:
        """The name on the command line, e.g. `--attnperf-block-us`."""
        return f"--attnperf-{self.name}"

    @property
    def dest(self) -> str:
        """The attribute of `config.option` and the ini key, e.g. `attnperf_block_us`."""
        return f"attnperf_{self.field}"

    @property
    def field(self) -> str:
        """The field of `RunConfig` and the keyword of the marker, e.g. `block_us`."""
        return self.name.replace("-", "_")


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
        'run these workloads instead of those of the tests: "b=1,s=512,h=8,d=64,causal,f16", or a .csv/.jsonl file; '
        "default: those of the tests",
        "TEXT|FILE",
        group="select",
    ),
    Option(
        "model",
        "",
        "run the workloads of a model's attention layers instead of those of the tests; FILE is a config.json as on "
        "Hugging Face; default: those of the tests",
        "FILE",
        path=True,
        found=True,
        group="select",
    ),
    Option(
        "tp", "", "with --attnperf-model: number of tensor-parallel ranks, of which one is measured; default: 1", "N"
    ),
    Option("model-batch", "", "with --attnperf-model: numbers of sequences decoded at once; default: 1,16", "N,N"),
    Option(
        "model-seq",
        "",
        "with --attnperf-model: tokens per prompt, and keys per decoded sequence; default: 512,4096",
        "N,N",
    ),
    Option("model-ignore", "", "with --attnperf-model: fields of its file to ignore; default: none", "FIELD,FIELD"),
    Option(
        "device",
        "auto",
        "device that runs the cases: gpu, cpu, or auto (a GPU if there is one); default: auto",
        "KIND",
        group="measure",
    ),
    Option(
        "isolate",
        "worker",
        "which cases share a worker process. worker: all, until one breaks it; backend: consecutive ones of a backend; "
        "case: none, each gets a fresh process; none: no workers, cases run in pytest's process for debugging and are "
        "never gated; default: worker",
        "HOW",
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
        "which cases are compared with the base side in pairs. suspects: those that the stored baseline leaves open; "
        "all: every case; default: suspects",
        "HOW",
        group="compare",
    ),
    Option(
        "pairs",
        "8",
        "fresh pairs of processes per case and base side, half if that shows SAME; default: 8",
        "N",
        group="compare",
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
        group="record",
    ),
    Option("second-look", "3", "fresh processes of the second look at a suspect; default: 3", "N"),
    Option("blocks", "30", "maximum number of blocks measured per process and case; default: 30", "N"),
    Option("block-us", "600", "length of a block in microseconds; default: 600", "US"),
    Option("budget-ms", "120", "maximum milliseconds that a process spends in blocks of a case; default: 120", "MS"),
    Option("determinism", "0", "calls on the same inputs that must give the same bits (0: no check); default: 0", "N"),
    Option(
        "case-limit",
        "300",
        "seconds per case, then its worker is killed; default: 300 (warm: 14400)",
        "SECONDS",
        group="measure",
    ),
    Option("seed", "", "seed of the inputs of checks, printed when a check fails; default: random", "N"),
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
        "append the run to a database: a file (SQLite), sqlite:///FILE or postgresql://USER@HOST/NAME; default: none",
        "URL|FILE",
        group="report",
    ),
    Option(
        "benchmark",
        "auto",
        "auto: pass samples to pytest-benchmark, if it is active, for its table and files; off: do not; default: auto",
        "HOW",
    ),
    Option(
        "tier",
        "",
        "pr: skip cases that only nightly runs take; nightly: run every case; default: pr, or nightly if the command "
        "line names single tests",
        "TIER",
        group="select",
    ),
    Option("first", "", "run tests of these files first, in this order (comma-separated); default: none", "NAMES"),
    Option(
        "budget",
        "",
        "limit the wall time of the run, e.g. 10m: every case gets a first look, the least decided ones get the rest; "
        "default: no limit",
        "TIME",
        group="measure",
    ),
    Option("worker-args", "", "options of your own conftest that workers also need; default: none", "ARGS"),
    Option(
        "threshold", "2", "slowdown in percent that fails a case; default: 2", "PERCENT", case=True, group="compare"
    ),
    Option("floor-us", "0.5", "slowdown in microseconds below which no case fails; default: 0.5", "US", case=True),
    Option(
        "creep",
        "5",
        "slowdown in percent since the anchor, summed over all recordings, that is a finding; default: 5",
        "PERCENT",
        case=True,
    ),
    Option("suite-rate", "0.01", "false alarms allowed per suite run, as a fraction; default: 0.01", "RATE", case=True),
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
    ),
    Option("code-growth", "1", "accepted growth of LDS and code size in percent; default: 1", "PERCENT", code=True),
)
BY_NAME = {option.name: option for option in OPTIONS}
ISOLATIONS = ("worker", "backend", "case", "none")
CASE_OPTIONS = tuple(option for option in OPTIONS if option.case)
CODE_OPTIONS = tuple(option for option in OPTIONS if option.code)
"""Settings of one code object: override over marker over command line over ini over default, as for a case."""
OF_A_MODEL = ("tp", "model-batch", "model-seq", "model-ignore")
"""Options that need `--attnperf-model`."""
_FLAGS = (
    *("update_baselines", "calibrate", "together", "warm", "profile", "changed", "resume", "record_local"),
    *("pin_config", "strict", "override", "worker_fd", "worker_role"),
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

PASSED_TO_WORKERS = ("backend", "workload", "code-set", "model", *OF_A_MODEL)


def add_options(parser: pytest.Parser) -> None:
    """Declares all options and ini keys with pytest, whose help shows only the options that have a group."""
    groups = {name: parser.getgroup(f"attnperf-{name}", title) for name, title in GROUPS.items()}
    hidden = parser.getgroup("attnperf")
    for switch in SWITCHES:
        shown = switch.help if switch.group else argparse.SUPPRESS
        groups.get(switch.group, hidden).addoption(switch.flag, help=shown, **switch.settings)
    for option in OPTIONS:
        shown = option.help if option.group else argparse.SUPPRESS
        groups.get(option.group, hidden).addoption(
            option.flag, dest=option.dest, default=None, metavar=option.metavar, help=shown
        )
        default = option.default or "see --attnperf-help"
        parser.addini(option.dest, f"sets {option.flag} if not typed; default: {default}", default=None)


def check_rootdir(config: pytest.Config) -> None:
    """Raises UsageError if an option's path outside the current folder may have changed pytest's rootdir.

    pytest derives rootdir from every word of the command line that exists on disk, also from the value of
    `--attnperf-baselines ../base`. The error names the option and the form that pytest ignores: `OPTION=PATH`.
    """
    words = [str(word) for word in config.invocation_params.args]
    by_flag = {option.flag: option for option in OPTIONS if option.path or option.name == "workload"}
    for flag, value in itertools.pairwise(words):
        if flag not in by_flag:
            continue
        start = Path(config.invocation_params.dir)
        path = (start / value).resolve()
        if os.path.exists(path) and not path.is_relative_to(start.resolve()):
            raise UsageError(
                f"{flag} {value}: pytest derived rootdir={config.rootpath} from this path, too; write {flag}={value}"
            )


def case_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """Returns `--attnperf-override` KEY=VALUE as {field: text}. Raises UsageError for an unknown key or no '='."""
    known = {option.field for option in (*CASE_OPTIONS, *CODE_OPTIONS)}
    overrides: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.replace("-", "_")
        if not equals or key not in known:
            raise UsageError(f"--attnperf-override={text!r}: expected KEY=VALUE with KEY one of {sorted(known)}")
        overrides[key] = value
    return overrides


def render_option_help(width: int) -> str:
    """Returns all options by group, the advanced ones last, in lines of at most `width` columns."""
    options: tuple[Switch | Option, ...] = (*SWITCHES, *OPTIONS)
    lines = textwrap.wrap(FIRST, width)
    for group, title in {**GROUPS, "": ADVANCED}.items():
        lines += ["", f"{title}:"]
        for known in options:
            if known.group == group:
                lines += _format_option(known, width)
    return "\n".join(lines) + "\n"


def _format_option(known: Switch | Option, width: int) -> Iterator[str]:
    """Yields the option's line and its indented help."""
    yield f"  {_format_usage(known)}"
    yield from textwrap.wrap(known.help, width, initial_indent=INDENT, subsequent_indent=INDENT)
    if isinstance(known, Option):
        marker = f", marker {known.field}=" if known.case or known.code else ""
        yield f"{INDENT}ini {known.dest}{marker}"


def _format_usage(known: Switch | Option) -> str:
    """Returns e.g. '--attnperf-pairs=N', or the flag alone if it takes no value."""
    metavar = known.metavar if isinstance(known, Option) else known.settings.get("metavar")
    return f"{known.flag}={metavar}" if metavar else known.flag
