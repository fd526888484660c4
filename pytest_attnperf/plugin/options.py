"""The table of options: the command line and ini keys, of which two kinds of settings are made.

**Run settings** are resolved once (`config`): command line over ini over default. **Case settings** per item:
`--attnperf-override` over marker over command line over ini over default (a marker is more specific than a project).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError

MIN_BASELINE_PROCESSES = 7
XDIST_GPUS = "ATTNPERF_XDIST_GPUS"
"""Environment variable in which a controller of xdist hands its GPUs to its workers (see `xdist_gpus`)."""


@dataclass(frozen=True)
class Option:
    """One option: `--attnperf-NAME` on the command line and `attnperf_NAME` in the ini file.

    path     its value is a path
    found    a relative path is one from where it was typed, or of the ini file from rootdir, and given on as absolute:
             workers start elsewhere, and those of another revision read the same file
    """

    name: str
    default: str
    help: str
    metavar: str = "VALUE"
    path: bool = False
    found: bool = False
    case: bool = False
    code: bool = False

    @property
    def flag(self) -> str:
        """The command-line spelling."""
        return f"--attnperf-{self.name}"

    @property
    def dest(self) -> str:
        """The attribute of `config.option`, and the ini key."""
        return f"attnperf_{self.field}"

    @property
    def field(self) -> str:
        """The field of `RunConfig`, and a case setting's keyword."""
        return self.name.replace("-", "_")


OPTIONS: tuple[Option, ...] = (
    Option("backend", "", "only these backends, separated by commas", "NAMES"),
    Option(
        "workload", "", 'replace the workloads: "b=1,s=512,h=8,d=64,causal,f16", or a .csv/.jsonl file', "TEXT|FILE"
    ),
    Option(
        "model",
        "",
        "replace the workloads by those of a model's attention layers: a config.json as Hugging Face has it",
        "FILE",
        path=True,
        found=True,
    ),
    Option("tp", "", "of --attnperf-model: tensor-parallel ranks, of which one is measured; 1 unless given", "N"),
    Option("model-batch", "", "of --attnperf-model: sequences decoded at once; 1,16 unless given", "N,N"),
    Option("model-seq", "", "of --attnperf-model: tokens of prompts, keys of decoded sequences; else 512,4096", "N,N"),
    Option("model-ignore", "", "of --attnperf-model: fields of its file to leave out of account", "FIELD,FIELD"),
    Option("device", "auto", "auto, gpu or cpu: where cases run", "KIND"),
    Option(
        "isolate",
        "worker",
        "worker: cases share a process until one breaks it; backend, case: a fresh one for each; none: this process, "
        "for debugging, never gates",
        "HOW",
    ),
    Option("pin-gpu", "", "of the visible GPUs use only these: indices, UUIDs or PCI addresses", "GPU,GPU"),
    Option(
        "against",
        "",
        "settle suspects by A B B A against a git revision, a directory, another python, or a command that speaks the "
        "worker protocol",
        "REV|DIR|PYTHON|COMMAND",
        path=True,
    ),
    Option(
        "candidate",
        "",
        "measure this revision, directory or command instead of the working tree",
        "REV|DIR|COMMAND",
        path=True,
    ),
    Option(
        "interleave", "suspects", "suspects: interleave what the stored baseline leaves open; all: every case", "HOW"
    ),
    Option("pairs", "8", "fresh pairs of processes of an interleaved look", "N"),
    Option("build", "", "shell command that builds a revision's tree, run once per revision", "COMMAND"),
    Option("timer", "auto", "auto, or the one timer to be used; an unknown name is refused with all there are", "NAME"),
    Option("accept", "", "with --update-baselines: why a slowdown since the creep guard's anchor is wanted", "REASON"),
    Option("processes", str(MIN_BASELINE_PROCESSES), "fresh processes behind a baseline entry (at least 7)", "N"),
    Option("second-look", "3", "fresh processes of the second look", "N"),
    Option("blocks", "30", "most blocks measured per process", "N"),
    Option("block-us", "600", "length of a block in microseconds", "US"),
    Option("budget-ms", "120", "most milliseconds spent in blocks per process and case", "MS"),
    Option("determinism", "0", "calls on the same inputs whose results must agree bit for bit to be called so", "N"),
    Option("case-limit", "300", "seconds after which a case is given up and its worker killed", "SECONDS"),
    Option("seed", "", "seed of the checks' inputs; drawn afresh when absent, and printed on failure", "N"),
    Option("baselines", "baselines", "folder of the stored baselines", "DIR", path=True),
    Option("results", ".attnperf/results.json", "where the run's results are written", "FILE", path=True),
    Option("report", "", "write results.json, report.html and every other form into this folder", "DIR", path=True),
    Option(
        "history",
        "",
        "append the run to this store: a file for SQLite, sqlite:///FILE, or postgresql://USER@HOST/NAME",
        "URL|FILE",
    ),
    Option(
        "benchmark",
        "auto",
        "auto: give samples to pytest-benchmark where it is active, for its table and files; off",
        "HOW",
    ),
    Option(
        "tier",
        "",
        "pr (default): without cases that are left to nightly runs; nightly: every case, as where a test is named",
        "TIER",
    ),
    Option("first", "", "files whose tests run first, in this order, separated by commas or spaces", "NAMES"),
    Option(
        "budget",
        "",
        "wall time of the run, e.g. 10m: a first look at every case, the rest spent on the least decided ones",
        "TIME",
    ),
    Option("worker-args", "", "options of your own conftest that workers need too", "ARGS"),
    Option("threshold", "2", "slowdown in percent that fails a case", "PERCENT", case=True),
    Option("floor-us", "0.5", "slowdown in microseconds below which nothing fails", "US", case=True),
    Option(
        "creep",
        "5",
        "slowdown in percent since the anchor, over all recordings, that is a finding",
        "PERCENT",
        case=True,
    ),
    Option("suite-rate", "0.01", "false alarms allowed per suite run, as a fraction", "RATE", case=True),
    Option("fail-on", "SLOWER,INCORRECT,SUSPICIOUS,ERROR", "verdicts that fail a test", "VERDICTS", case=True),
    Option(
        "arch",
        "",
        "compile kernels for these: gfx942,gfx1100, or all; by default gfx942 and the AMD GPUs that are here",
        "ARCHS",
    ),
    Option("code-set", "", "compile kernels with other settings, e.g. BLOCK_M=128,num_warps=8; never gates", "K=V"),
    Option(
        "code-fail-on",
        "occupancy,wider_loads",
        "changes of a code object that fail a test, beside those that always do: occupancy, wider_loads, vgprs, lds, "
        "code_size, launch; or all",
        "KINDS",
        code=True,
    ),
    Option("code-growth", "1", "growth of LDS and code size in percent that is no finding", "PERCENT", code=True),
)
BY_NAME = {option.name: option for option in OPTIONS}
ISOLATIONS = ("worker", "backend", "case", "none")
CASE_OPTIONS = tuple(option for option in OPTIONS if option.case)
CODE_OPTIONS = tuple(option for option in OPTIONS if option.code)
"""Settings of one code object: override over marker over command line over ini over default, as of a case."""
OF_A_MODEL = ("tp", "model-batch", "model-seq", "model-ignore")
"""Options that say how a model is measured."""
_FLAGS = (
    *("update_baselines", "calibrate", "together", "warm", "profile", "changed", "resume", "record_local"),
    *("pin_config", "strict", "override", "worker_fd", "worker_role"),
)
FLAGS = {"gate": "attnperf", **{name: f"attnperf_{name}" for name in _FLAGS}}
"""Field of `RunConfig` -> attribute of `config.option`, of what is no option of the table."""

TIMED = (
    ("gate", "--attnperf"),
    ("update_baselines", "--update-baselines"),
    ("calibrate", "--attnperf-calibrate"),
    ("together", "--attnperf-together"),
)
"""Flags of runs that measure, each with how it is typed."""

PASSED_TO_WORKERS = ("backend", "workload", "code-set", "model", *OF_A_MODEL)


def add_options(parser: pytest.Parser) -> None:
    """Declare everything. The group's help is the plugin's reference."""
    group = parser.getgroup("attnperf", "attention kernel performance (pytest-attnperf)")
    _add_flags(group)
    for option in OPTIONS:
        group.addoption(option.flag, dest=option.dest, default=None, metavar=option.metavar, help=option.help)
        parser.addini(option.dest, f"default of {option.flag}", default=None)


def _add_flags(group: pytest.OptionGroup) -> None:
    """Options that say what a run is for, and those that take no value or several."""
    group.addoption("--attnperf", action="store_true", help="prove each case right, measure it, and gate it")
    group.addoption(
        "--attnperf-update-baselines",
        action="store_true",
        help="measure in several fresh processes and merge into the stored baselines (alias --update-baselines)",
    )
    group.addoption(
        "--attnperf-record-local",
        action="store_true",
        help="where no baseline is stored for this product, record one under .attnperf/local and gate against it",
    )
    group.addoption(
        "--attnperf-strict",
        dest="attnperf_strict",
        action="store_true",
        default=None,
        help="UNDECIDED, NO_BASELINE, INCOMPARABLE, ENVIRONMENT and findings fail the run (default where CI is set)",
    )
    group.addoption(
        "--attnperf-calibrate",
        default=None,
        metavar="N",
        help="measure every case in N fresh processes of this code and say what the gate would make of their spread",
    )
    group.addoption(
        "--attnperf-pin-config",
        action="store_true",
        help="run autotuned and compiled backends with the configuration stored in the baseline",
    )
    group.addoption("--no-attnperf-strict", dest="attnperf_strict", action="store_false", help="they do not")
    group.addoption(
        "--attnperf-override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a case setting that beats markers, e.g. threshold=5; repeatable",
    )
    _add_kinds_of_run(group)
    group.addoption("--attnperf-worker-fd", default=None, metavar="FD", help="internal: this session is a worker")
    group.addoption("--attnperf-worker-role", default="", metavar="ROLE", help="internal: compile, of a compile worker")


def _add_kinds_of_run(group: pytest.OptionGroup) -> None:
    """Options that make a run look at its cases in another way, or at some of them only."""
    group.addoption(
        "--attnperf-profile",
        action="store_true",
        help="profile every right case with torch's profiler, in a process that times nothing, and say what binds it; "
        "with --attnperf by its time, alone without",
    )
    group.addoption(
        "--attnperf-changed",
        action="store_true",
        help="prove every case right, and time only those that run other machine code or another configuration than "
        "their baseline's; the others count as unchanged",
    )
    group.addoption(
        "--attnperf-warm",
        action="store_true",
        help="build, compile and autotune every case ahead of a timed run, without timing any (attnperf warm)",
    )
    group.addoption(
        "--attnperf-together",
        action="store_true",
        help="measure every case alone on each visible GPU, then on all of them at once: how they scale, and disturb "
        "each other; never gates",
    )
    group.addoption(
        "--attnperf-resume",
        action="store_true",
        help="take over what an interrupted run of the same command had judged, and judge the rest",
    )


def check_rootdir(config: pytest.Config) -> None:
    """Refuse an option's path that had a say in choosing rootdir.

    pytest takes every word of the command line that exists on disk into account when it looks for rootdir, also the
    value of `--attnperf-baselines ../base`. Raises UsageError naming the option and the spelling that is safe.
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
                f"{flag} {value}: pytest took this path into account when it chose rootdir={config.rootpath}; "
                f"write {flag}={value}"
            )


def case_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """`--attnperf-override KEY=VALUE` as a dict. Raises UsageError for an unknown key or a missing '='."""
    known = {option.field for option in (*CASE_OPTIONS, *CODE_OPTIONS)}
    overrides: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.replace("-", "_")
        if not equals or key not in known:
            raise UsageError(f"--attnperf-override={text!r}: expected KEY=VALUE with KEY one of {sorted(known)}")
        overrides[key] = value
    return overrides
