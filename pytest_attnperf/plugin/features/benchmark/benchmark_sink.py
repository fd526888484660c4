"""Passes the samples of cases that did not fail to pytest-benchmark, if that is loaded and measures.

Its table, `--benchmark-json`, `--benchmark-autosave`, `-compare` and `-histogram` then include them, next to the
project's own benchmarks. The case is already judged: nothing here changes its verdict. pytest-benchmark times a replay
with a clock that returns what the workers measured, so that it stores exactly these durations. Nothing of it is
subclassed or patched, and its `benchmark` fixture is requested only if there are samples to pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
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
from pytest_attnperf.tools.export.benchmark_rounds import extra_info, group_of, machine_of, rounds_of

if TYPE_CHECKING:
    from pytest_attnperf.plugin.run import Run
    from pytest_attnperf.tools.export.benchmark_rounds import BenchmarkRounds

THEIRS = "pytest-benchmark"
"""The name under which pytest-benchmark registers its session; pytest-codspeed blocks it."""

FIXTURE = "benchmark"
REQUEST = "request"
"""Pytest's own fixture, through which the sink requests others while the item is set up."""

BLOCK = "attnperf"
"""Key of our part of pytest-benchmark's machine info."""


class BenchmarkSink:
    """Plugin object that passes measured samples to pytest-benchmark, if that is active."""

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
        """Lets `--benchmark-only` keep timed cases, and gives the selected ones a timer by which pytest-benchmark
        records our samples."""
        session = self._find_session()
        if session is None:
            return (yield)
        with _named_as_benchmarks([item for item in items if session.only and _is_timed(item)]):
            result = yield
        # After selection: `-m "not benchmark"` must not deselect a case by the marker that is added here.
        for item in items:
            if _is_timed(item) and not self._has_own_timing(item):
                self._prepare_item(item)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        """After the body, passes the case's samples to pytest-benchmark, if it was judged and did not fail."""
        outcome = yield
        run: Run | None = self._config.pluginmanager.get_plugin("attnperf-run")
        result = pyfuncitem.stash.get(RESULT, None) if pyfuncitem.nodeid in self._prepared else None
        if run is not None and isinstance(result, CaseResult):
            self._offer_case(pyfuncitem, result, run.session.bench.commit)
        return outcome

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Counts measured cases whose samples are not passed because pytest-benchmark is off under xdist."""
        case = getattr(report, CASE, None)
        if case and report.when == "call" and self._is_off_by_xdist() and (case["first"] or case["pairs"]):
            self._under_xdist += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Adds the device and the software versions to pytest-benchmark's machine info."""
        if self._machine:
            machine_info[BLOCK] = dict(self._machine)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_compare_machine_info(
        self, machine_info: dict[str, Any], compared_benchmark: dict[str, Any]
    ) -> None:
        """Replaces this plugin's part of `machine_info` by the stored one, so that pytest-benchmark, which compares
        before the device is known, sees no difference. Also keeps the stored part for `collect_notes`."""
        machine_info.pop(BLOCK, None)
        stored = compared_benchmark["machine_info"].get(BLOCK)
        if isinstance(stored, dict):
            machine_info[BLOCK] = stored
            self._compared.append(stored)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_scale_unit(
        self, config: pytest.Config, unit: str, benchmarks: Sequence[Mapping[str, Any]]
    ) -> tuple[str, float] | None:
        """Returns ('u', 1e6), microseconds, for groups of only our cases; else, or if a unit was given, None."""
        if unit != "seconds" or config.getoption("benchmark_time_unit", default=None) is not None:
            return None
        return ("u", 1e6) if all(bench["fullname"] in self._given for bench in benchmarks) else None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints the notes on pytest-benchmark's table and files."""
        for line in self.collect_notes():
            terminalreporter.write_line(line)

    def collect_notes(self) -> list[str]:
        """Returns notes on samples that pytest-benchmark lacks, and comparisons with other machines; [] if none."""
        said = []
        if self._under_xdist:
            said.append(
                f"pytest-benchmark is off under xdist: the samples of {_format_case_count(self._under_xdist)} are in "
                f"{run_config(self._config).results}, not in its table or files"
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
        """Returns pytest-benchmark's session if it measures; None otherwise."""
        found = self._config.pluginmanager.get_plugin(THEIRS)
        measures = found is not None and not getattr(found, "skip", True) and not getattr(found, "disabled", True)
        return found if measures else None

    def _is_off_by_xdist(self) -> bool:
        """Returns whether pytest-benchmark would measure, but is off in xdist's controller."""
        get = self._config.getoption
        if not is_xdist_controller(self._config):
            return False
        disabled = get("benchmark_disable", default=False) and not get("benchmark_enable", default=False)
        skipped = get("benchmark_skip", default=False)
        return self._config.pluginmanager.has_plugin(THEIRS) and not disabled and not skipped

    def _has_own_timing(self, item: pytest.Item) -> bool:
        """Returns whether the test's body runs in this process and uses `benchmark`, which then needs a real clock."""
        return run_config(self._config).in_process and FIXTURE in _list_fixtures(item)

    def _prepare_item(self, item: pytest.Item) -> None:
        """Sets the replaying clock as the item's timer by the marker `benchmark`, and adds the fixture `request`, by
        which `benchmark` is requested later."""
        marker = item.get_closest_marker(FIXTURE)
        given = dict(marker.kwargs) if marker else {}
        item.add_marker(pytest.mark.benchmark(**{**given, "timer": self._clock}), append=False)
        _set_fixtures(item, [*_list_fixtures(item), REQUEST])
        self._prepared.add(item.nodeid)

    def _offer_case(self, item: pytest.Function, result: CaseResult, commit: str) -> None:
        """Passes a case's samples to pytest-benchmark if `can_be_stored` allows. Errors are printed at the end: they
        must not change the verdict."""
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
        # A replay has nothing to profile.
        benchmark.cprofile = False
        replay(benchmark, self._clock, rounds.seconds)
        self._given.add(item.nodeid)
        self._machine = _keep_common(self._machine, machine_of(result))


def _plain_params(item: pytest.Item, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Returns `params` with backend and workload replaced by their names, for `--benchmark-group-by=param:backend`;
    unchanged if they are None or the item is no case."""
    pair = pair_of(item)
    return params if pair is None or params is None else {**params, "backend": pair[0].name, "workload": pair[1].id}


def _format_case_count(count: int) -> str:
    return f"{count} case{'s' if count != 1 else ''}"


def _keep_common(before: dict[str, str] | None, now: dict[str, str]) -> dict[str, str]:
    """Returns the fields of `before` whose value is equal in `now`; `now` if `before` is None."""
    return now if before is None else {name: value for name, value in before.items() if now.get(name) == value}


def _find_differences(here: Mapping[str, str], stored: Mapping[str, Any]) -> list[str]:
    """Returns '<field> <value> here, <value> stored' for each field that both mappings have with different values."""
    names = [name for name in here if name in stored and here[name] != stored[name]]
    return [one_line(f"{name} {here[name]} here, {stored[name]} stored") for name in names]


def _is_timed(item: pytest.Item) -> bool:
    return case_key(item) is not None and read_switches(item)["timed"]


def _list_fixtures(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


def _set_fixtures(item: pytest.Item, names: list[str]) -> None:
    """Gives an item its own list of fixture names: pytest shares the list between items of a test function."""
    assert isinstance(item, pytest.Function)
    item.fixturenames = names


@contextlib.contextmanager
def _named_as_benchmarks(items: Sequence[pytest.Item]) -> Iterator[None]:
    """Adds the fixture name 'benchmark' to these items during the block, while pytest-benchmark selects tests.

    A permanent dependency would set the fixture up for every case: pytest-benchmark would warn of failed cases that did
    not use it, and `-p no:benchmark` would break all cases.
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
    {
        Verdict.SLOWER,
        Verdict.GREW,
        Verdict.WORSE,
        Verdict.INCORRECT,
        Verdict.SUSPICIOUS,
        Verdict.ERROR,
        Verdict.UNSUPPORTED,
    }
)
"""Verdicts whose samples are never passed, whatever `fail_on` says: `--benchmark-autosave` would store them, and the
next comparison would be with the slower code."""


class ReplayClock:
    """A timer that returns the value it was set to. pytest-benchmark stores its name with each benchmark."""

    __name__ = "attnperf_device_clock"

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Returns `now`, the replayed time, in seconds."""
        return self.now


def can_be_stored(result: CaseResult) -> bool:
    """Returns whether a case was proven right, did not fail, and its time is of this tree's code."""
    right = bool(result.checks) and all(check.right for check in result.checks)
    foreign = bool(filter_notes(result.reasons, NoteKind.FOREIGN))
    return right and not result.fails and result.verdict not in NEVER_GIVEN and not foreign


def replay(benchmark: Any, clock: ReplayClock, seconds: Sequence[float]) -> None:
    """Runs `benchmark` so that it records exactly these `seconds` as its rounds, read from `clock`."""
    remaining = iter(seconds)

    def arm() -> None:
        # Each call starts at 0, because the difference of two readings would be rounded.
        clock.now = 0.0

    def advance() -> None:
        clock.now = next(remaining, 0.0)

    benchmark.pedantic(advance, setup=arm, rounds=len(seconds), iterations=1)
