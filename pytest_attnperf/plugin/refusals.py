"""Usage errors: options that contradict each other, have no effect in this run, or repeat failing cases."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.measure.timers import is_gating
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.case_policies import make_cost_settings, make_policy
from pytest_attnperf.plugin.cases import MARKER, marker_settings, read_switches, tier_of
from pytest_attnperf.plugin.config import RunConfig
from pytest_attnperf.plugin.keys import PLANNED, case_key
from pytest_attnperf.records import CaseKey
from pytest_attnperf.session.settings import Case

RECORDING = (("update_baselines", "--update-baselines"), ("calibrate", "--attnperf-calibrate"))
PROFILE, WARM = ("profile", "--attnperf-profile"), ("warm", "--attnperf-warm")
BESIDE = {
    "profile": (RECORDING, "only cases that are gated or checked are profiled; drop one"),
    "changed": ((*RECORDING, PROFILE, WARM), "only a gating run may skip timing unchanged cases; drop one"),
    "warm": (
        (("gate", "--attnperf"), *RECORDING, PROFILE),
        "warming compiles ahead of a run and times nothing; run it first, alone",
    ),
    "shard": (
        (*RECORDING, ("together", "--attnperf-together")),
        "only a run that gates writes results that show whether every part has run; drop one",
    ),
    "sanitize": (
        (("gate", "--attnperf"), *RECORDING, PROFILE, WARM, ("together", "--attnperf-together")),
        "under such a tool kernels run many times slower, so nothing is timed; drop one",
    ),
}
"""Field of a kind of run -> ((field, option) of each option that it cannot be combined with, the reason)."""

OWN_PROCESSES = {
    "profile": "--attnperf-profile needs separate processes, because torch's profiler slows what runs after it; drop "
    "--attnperf-isolate=none",
    "changed": "--attnperf-changed is for runs that gate, but --attnperf-isolate=none never gates; drop one",
}

OF_TIMING = (
    *("interleave", "pairs", "timer", "processes", "second-look", "effort", "results"),
    *("report", "history", "benchmark", "threshold", "costs", "record-local", "strict", "shard"),
)
"""Options that have an effect only in runs that measure."""

OF_A_BASE = ("interleave", "pairs")
NEEDS_TIMING = "without it this run only proves that cases are right: nothing is timed, gated or written"


def refuse_contradictions(asked: RunConfig) -> None:
    """Raises UsageError for options that cannot be combined or lack another one; it says which to drop or add."""
    if asked.calibrate == "":
        raise pytest.UsageError("--attnperf-calibrate is empty; give the number of fresh processes, e.g. 20")
    for name, (others, why) in BESIDE.items():
        if not getattr(asked, name):
            continue
        for other, flag in others:
            if getattr(asked, other):
                raise pytest.UsageError(f"{flag} with --attnperf-{name}: {why}")
        if asked.in_process and name in OWN_PROCESSES:
            raise pytest.UsageError(OWN_PROCESSES[name])
        if name == "changed" and not asked.gate:
            raise pytest.UsageError("--attnperf-changed selects which cases --attnperf times; add --attnperf")


def refuse_two_modes(asked: RunConfig) -> None:
    """Raises UsageError for two modes in one run, and for a base side or candidate that cannot be measured."""
    if asked.update_baselines and asked.calibrate:
        raise pytest.UsageError("--update-baselines and --attnperf-calibrate: a run can only do one of them; drop one")
    for name in ("against", "candidate"):
        if asked.is_recording and asked.text(name):
            mode = "--update-baselines" if asked.update_baselines else "--attnperf-calibrate"
            raise pytest.UsageError(f"{mode} with --attnperf-{name}: it measures the working tree only; drop one")
    if asked.candidate and not _find_typed(asked.words, "--attnperf-candidate"):
        raise pytest.UsageError(
            f"the ini file or PYTEST_ADDOPTS sets --attnperf-candidate={asked.candidate}: the run would measure "
            "another tree, and the command does not show it; type the option, or remove it there"
        )
    if asked.candidate and not asked.against:
        raise pytest.UsageError(
            "--attnperf-candidate needs --attnperf-against: a base side to compare it with; add that"
        )
    if asked.against and asked.in_process:
        raise pytest.UsageError("--attnperf-against needs separate processes; drop --attnperf-isolate=none")


def refuse_gating(asked: RunConfig) -> None:
    """Raises UsageError if a run is to store, compare or skip by times of a timer that never gates."""
    if not asked.is_timed or is_gating(asked.text("timer")):
        return
    stored = [flag for field, flag in RECORDING if getattr(asked, field)]
    compared = [f"--attnperf-{name}" for name in ("against", "changed") if getattr(asked, name)]
    for flag in (*stored, *compared):
        name = f"{asked.name_of('timer')}={asked.text('timer')}"
        raise pytest.UsageError(
            f"{flag} with {name}: this timer shows what another protocol would have said, and never gates; drop one"
        )


def refuse_update(asked: RunConfig) -> None:
    """Raises UsageError if a run would store baselines of typed workloads, or of pytest's own process."""
    if asked.update_baselines and asked.workload:
        raise pytest.UsageError(
            "--update-baselines with --attnperf-workload: workloads given on the command line are never stored; "
            "add them to the suite's list first"
        )
    if asked.update_baselines and asked.in_process:
        raise pytest.UsageError("--update-baselines needs fresh processes; drop --attnperf-isolate=none")


def refuse_unheeded(asked: RunConfig) -> None:
    """Raises UsageError for a typed option without effect in this run. Ini keys may be meant for other runs."""
    for name, needed, why in _list_unmet_needs(asked):
        word = _find_typed(asked.words, f"--attnperf-{name}")
        if word:
            raise pytest.UsageError(f"{word} needs {needed}: {why}. Add {needed.split(' or ')[0]}, or drop {word}")


def refuse_useless_base(asked: RunConfig) -> None:
    """Raises UsageError if --attnperf-against is typed for a run that times nothing.

    Not called if the run compiles kernels, because their baselines are read from the base side also without timing.
    """
    word = _find_typed(asked.words, options.BY_NAME["against"].flag)
    if word and not asked.is_timed:
        raise pytest.UsageError(f"{word} needs --attnperf: {NEEDS_TIMING}. Add --attnperf, or drop {word}")


def _list_unmet_needs(asked: RunConfig) -> Iterator[tuple[str, str, str]]:
    """Yields (option, the option it needs, why it has no effect without that), whether typed or not."""
    if not asked.is_timed:
        written = ("results",) if asked.profile else ()
        yield from ((name, "--attnperf", NEEDS_TIMING) for name in OF_TIMING if name not in written)
    if not asked.against:
        why = "without a base side no case is measured in pairs"
        yield from ((name, "--attnperf-against", why) for name in OF_A_BASE)
    if not asked.against and not asked.candidate:
        yield "build", "--attnperf-against or --attnperf-candidate", "there is no other tree to build"
    if not asked.update_baselines:
        yield "accept", "--update-baselines", "it is the reason for a recorded slowdown, but nothing is recorded"


def _find_typed(words: Sequence[str], flag: str) -> str:
    """Returns the word of the command line that gives the option `flag`, with its '=VALUE'; '' if there is none."""
    return next((word for word in words if word == flag or word.startswith(f"{flag}=")), "")


def refuse_repeats(config: pytest.Config) -> None:
    """Raises UsageError if pytest-rerunfailures would repeat failing tests, by an option or the ini file."""
    for name in ("force_reruns", "reruns"):
        if config.getoption(name, default=None):
            raise _make_refusal(f"--{name.replace('_', '-')}")
    try:
        stored = config.getini("reruns")
    except (KeyError, ValueError):  # no plugin has declared it
        return
    if config.getoption("reruns", default=None) is None and str(stored or 0).strip() not in ("", "0"):
        raise _make_refusal("reruns, in the ini file,")


def refuse_hidden_collecting(config: pytest.Config, asked: RunConfig) -> None:
    """Raises UsageError if the ini file or PYTEST_ADDOPTS sets --collect-only: --attnperf would run nothing."""
    typed = any(word in ("--collect-only", "--collectonly", "--co") for word in asked.words)
    if asked.gate and config.getoption("collectonly") and not typed:
        raise pytest.UsageError(
            "the ini file or PYTEST_ADDOPTS sets --collect-only: with --attnperf nothing would be measured, and the "
            "exit status would be 0; remove it there, or type --collect-only"
        )


def refuse_flaky(items: Iterable[pytest.Item]) -> None:
    """Raises UsageError for a case with the marker `flaky`, which repeats it."""
    for item in items:
        if case_key(item) is not None and item.get_closest_marker("flaky"):
            raise pytest.UsageError(f"{item.nodeid} has @pytest.mark.flaky, which repeats it until it passes; drop it")


def refuse_unittest(items: Iterable[pytest.Item]) -> None:
    """Raises UsageError for a case that is a method of a unittest.TestCase."""
    kind = getattr(sys.modules.get("unittest"), "TestCase", None)
    for item in items:
        if kind is not None and case_key(item) is not None and issubclass(getattr(item, "cls", None) or object, kind):
            raise pytest.UsageError(
                f"{item.nodeid} is a method of a unittest.TestCase, which pytest runs in a way that this plugin cannot "
                "judge; make it a function, or a method of a plain class"
            )


def _make_refusal(what: str) -> pytest.UsageError:
    way = "Give --reruns=0" if "ini" in what else f"Drop {what}"
    return pytest.UsageError(
        f"{what} repeats a SLOWER case until it passes by chance; with --attnperf the second look in fresh processes "
        f"replaces repeating. {way} (or add -p no:rerunfailures)"
    )


def policy_for(config: pytest.Config, item: pytest.Item) -> Policy:
    """Returns the thresholds and other settings that judge the item's case. Raises pytest.UsageError if invalid."""
    marker = item.get_closest_marker(MARKER)
    try:
        settings = {} if marker is None else marker_settings(marker, item.nodeid)
        return make_policy(config, settings | {"tier": tier_of(item)})
    except (UsageError, ValueError) as error:
        raise pytest.UsageError(f"{item.nodeid}: {error}") from error


def plan_case(config: pytest.Config, item: pytest.Item, key: CaseKey) -> Case:
    """Returns how the case is judged: key, policy and switches; `next_key` is None. Raises as `policy_for`."""
    costs = make_cost_settings(config)
    return Case(key, item.nodeid, policy_for(config, item), None, **read_switches(item), costs=costs)


def plan_cases(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Stores with every item that is a case how it is judged (PLANNED), before any test runs. Raises pytest.UsageError
    for invalid settings."""
    for item in items:
        if (key := case_key(item)) is not None:
            item.stash[PLANNED] = plan_case(config, item, key)
