"""What an option is, and the options that take no value, may be repeated, or are internal; `options` has all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HELP = "--attnperf-help"


@dataclass(frozen=True)
class Switch:
    """One option of the command line that has no key in the ini file.

    group      as in `Option`
    settings   arguments of `argparse.ArgumentParser.add_argument`
    """

    flag: str
    help: str
    group: str = ""
    settings: Mapping[str, Any] = field(default_factory=lambda: {"action": "store_true"})


@dataclass(frozen=True)
class Option:
    """One option: `--attnperf-NAME` on the command line and `attnperf_NAME` in the ini file.

    path     whether its value is a path
    found    whether a relative path is made absolute before workers get it: it is relative to the current folder, or
             in the ini file to rootdir, but workers start elsewhere and all revisions must read the same file
    case     whether it is a setting of a timed case, which markers can change
    code     whether it is a setting of a code object, which markers can change
    group    one of `GROUPS`, under which `pytest --help` shows it; '' if only `--attnperf-help` does
    key      whether there is no such option: it is an ini key, a marker's argument and an `--attnperf-override` only
    least    smallest value of a number; None if it is no number
    whole    whether a number must be a whole one
    choices  the allowed words; empty if it is no choice, or one that other modules list
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
    key: bool = False
    least: float | None = None
    whole: bool = True
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The name on the command line, e.g. `--attnperf-case-limit`."""
        return f"--attnperf-{self.name}"

    @property
    def dest(self) -> str:
        """The attribute of `config.option` and the ini key, e.g. `attnperf_case_limit`."""
        return f"attnperf_{self.field}"

    @property
    def label(self) -> str:
        """What messages call it: `--attnperf-case-limit`, or the ini key where there is no option."""
        return self.dest if self.key else self.flag

    @property
    def field(self) -> str:
        """The field of `RunConfig` and the keyword of the marker, e.g. `case_limit`."""
        return self.name.replace("-", "_")


SWITCHES = (
    Switch("--attnperf", "also measure and gate each case; default: only prove it", "measure"),
    Switch(HELP, "show all options with default, ini key and marker argument, and exit; default: off", "report"),
    Switch(
        "--attnperf-changed",
        "prove every case, but time only those whose machine code or configuration is not the baseline's; default: off",
        "select",
    ),
    Switch(
        "--attnperf-profile",
        "also profile every right case with torch's profiler, untimed, and report what limits it; default: off",
        "measure",
    ),
    Switch(
        "--attnperf-invariance",
        "also compare rows, sequences and requests bit by bit with the same ones alone, in other places of a batch and "
        "in chunks; differences fail only backends that say invariant=True; default: off, on for such backends",
    ),
    Switch(
        "--attnperf-execute",
        "also execute compiled AMD kernels, by an interpreter of machine code, and judge their results; default: off",
    ),
    Switch(
        "--attnperf-resume",
        "reuse the verdicts of an interrupted run of the same command, and judge the other cases; default: off",
        "measure",
    ),
    Switch(
        "--attnperf-update-baselines",
        "measure in several fresh processes and store baselines (alias --update-baselines); default: off",
        "record",
    ),
    Switch(
        "--attnperf-record-local",
        "if this product has no baseline, record one in .attnperf/local and compare with that; default: off",
        "record",
    ),
    Switch(
        "--attnperf-strict",
        "UNDECIDED, NO_BASELINE, INCOMPARABLE, ENVIRONMENT and findings fail the run (--no-attnperf-strict: they do "
        "not); default: on if CI is set",
        "compare",
        {"dest": "attnperf_strict", "action": "store_true", "default": None},
    ),
    Switch(
        "--no-attnperf-strict",
        "the verdicts and findings of --attnperf-strict do not fail the run; default: off if CI is set",
        settings={"dest": "attnperf_strict", "action": "store_false"},
    ),
    Switch(
        "--attnperf-calibrate",
        "measure every case in N fresh processes and report how often the gate would fail by noise; default: off",
        settings={"default": None, "metavar": "N"},
    ),
    Switch(
        "--attnperf-pin-config",
        "run autotuned and compiled backends with the configuration of the baseline; default: their own choice",
    ),
    Switch(
        "--attnperf-override",
        "a setting that takes precedence over markers, e.g. floor_us=1 (--attnperf-help lists all); repeatable; "
        "default: none",
        "compare",
        {"action": "append", "default": [], "metavar": "KEY=VALUE"},
    ),
    Switch(
        "--attnperf-warm",
        "build, compile and autotune every case before a timed run, without timing; default: off",
    ),
    Switch(
        "--attnperf-together",
        "measure every case on each visible GPU alone, then on all at once, to show how cases scale and how GPUs "
        "disturb each other; never gates; default: off",
    ),
    Switch(
        "--attnperf-worker-fd", "internal: makes a worker; default: none", settings={"default": None, "metavar": "FD"}
    ),
    Switch(
        "--attnperf-worker-role",
        "internal: kind of the worker; default: timing",
        settings={"default": "", "metavar": "ROLE"},
    ),
)
