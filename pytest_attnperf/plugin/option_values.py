"""Reads values of options that are more than a number or a word, and checks all before anything is collected.

Defaults are not checked, so that a session without a case pays nothing for them.
"""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pytest_attnperf.errors import AttnperfError, UnknownNameError, UsageError
from pytest_attnperf.gate.policy import NIGHTLY, require_tier
from pytest_attnperf.measure.stopping import MIN_BLOCKS
from pytest_attnperf.plugin.case_policies import check_case_options
from pytest_attnperf.plugin.config import RunConfig, parse_number
from pytest_attnperf.plugin.features.code_objects.code_items import archs_of, check_code_options, code_settings
from pytest_attnperf.plugin.options import BY_NAME, CASE_OPTIONS, CODE_OPTIONS, OPTIONS
from pytest_attnperf.workers.conversation import BlockPlan

EFFORTS = {
    "low": BlockPlan(15, budget_us=60_000.0),
    BY_NAME["effort"].default: BlockPlan(),
    "high": BlockPlan(60, budget_us=240_000.0),
}
"""Word -> what a process measures of a case. All have blocks of one length: a longer block is another measurement. With
15 blocks the timer `graph` still visits every place in memory, with half of the draws at each."""

EFFORT_FIELDS = "blocks=30,block_us=600,budget_ms=120"
EFFORT_LEAST = {"blocks": MIN_BLOCKS, "block_us": 10, "budget_ms": 1}
"""Field -> its smallest value. Fewer blocks could not be gated."""


def read_effort(asked: RunConfig) -> BlockPlan:
    """Returns the plan of `--attnperf-effort`: of a word, or of fields such as 'blocks=60,budget_ms=300'; a field that
    is not given is that of 'normal'. Raises UsageError that begins with the option or ini key."""
    what, text = asked.name_of("effort"), asked.effort
    if text in EFFORTS:
        return EFFORTS[text]
    given: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or name not in EFFORT_LEAST or name in given:
            why = f"has {name} twice" if name in given else f"is not known: {part.strip()!r}"
            raise UsageError(f"{what}={text!r} {why}; allowed: {', '.join(EFFORTS)}, or fields of {EFFORT_FIELDS}")
        given[name] = parse_number(f"{what}: {name}", value, minimum=EFFORT_LEAST[name], integer=name == "blocks")
    usual = BlockPlan()
    return BlockPlan(
        int(given.get("blocks", usual.max_blocks)),
        given.get("block_us", usual.block_us),
        given["budget_ms"] * 1000 if "budget_ms" in given else usual.budget_us,
    )


def read_repeats(asked: RunConfig) -> int:
    """Returns the number of calls whose bits are compared. Raises UsageError for 1, which compares nothing."""
    repeats = asked.count("determinism")
    if repeats == 1:
        raise UsageError(f"{asked.name_of('determinism')}=1 compares nothing; give 2 or more calls, or 0 for none")
    return repeats


def read_trials(asked: RunConfig) -> tuple[str, ...]:
    """Returns the names of the trials of this run, in the order of `measure.trials.TRIALS`: those given, else the
    guards, or all in a nightly run; then that of `--attnperf-invariance`. Raises UnknownNameError for a name that is
    none."""
    from pytest_attnperf.measure.trials import ALL, ALWAYS, NONE, TRIALS
    from pytest_attnperf.records.trials import INVARIANCE

    text = asked.trials or (ALL if asked.tier == NIGHTLY else ",".join(ALWAYS))
    names = [name.strip() for name in text.split(",")]
    also = (INVARIANCE,) if asked.invariance else ()
    if names in ([ALL], [NONE]):
        return (*(TRIALS if names == [ALL] else ()), *also)
    for name in names:
        if name not in TRIALS:
            raise UnknownNameError(f"trial of {asked.name_of('trials')}", name, (ALL, NONE, *TRIALS))
    return (*(name for name in TRIALS if name in names), *also)


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


def refuse_bad_values(config: pytest.Config, asked: RunConfig) -> None:
    """Raises UsageError for the first value that is none of its option, with the option or ini key and what is allowed.

    Backends, workloads and models are checked when conftests have registered theirs; GPUs when they are listed.
    """
    for option in OPTIONS:
        if asked.text(option.name) == option.default:
            continue
        if option.least is not None:
            asked.number(option.name)
        elif option.choices:
            asked.choice(option.name)
        if option.name in CHECKS:
            CHECKS[option.name](config, asked)
    if asked.calibrate:
        parse_number("--attnperf-calibrate", asked.calibrate, minimum=2, integer=True)
    if asked.override or any(asked.text(option.name) != option.default for option in (*CASE_OPTIONS, *CODE_OPTIONS)):
        check_case_options(config)
        check_code_options(config)


def _check_effort(_config: pytest.Config, asked: RunConfig) -> None:
    read_effort(asked)


def _check_determinism(_config: pytest.Config, asked: RunConfig) -> None:
    read_repeats(asked)


def _check_trials(_config: pytest.Config, asked: RunConfig) -> None:
    read_trials(asked)


def _check_sanitize(config: pytest.Config, asked: RunConfig) -> None:
    from pytest_attnperf.plugin.session_setup import device_kind
    from pytest_attnperf.workers.sanitizers import ON_A_CPU, find_sanitizer, read_tools

    tools = read_tools(asked.name_of("sanitize"), asked.sanitize)
    if asked.in_process:
        raise UsageError(f"{asked.name_of('sanitize')} needs processes of its own; drop --attnperf-isolate=none")
    if device_kind(config)[0] == "cpu":
        raise UsageError(f"{asked.name_of('sanitize')} {ON_A_CPU}")
    for tool in tools:
        find_sanitizer(tool)


def _check_tier(_config: pytest.Config, asked: RunConfig) -> None:
    require_tier(asked.tier, asked.name_of("tier"))


def _check_timer(_config: pytest.Config, asked: RunConfig) -> None:
    from pytest_attnperf.measure.timers import timer_names
    from pytest_attnperf.measure.timers.timer_table import LISTED_IN

    asked.choice("timer", timer_names(), LISTED_IN)


def _check_shard(_config: pytest.Config, asked: RunConfig) -> None:
    from pytest_attnperf.plugin.features.sharding.sharding import read_shard

    if asked.gate:  # the ini file may name a part for such runs only
        read_shard(asked)


def _check_budget(_config: pytest.Config, asked: RunConfig) -> None:
    from pytest_attnperf.session.time_left import parse_seconds

    parse_seconds(asked.budget, asked.name_of("budget"))


def _check_worker_args(_config: pytest.Config, asked: RunConfig) -> None:
    try:
        shlex.split(asked.worker_args)
    except ValueError as error:
        raise UsageError(
            f"{asked.name_of('worker-args')}={asked.worker_args!r}: {error}; quote it as in a shell"
        ) from None


def _check_history(_config: pytest.Config, asked: RunConfig) -> None:
    if not (asked.is_timed or "history" in asked.typed):
        return  # the ini file may name a history for other runs, and its library may be missing here
    from pytest_attnperf.plugin.report_inputs import history_url
    from pytest_attnperf.tools.history.engines import parse_location

    try:
        parse_location(history_url(asked))
    except AttnperfError as error:
        raise UsageError(f"{asked.name_of('history')}: {error}") from error


def _check_side(name: str) -> Callable[[pytest.Config, RunConfig], None]:
    """Returns the check of a base side or candidate: a revision must exist, if this run needs it."""

    def check(_config: pytest.Config, asked: RunConfig) -> None:
        from pytest_attnperf.workers.base_side import require_side

        if asked.is_timed or name in asked.typed:
            try:
                require_side(asked.text(name), asked.root)
            except UsageError as error:
                raise UsageError(str(error).replace(BY_NAME["against"].flag, asked.name_of(name))) from error

    return check


def _check_path(name: str, *, folder: bool) -> Callable[[pytest.Config, RunConfig], None]:
    """Returns the check of a path that is written to: no file may be where a folder is needed, and vice versa."""

    def check(_config: pytest.Config, asked: RunConfig) -> None:
        path = (asked.typed_in if name == "report" and name in asked.typed else asked.root) / asked.text(name)
        if asked.text(name) and path.exists() and path.is_dir() != folder and not _is_device(path):
            found, needed = ("a file", "a folder") if folder else ("a folder", "a file")
            raise UsageError(f"{asked.name_of(name)}={asked.text(name)!r} is {found}; name {needed}, or a new one")

    return check


def _check_arch(config: pytest.Config, _asked: RunConfig) -> None:
    archs_of(config)


def _check_code_set(config: pytest.Config, _asked: RunConfig) -> None:
    code_settings(config)


def _is_device(path: Path) -> bool:
    return path.is_char_device() or path.is_fifo()


CHECKS: Mapping[str, Callable[[pytest.Config, RunConfig], None]] = {
    "effort": _check_effort,
    "determinism": _check_determinism,
    "trials": _check_trials,
    "sanitize": _check_sanitize,
    "tier": _check_tier,
    "timer": _check_timer,
    "shard": _check_shard,
    "budget": _check_budget,
    "worker-args": _check_worker_args,
    "history": _check_history,
    "against": _check_side("against"),
    "candidate": _check_side("candidate"),
    "baselines": _check_path("baselines", folder=True),
    "report": _check_path("report", folder=True),
    "results": _check_path("results", folder=False),
    "arch": _check_arch,
    "code-set": _check_code_set,
}
"""Option -> its check; numbers and choices are checked by the table of options."""
