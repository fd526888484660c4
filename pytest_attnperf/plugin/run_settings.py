"""What a session judges by, made of what was asked for."""

from __future__ import annotations

import random

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin.config import RunConfig, parse_number
from pytest_attnperf.plugin.launching import TIMER_CHOICES
from pytest_attnperf.plugin.options import ISOLATIONS, MIN_BASELINE_PROCESSES
from pytest_attnperf.session.settings import Mode, RunSettings
from pytest_attnperf.workers.conversation import BlockPlan


def mode_of(asked: RunConfig) -> Mode:
    """What a run is for."""
    if asked.update_baselines:
        return Mode.UPDATE
    if asked.calibrate:
        return Mode.CALIBRATE
    if asked.gate:
        return Mode.GATE
    if asked.warm:
        return Mode.WARM
    return Mode.TOGETHER if asked.together else Mode.CHECK


def run_settings(asked: RunConfig, cases: int, *, distributed: bool) -> RunSettings:
    """The settings of a run of so many cases that may be timed. Raises UsageError for a value out of range.

    distributed   whether cases are spread over workers of xdist
    """
    mode = mode_of(asked)
    if mode is Mode.WARM:
        from pytest_attnperf.plugin.features.warming import refuse_warm

        refuse_warm(asked, distributed=distributed)
    return RunSettings(
        mode=mode,
        cases=cases,
        processes=_processes(asked, mode),
        second_look=asked.count("second-look", minimum=1),
        plan=BlockPlan(
            max_blocks=asked.count("blocks", minimum=3),
            block_us=asked.number("block-us", minimum=10),
            budget_us=asked.number("budget-ms", minimum=1) * 1000,
            timer=asked.choice("timer", TIMER_CHOICES),
        ),
        case_limit_seconds=_case_limit_seconds(asked, mode),
        seed=asked.count("seed", minimum=0) if asked.seed else random.SystemRandom().randrange(1 << 31),
        determinism_repeats=_determinism_repeats(asked),
        record_local=asked.record_local,
        gates=not asked.in_process,
        isolate=asked.choice("isolate", ISOLATIONS),
        given_options=asked.given,
        pin_config=asked.pin_config,
        accepted=asked.accept,
        profile=asked.profile,
        changed_only=asked.changed,
        budget_seconds=_budget_seconds(asked, mode, distributed=distributed),
    )


def _processes(asked: RunConfig, mode: Mode) -> int:
    """Fresh processes behind an entry, or behind a calibration. Raises UsageError for too few."""
    if mode is Mode.CALIBRATE:
        return int(parse_number("--attnperf-calibrate", asked.calibrate, minimum=2, integer=True))
    return asked.count("processes", minimum=MIN_BASELINE_PROCESSES)


def _case_limit_seconds(asked: RunConfig, mode: Mode) -> float:
    """Seconds after which a case is given up; a run that compiles has another default."""
    if mode is Mode.WARM and "case-limit" not in asked.typed:
        from pytest_attnperf.plugin.features.warming import CASE_LIMIT_S

        return CASE_LIMIT_S
    return asked.number("case-limit", minimum=0.5)


def _determinism_repeats(asked: RunConfig) -> int:
    """Calls whose bits are compared. Raises UsageError for 1: one call has nothing to be compared with."""
    repeats = asked.count("determinism", minimum=0)
    if repeats == 1:
        raise UsageError("--attnperf-determinism=1 compares nothing; give 2 or more calls, or 0 for none")
    return repeats


def _budget_seconds(asked: RunConfig, mode: Mode, *, distributed: bool) -> float | None:
    if not asked.budget:
        return None
    from pytest_attnperf.plugin.features.budgeting import budget_seconds

    return budget_seconds(asked, mode, distributed=distributed)
