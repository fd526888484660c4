"""Settings of a run from the command line and the ini file, read once, and the session's role under pytest-xdist.

Numbers stay text here and are parsed when a run is set up (see `run_settings`), so that a session without a case does
not fail because of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.environment.provenance import is_ci
from pytest_attnperf.errors import UsageError, propose_name
from pytest_attnperf.plugin.options import BY_NAME, FLAGS, OPTIONS
from pytest_attnperf.plugin.switches import Option

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.sharding.sharding import Sharding

SHARDING = "attnperf-shard"
"""Name of the plugin object of `--attnperf-shard`."""

_DEFAULT = {option.field: option.default for option in OPTIONS}
_NOT_REPEATED = frozenset(
    {"backend", "results", "seed", "accept", "report", "history", "benchmark", "budget", "tier", "first", "shard"}
)
"""Options that `typed_options` leaves out: they select cases, or belong to one run only."""


@dataclass(frozen=True)
class RunConfig:
    """Settings of one session: flags, then the options of `options.OPTIONS`; `text` returns any of these by name.

    gate        --attnperf was given
    calibrate   number of processes, as typed; None without --attnperf-calibrate
    strict      from the command line; by default true if CI is set
    override    KEY=VALUE, as typed
    worker_fd   descriptor of the channel to the controller, if this session is a worker, else None
    root        pytest's rootdir; `typed_in` is the folder where pytest was started
    words       the words of the command line
    typed       option's name -> value, for the options on the command line
    others      option's field -> value, for the options without a field of this class
    """

    gate: bool = False
    update_baselines: bool = False
    calibrate: str | None = None
    together: bool = False
    warm: bool = False
    profile: bool = False
    changed: bool = False
    execute: bool = False
    invariance: bool = False
    resume: bool = False
    record_local: bool = False
    pin_config: bool = False
    strict: bool = False
    override: tuple[str, ...] = ()
    worker_fd: str | None = None
    worker_role: str = ""
    root: Path = Path()
    typed_in: Path = Path()
    words: tuple[str, ...] = ()
    typed: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    backend: str = _DEFAULT["backend"]
    workload: str = _DEFAULT["workload"]
    model: str = _DEFAULT["model"]
    device: str = _DEFAULT["device"]
    isolate: str = _DEFAULT["isolate"]
    pin_gpu: str = _DEFAULT["pin_gpu"]
    against: str = _DEFAULT["against"]
    candidate: str = _DEFAULT["candidate"]
    interleave: str = _DEFAULT["interleave"]
    pairs: str = _DEFAULT["pairs"]
    build: str = _DEFAULT["build"]
    timer: str = _DEFAULT["timer"]
    accept: str = _DEFAULT["accept"]
    processes: str = _DEFAULT["processes"]
    second_look: str = _DEFAULT["second_look"]
    effort: str = _DEFAULT["effort"]
    determinism: str = _DEFAULT["determinism"]
    trials: str = _DEFAULT["trials"]
    sanitize: str = _DEFAULT["sanitize"]
    case_limit: str = _DEFAULT["case_limit"]
    seed: str = _DEFAULT["seed"]
    baselines: str = _DEFAULT["baselines"]
    results: str = _DEFAULT["results"]
    report: str = _DEFAULT["report"]
    history: str = _DEFAULT["history"]
    benchmark: str = _DEFAULT["benchmark"]
    tier: str = _DEFAULT["tier"]
    first: str = _DEFAULT["first"]
    shard: str = _DEFAULT["shard"]
    budget: str = _DEFAULT["budget"]
    worker_args: str = _DEFAULT["worker_args"]
    costs: str = _DEFAULT["costs"]
    threshold: str = _DEFAULT["threshold"]
    floor_us: str = _DEFAULT["floor_us"]
    creep: str = _DEFAULT["creep"]
    suite_rate: str = _DEFAULT["suite_rate"]
    fail_on: str = _DEFAULT["fail_on"]
    arch: str = _DEFAULT["arch"]
    code_set: str = _DEFAULT["code_set"]
    code_fail_on: str = _DEFAULT["code_fail_on"]
    code_growth: str = _DEFAULT["code_growth"]

    @property
    def is_timed(self) -> bool:
        """Whether this run measures times: it gates, stores baselines, calibrates, or measures all GPUs together."""
        return self.gate or self.update_baselines or bool(self.calibrate) or self.together

    @property
    def is_recording(self) -> bool:
        """Whether every case is measured in several fresh processes: to store baselines, or to calibrate."""
        return self.update_baselines or bool(self.calibrate)

    @property
    def in_process(self) -> bool:
        """Whether cases run in pytest's own process; such a run never gates."""
        return self.isolate == "none"

    @property
    def is_worker(self) -> bool:
        """Whether this session is a worker of this plugin (not of xdist)."""
        return self.worker_fd is not None

    @property
    def replaced_by(self) -> str:
        """Option that replaces the workloads of all tests, '--attnperf-workload' or '--attnperf-model'; '' if none."""
        return next((f"--attnperf-{name}" for name in ("workload", "model") if self.text(name)), "")

    @property
    def typed_options(self) -> tuple[str, ...]:
        """The typed options, quoted for a shell, that a command needs to repeat one case of this run.

        Options that select cases or say where results go are left out. So is the seed, which messages name themselves.
        """
        typed = ((f"--attnperf-{name}", text) for name, text in self.typed.items() if name not in _NOT_REPEATED)
        overrides = (f"--attnperf-override={shlex.quote(text)}" for text in self.override)
        return (*(f"{flag}={shlex.quote(text)}" for flag, text in typed), *overrides)

    def text(self, name: str) -> str:
        """Returns the value of an option by its name, e.g. `case-limit`."""
        dest = name.replace("-", "_")
        return self.others[dest] if dest in self.others else str(getattr(self, dest))

    def name_of(self, name: str) -> str:
        """Returns what a message calls an option: its ini key if only the ini file gives a value, else its flag."""
        option = BY_NAME[name]
        from_ini = name not in self.typed and self.text(name) != option.default
        return option.dest if from_ini and not self.is_worker else option.label

    def number(self, name: str) -> float:
        """Returns an option as a number. Raises UsageError that names the option, its value and the minimum."""
        option = BY_NAME[name]
        assert option.least is not None
        return parse_number(self.name_of(name), self.text(name), minimum=option.least, integer=option.whole)

    def count(self, name: str) -> int:
        """Returns an option as a whole number. Raises UsageError as `number` does."""
        return int(self.number(name))

    def choice(self, name: str, allowed: tuple[str, ...] = (), listed_in: str = "") -> str:
        """Returns an option's value, one of its choices, or of `allowed` if given. Raises UsageError that lists all,
        and names their file if `listed_in` is given."""
        value, known = self.text(name), allowed or BY_NAME[name].choices
        if value not in known:
            where = f" (listed in {listed_in})" if listed_in else ""
            raise UsageError(
                f"{self.name_of(name)}={value!r} is not known{propose_name(value, known)}; choose one of: "
                f"{', '.join(known)}{where}"
            )
        return value

    @classmethod
    def from_pytest(cls, config: pytest.Config) -> RunConfig:
        """Reads the settings of this session: command line over ini file over default, and CI from the environment."""
        given = {option.name: config.getoption(option.dest, default=None) for option in OPTIONS}
        typed = {name: str(value) for name, value in given.items() if value is not None}
        root, typed_in = Path(config.rootpath), Path(config.invocation_params.dir)
        texts: dict[str, Any] = {}
        for option in OPTIONS:
            start, text = typed_in, typed.get(option.name)
            if text is None:
                start, text = root, _read_key(config, option)
            texts[option.field] = str(start / text) if option.found and text else text
        own = {one.name for one in fields(cls)}
        flags = {name: config.getoption(dest, default=None) for name, dest in FLAGS.items()}
        strict, calibrate, worker_fd = (flags.pop(name) for name in ("strict", "calibrate", "worker_fd"))
        override, role = flags.pop("override"), flags.pop("worker_role")
        return cls(
            **{name: bool(value) for name, value in flags.items()},  # type: ignore[arg-type]
            calibrate=calibrate,
            strict=is_ci() if strict is None else bool(strict),
            override=tuple(map(str, override or ())),
            worker_fd=worker_fd,
            worker_role=role or "",
            root=root,
            typed_in=typed_in,
            words=tuple(map(str, config.invocation_params.args)),
            typed=typed,
            others={name: text for name, text in texts.items() if name not in own},
            **{name: text for name, text in texts.items() if name in own},
        )


def _read_key(config: pytest.Config, option: Option) -> str:
    """Returns the option's value in the ini file, else its default. Raises pytest.UsageError for a value of a TOML file
    that is no text."""
    try:
        return str(config.getini(option.dest) or option.default)
    except TypeError as error:
        raise pytest.UsageError(f'{option.dest} in {config.inipath}: {error}; write {option.dest} = "..."') from error


RUN_CONFIG = pytest.StashKey[RunConfig]()


def run_config(config: pytest.Config) -> RunConfig:
    """Returns this session's settings; the first call reads them."""
    known = config.stash.get(RUN_CONFIG, None)
    if known is None:
        known = config.stash[RUN_CONFIG] = RunConfig.from_pytest(config)
    return known


def parse_number(what: str, text: object, *, minimum: float, integer: bool = False) -> float:
    """Returns `text` as a finite number of at least `minimum`; ignores a '%' at the end unless `integer`. Raises
    UsageError that begins with `what`=`text`."""
    kind = "a whole number" if integer else "a number"
    try:
        value = int(str(text)) if integer else float(str(text).rstrip("%"))
    except ValueError:
        raise UsageError(f"{what}={text!r} is not {kind}") from None
    if not minimum <= value < float("inf"):
        raise UsageError(f"{what}={text!r} must be {kind} of at least {minimum:g}")
    return value


def find_sharding(config: pytest.Config) -> Sharding | None:
    """Returns the plugin object of a session that has one part of the selected cases; None without --attnperf-shard."""
    found: Sharding | None = config.pluginmanager.get_plugin(SHARDING)
    return found


def is_xdist_worker(config: pytest.Config) -> bool:
    """Returns whether this session is a worker of xdist: it runs some of the cases for xdist's controller."""
    return hasattr(config, "workerinput")


def is_xdist_controller(config: pytest.Config) -> bool:
    """Returns whether this session is xdist's controller: the cases run in its workers, not here."""
    return not is_xdist_worker(config) and config.getoption("dist", default="no") != "no"


def is_distributed(config: pytest.Config) -> bool:
    """Returns whether the cases of the run are distributed over workers of xdist."""
    return is_xdist_worker(config) or is_xdist_controller(config)


def count_xdist_workers(config: pytest.Config) -> int:
    """Returns how many workers xdist's controller starts: the sum of `--tx`, to which xdist turns -n."""
    found = 0
    for text in config.getoption("tx", default=None) or []:
        times, star, _ = str(text).partition("*")
        found += int(times) if star and times.isdigit() else 1
    return found
