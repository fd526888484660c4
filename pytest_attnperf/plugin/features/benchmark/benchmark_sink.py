"""Gives the samples of cases that did not fail to pytest-benchmark, where that is loaded and measures.

Its table, `--benchmark-json`, `--benchmark-autosave`, `-compare` and `-histogram` then hold them beside the project's
own benchmarks. The case has been judged before: nothing here can change its verdict. pytest-benchmark "times" a replay
on a clock that reads what the workers measured, so that it stores exactly these durations; nothing of it is subclassed
or patched, and its `benchmark` fixture is asked for only when there is something to give.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.plugin.cases import pair_of, read_switches
from pytest_attnperf.plugin.config import is_xdist_controller, run_config
from pytest_attnperf.plugin.gathered import CASE, RESULT
from pytest_attnperf.plugin.keys import case_key
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult

if TYPE_CHECKING:
    from pytest_attnperf.plugin.run import Run

THEIRS = "pytest-benchmark"
"""The name under which pytest-benchmark registers its session; pytest-codspeed blocks it."""

FIXTURE = "benchmark"
REQUEST = "request"
"""pytest's own fixture, by which any other can be asked for while the item stands."""

BLOCK = "attnperf"
"""Key of our part of pytest-benchmark's machine info."""


class BenchmarkSink:
    """Plugin object of a session that measures; silent where pytest-benchmark is absent, skipped or disabled."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._clock = ReplayClock()
        self._prepared: set[str] = set()
        self._given: set[str] = set()
        self._machine: dict[str, str] | None = None
        self._compared: list[Mapping[str, Any]] = []
        self._lost: list[str] = []
        self._under_xdist = 0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        """Let `--benchmark-only` count cases that are timed as benchmarks, and give those that stay our clock."""
        session = self._find_session()
        if session is None:
            return (yield)
        with _named_as_benchmarks([item for item in items if session.only and _is_timed(item)]):
            result = yield
        # Only now: `-m "not benchmark"` must not deselect a case by a marker that nobody wrote.
        for item in items:
            if _is_timed(item) and not self._has_own_timing(item):
                self._prepare_item(item)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        """Give a case that has been judged and has not failed."""
        outcome = yield
        run: Run | None = self._config.pluginmanager.get_plugin("attnperf-run")
        result = pyfuncitem.stash.get(RESULT, None) if pyfuncitem.nodeid in self._prepared else None
        if run is not None and isinstance(result, CaseResult):
            self._offer_case(pyfuncitem, result, run.session.bench.commit)
        return outcome

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count what xdist's workers measured, and pytest-benchmark, which is off under xdist, does not get."""
        case = getattr(report, CASE, None)
        if case and report.when == "call" and self._is_off_by_xdist() and (case["first"] or case["pairs"]):
            self._under_xdist += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Add the device and the versions beneath the kernels."""
        if self._machine:
            machine_info[BLOCK] = dict(self._machine)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_compare_machine_info(
        self, machine_info: dict[str, Any], compared_benchmark: dict[str, Any]
    ) -> None:
        """Put our part off until the end: files are compared before the first worker has named the device."""
        machine_info.pop(BLOCK, None)
        stored = compared_benchmark["machine_info"].get(BLOCK)
        if isinstance(stored, dict):
            machine_info[BLOCK] = stored
            self._compared.append(stored)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_scale_unit(
        self, config: pytest.Config, unit: str, benchmarks: Sequence[Mapping[str, Any]]
    ) -> tuple[str, float] | None:
        """Microseconds, as in our own tables, for groups that hold nothing but our cases, unless a unit was given."""
        if unit != "seconds" or config.getoption("benchmark_time_unit", default=None) is not None:
            return None
        return ("u", 1e6) if all(bench["fullname"] in self._given for bench in benchmarks) else None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What a reader of pytest-benchmark's table and files must know."""
        for line in self.collect_notes():
            terminalreporter.write_line(line)

    def collect_notes(self) -> list[str]:
        """What was not given, and comparisons with another machine."""
        said = []
        if self._under_xdist:
            said.append(
                f"pytest-benchmark is off under xdist: the samples of {_format_case_count(self._under_xdist)} are in "
                f"{run_config(self._config).results}, and not in its table or files"
            )
        if self._lost:
            lost = f"{_format_case_count(len(self._lost))} could not be given to pytest-benchmark"
            said.append(f"{lost}{'; first' if len(self._lost) > 1 else ''}: {self._lost[0]}")
        changed = [
            difference for stored in self._compared for difference in _find_differences(self._machine or {}, stored)
        ]
        if changed:
            said.append(f"--benchmark-compare: measured on another machine: {'; '.join(dict.fromkeys(changed))}")
        return said

    def _find_session(self) -> Any:
        """pytest-benchmark's session, if it measures; None otherwise."""
        found = self._config.pluginmanager.get_plugin(THEIRS)
        measures = found is not None and not getattr(found, "skip", True) and not getattr(found, "disabled", True)
        return found if measures else None

    def _is_off_by_xdist(self) -> bool:
        """Whether pytest-benchmark would measure, were it not for xdist."""
        get = self._config.getoption
        if not is_xdist_controller(self._config):
            return False
        disabled = get("benchmark_disable", default=False) and not get("benchmark_enable", default=False)
        skipped = get("benchmark_skip", default=False)
        return self._config.pluginmanager.has_plugin(THEIRS) and not disabled and not skipped

    def _has_own_timing(self, item: pytest.Item) -> bool:
        """Whether the test's body runs here and times something of its own, for which our clock would stand still."""
        return run_config(self._config).in_process and FIXTURE in _list_fixtures(item)

    def _prepare_item(self, item: pytest.Item) -> None:
        """Add our clock, by pytest-benchmark's own marker, and what `benchmark` can be asked for with later."""
        marker = item.get_closest_marker(FIXTURE)
        given = dict(marker.kwargs) if marker else {}
        item.add_marker(pytest.mark.benchmark(**{**given, "timer": self._clock}), append=False)
        _set_fixtures(item, [*_list_fixtures(item), REQUEST])
        self._prepared.add(item.nodeid)

    def _offer_case(self, item: pytest.Function, result: CaseResult, commit: str) -> None:
        """Give a case if it may be stored. What goes wrong is said at the end: a sink never changes a verdict."""
        rounds = rounds_of(result)
        if not can_be_stored(result) or rounds is None:
            return
        if run_config(self._config).candidate:
            self._lost.append("--attnperf-candidate measures another tree than the one pytest-benchmark would name")
            return
        try:
            self._give_case(item, result, rounds, commit)
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            self._lost.append(one_line(f"{item.nodeid}: {type(error).__name__}: {error}"))

    def _give_case(self, item: pytest.Function, result: CaseResult, rounds: BenchmarkRounds, commit: str) -> None:
        from pytest_benchmark.fixture import BenchmarkFixture

        request = item.funcargs[REQUEST]
        assert isinstance(request, pytest.FixtureRequest)
        benchmark = request.getfixturevalue(FIXTURE)
        if not isinstance(benchmark, BenchmarkFixture):
            return
        if benchmark.group is None:
            benchmark.group = group_of(result)
        benchmark.params = _plain_params(item, benchmark.params)
        benchmark.extra_info.update(extra_info(result, rounds, commit))
        # Of a replay there is nothing to profile.
        benchmark.cprofile = False
        replay(benchmark, self._clock, rounds.seconds)
        self._given.add(item.nodeid)
        self._machine = _keep_common(self._machine, machine_of(result))


def _plain_params(item: pytest.Item, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What the test is parametrised with, so that `--benchmark-group-by=param:backend` has a name to group by."""
    pair = pair_of(item)
    return params if pair is None or params is None else {**params, "backend": pair[0].name, "workload": pair[1].id}


def _format_case_count(count: int) -> str:
    return f"{count} case{'s' if count != 1 else ''}"


def _keep_common(before: dict[str, str] | None, now: dict[str, str]) -> dict[str, str]:
    """Fields that all given cases agree on."""
    return now if before is None else {name: value for name, value in before.items() if now.get(name) == value}


def _find_differences(here: Mapping[str, str], stored: Mapping[str, Any]) -> list[str]:
    """Fields that both sides state, and state differently."""
    names = [name for name in here if name in stored and here[name] != stored[name]]
    return [one_line(f"{name} {here[name]} here, {stored[name]} stored") for name in names]


def _is_timed(item: pytest.Item) -> bool:
    return case_key(item) is not None and read_switches(item)["timed"]


def _list_fixtures(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


def _set_fixtures(item: pytest.Item, names: list[str]) -> None:
    """Names of an item's own: pytest shares the list between items of one test function."""
    assert isinstance(item, pytest.Function)
    item.fixturenames = names


@contextlib.contextmanager
def _named_as_benchmarks(items: Sequence[pytest.Item]) -> Iterator[None]:
    """While pytest-benchmark looks for tests that ask for its fixture, let these be among them.

    A dependency that stayed would set the fixture up for every case: one that fails would then be warned of as not
    having used it, and `-p no:benchmark` would break them all.
    """
    before = [(item, _list_fixtures(item)) for item in items]
    for item, names in before:
        _set_fixtures(item, [*names, FIXTURE])
    try:
        yield
    finally:
        for item, names in before:
            _set_fixtures(item, names)


NEVER_GIVEN = frozenset(
    {Verdict.SLOWER, Verdict.WORSE, Verdict.INCORRECT, Verdict.SUSPICIOUS, Verdict.ERROR, Verdict.UNSUPPORTED}
)
"""Whatever `fail_on` says: `--benchmark-autosave` stores before it compares, and the next comparison would be with the
slower code."""

_OF_A_CASE = frozenset({"timer", "cache_state"})
"""Fields of a fingerprint that say nothing of the machine."""

_NAME_LIMIT = 120
"""Characters of a group: `--benchmark-histogram` names a file after it."""


@dataclass(frozen=True)
class BenchmarkRounds:
    """What pytest-benchmark is given of a case.

    seconds     per call, one round each, in measured order, process by process
    what        'blocks' of the processes, or 'process medians', where blocks of an interleaved look are not kept
    processes   who measured them, as plain data: name, median, and how many of the rounds
    """

    seconds: tuple[float, ...]
    what: str
    processes: tuple[dict[str, Any], ...]


class ReplayClock:
    """A timer that reads what it was set to. pytest-benchmark stores its name with each benchmark."""

    __name__ = "attnperf_device_clock"

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def can_be_stored(result: CaseResult) -> bool:
    """Whether a case was proven right, did not fail, and its time is that of this tree's code."""
    right = bool(result.checks) and all(check.right for check in result.checks)
    foreign = bool(filter_notes(result.reasons, NoteKind.FOREIGN))
    return right and not result.fails and result.verdict not in NEVER_GIVEN and not foreign


def rounds_of(result: CaseResult) -> BenchmarkRounds | None:
    """The deciding look's durations; None where nothing was measured.

    Processes are the independent unit, and our verdict rests on their medians alone. Rounds are their blocks all the
    same, because that is what a reader of pytest-benchmark takes rounds for: repetitions, whose spread is that of one
    sitting. Which process made which is in `processes`, so that the medians can be had from the file.
    """
    if result.pairs:
        seconds = [pair.new_us / 1e6 for pair in result.pairs]
        processes = [{"process": p.new_process, "median_us": p.new_us, "rounds": 1} for p in result.pairs]
    else:
        look = result.second or result.first
        seconds = [us / 1e6 for process in look for us in process.block_us]
        processes = [
            {"process": p.process, "median_us": p.median_us, "rounds": len(p.block_us), "calls": p.calls_per_block}
            for p in look
        ]
    if not seconds or not all(math.isfinite(value) and value > 0 for value in seconds):
        return None
    return BenchmarkRounds(tuple(seconds), "process medians" if result.pairs else "blocks", tuple(processes))


def replay(benchmark: Any, clock: ReplayClock, seconds: Sequence[float]) -> None:
    """Let a BenchmarkFixture that reads `clock` time calls that last exactly `seconds`."""
    remaining = iter(seconds)

    def arm() -> None:
        # From 0, because a difference of two readings would round.
        clock.now = 0.0

    def advance() -> None:
        clock.now = next(remaining, 0.0)

    benchmark.pedantic(advance, setup=arm, rounds=len(seconds), iterations=1)


def group_of(result: CaseResult) -> str:
    """Backends on the same workload stand in one table; those of two suites do not."""
    return one_line(f"{result.key.suite}/{result.key.workload}", _NAME_LIMIT)


def extra_info(result: CaseResult, rounds: BenchmarkRounds, commit: str) -> dict[str, Any]:
    """What our verdict says of a case, in plain types: pytest-benchmark writes others as 'UNSERIALIZABLE[...]'."""
    key, must = result.key, result.fingerprint.must_match if result.fingerprint else {}
    timers = [pair.timer for pair in result.pairs] or [p.timer for p in result.second or result.first]
    known = {
        "verdict": result.verdict.value,
        "suite": key.suite,
        "backend": key.backend,
        "workload": key.workload,
        "label": key.label,
        "device": "/".join(must[name] for name in ("arch", "product") if name in must),
        "commit": commit,
        "timer": timers[0],
        "median_us": result.median_us,
        "baseline_us": result.baseline_us,
        "ratio": result.ratio,
        "interval": list(result.interval) if result.interval else None,
        "threshold": result.threshold,
        "against": result.against,
        "rounds_are": rounds.what,
        "processes": [dict(process) for process in rounds.processes],
    }
    return {name: value for name, value in known.items() if value not in (None, "")}


def machine_of(result: CaseResult) -> dict[str, str]:
    """Device, driver, torch, triton and what else the fingerprint names."""
    if result.fingerprint is None:
        return {}
    fields = {**result.fingerprint.named, **result.fingerprint.must_match}
    return {name: value for name, value in fields.items() if name not in _OF_A_CASE}
