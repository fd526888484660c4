"""The user's own pytest session: judges each case through workers, and never runs a case's body itself."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.gate.policy import require_tier
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.cases import case_key
from pytest_attnperf.plugin.device_here import DeviceHere
from pytest_attnperf.plugin.features.code_objects.code_items import build_key
from pytest_attnperf.plugin.features.gpus import several_gpus, xdist_gpus
from pytest_attnperf.plugin.features.gpus.several_gpus import is_xdist_controller, prepare_xdist
from pytest_attnperf.plugin.features.live import live_line
from pytest_attnperf.plugin.following import next_case
from pytest_attnperf.plugin.options import timed
from pytest_attnperf.plugin.policy_settings import require_policies
from pytest_attnperf.plugin.repeats import refuse_flaky, refuse_repeats
from pytest_attnperf.plugin.session_setup import Collectors, make_collectors, usage_errors
from pytest_attnperf.plugin.unheeded import refuse_unheeded, refuse_useless_base
from pytest_attnperf.records import CaseKey, Verdict

if TYPE_CHECKING:
    from pytest_attnperf.plugin.run import Run
    from pytest_attnperf.records.code import CodeResult
    from pytest_attnperf.results import CaseResult

RESULT = "attnperf_result"
"""Attribute of a report that carries the case's result as plain builtins, so that xdist can send it."""


CODE_RESULT = "attnperf_code_result"
"""The same for a compiled kernel."""

SELECTED = "attnperf_selected"
"""The same of how many cases were selected, which the controller of xdist, who collects none, knows from there."""

_SKIPPED = pytest.StashKey[str]()
"""Why an item was skipped before its body would have run."""

RECORDING = (("update_baselines", "--update-baselines"), ("calibrate", "--attnperf-calibrate"))
OWN_PROCESS = (("profile", "--attnperf-profile"), ("warm", "--attnperf-warm"))
"""Options that make a run another kind of run, each with how it is typed."""


def configure(config: pytest.Config) -> None:
    """Check the command line and register the session's plugin objects."""
    with usage_errors():
        options.check_rootdir(config)
        collectors = make_collectors(config)
        refuse_contradictions(config)
        refuse_unheeded(config)
        if timed(config) and is_xdist_controller(config) and not config.getoption("collectonly"):
            prepare_xdist(config)
        if timed(config) and not _records(config):
            from pytest_attnperf.plugin.features.benchmark import benchmark_sink

            benchmark_sink.register(config)
    session = ControllerSession(config, collectors)
    config.pluginmanager.register(session, "attnperf-controller")
    config.pluginmanager.register(session.device, "attnperf-device-here")
    if config.getoption("attnperf") and not config.getoption("collectonly") and not hasattr(config, "workerinput"):
        from pytest_attnperf.plugin.no_case import NoCase

        config.pluginmanager.register(NoCase(config), "attnperf-no-case")


def scheduler(config: pytest.Config, log: Any) -> Any:
    """What deals out the cases of a run that measures in workers of xdist; None leaves it to xdist."""
    from pytest_attnperf.plugin.features.gpus import xdist_schedule

    wanted = config.getoption("dist", default="no") == "load" and timed(config)
    return xdist_schedule.scheduler(config, log) if wanted else None


def auto_workers(config: pytest.Config) -> int | None:
    """What `-n auto` means here; None where xdist is to say it. Raises UsageError for a pin that fits no GPU."""
    with usage_errors():
        return several_gpus.auto_workers(config)


def lease_in_xdist_worker(config: pytest.Config) -> None:
    """Lease a GPU before a conftest is loaded, where this process is a worker of a timed run."""
    with usage_errors():
        xdist_gpus.lease_in_worker(config)


def _records(config: pytest.Config) -> bool:
    """Whether what this run measures is no benchmark of the code: a baseline, or how processes or cards differ."""
    names = ("update_baselines", "calibrate", "together")
    return any(config.getoption(f"attnperf_{name}") for name in names)


def refuse_contradictions(config: pytest.Config) -> None:
    """Usage errors for options that would turn a verdict into something else, each with the way out."""
    if config.getoption("attnperf_calibrate") == "":
        raise pytest.UsageError("--attnperf-calibrate is empty; give the number of fresh processes, e.g. 20")
    require_tier(options.run_text(config, "tier"), options.BY_NAME["tier"].flag)
    if config.getoption("attnperf_profile"):
        _refuse_profile(config)
    if config.getoption("attnperf_changed"):
        _refuse_changed(config)
    if config.getoption("attnperf_warm"):
        _refuse_warm(config)
    several_gpus.refuse_pin(config)
    if not timed(config):
        return
    _refuse_two_modes(config)
    refuse_repeats(config)
    if config.getoption("attnperf_together"):
        several_gpus.refuse_together(config)
    several_gpus.refuse_workers(config)
    if config.getoption("attnperf_update_baselines") and options.run_text(config, "workload"):
        raise pytest.UsageError(
            "--update-baselines with --attnperf-workload: workloads given on the command line are never stored; "
            "add them to the suite's list first"
        )
    if config.getoption("attnperf_update_baselines") and options.run_text(config, "isolate") == "none":
        raise pytest.UsageError("--update-baselines needs fresh processes; drop --attnperf-isolate=none")


def _refuse_profile(config: pytest.Config) -> None:
    """A profile needs processes of its own, and stands in no baseline and no calibration."""
    for option, flag in RECORDING:
        if config.getoption(f"attnperf_{option}"):
            raise pytest.UsageError(
                f"{flag} with --attnperf-profile: only cases that are gated or checked are profiled; drop one"
            )
    if options.run_text(config, "isolate") == "none":
        raise pytest.UsageError(
            "--attnperf-profile needs processes of its own, because torch's profiler slows what comes after it; drop "
            "--attnperf-isolate=none"
        )


def _refuse_changed(config: pytest.Config) -> None:
    """What is left untimed must be gated otherwise, and nothing but a gate may leave out what has not changed."""
    for option, flag in (*RECORDING, *OWN_PROCESS):
        if config.getoption(f"attnperf_{option}"):
            raise pytest.UsageError(
                f"{flag} with --attnperf-changed: only a gating run may leave out what has not changed; drop one"
            )
    if options.run_text(config, "isolate") == "none":
        raise pytest.UsageError(
            "--attnperf-changed is about what is gated, and nothing is with --attnperf-isolate=none; drop one"
        )
    if not config.getoption("attnperf"):
        raise pytest.UsageError("--attnperf-changed says which cases --attnperf times; give that, too")


def _refuse_warm(config: pytest.Config) -> None:
    """Warming times nothing, and compiles beside whatever else would run."""
    for option, flag in (("", "--attnperf"), *RECORDING, OWN_PROCESS[0]):
        if config.getoption(f"attnperf_{option}".rstrip("_")):
            raise pytest.UsageError(
                f"{flag} with --attnperf-warm: warming compiles ahead of a run and times nothing; run it first, alone"
            )


def _refuse_two_modes(config: pytest.Config) -> None:
    """One run records, calibrates, or gates; an option of one of them that another would not heed is an error."""
    updates, calibrates = config.getoption("attnperf_update_baselines"), config.getoption("attnperf_calibrate")
    if updates and calibrates:
        raise pytest.UsageError("--update-baselines and --attnperf-calibrate: a run does one of them; drop one")
    for name in ("against", "candidate"):
        if (updates or calibrates) and options.run_text(config, name):
            mode = "--update-baselines" if updates else "--attnperf-calibrate"
            raise pytest.UsageError(f"{mode} with --attnperf-{name}: it measures the working tree only; drop one")
    if options.run_text(config, "candidate") and not options.run_text(config, "against"):
        raise pytest.UsageError("--attnperf-candidate needs --attnperf-against: what is it to be held against?")
    if options.run_text(config, "against") and options.run_text(config, "isolate") == "none":
        raise pytest.UsageError("--attnperf-against needs processes of its own; drop --attnperf-isolate=none")


class ControllerSession:
    """Plugin object of a session that is not a worker."""

    def __init__(self, config: pytest.Config, collectors: Collectors) -> None:
        self._config = config
        self._collectors = collectors
        self._run: Run | None = None
        self.device = DeviceHere()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Fill the registry before tests are parametrised."""
        with usage_errors():
            self._collectors.register()
            others = (self._config.getoption(f"attnperf_{name}") for name in ("profile", "warm", "budget"))
            ours = self._collectors.registered or timed(self._config) or any(others)
            if not ours or self._config.getoption("collectonly"):
                return
            live_line.show(self._config, "collecting tests")
            if is_xdist_controller(self._config):
                self._start([], [])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse settings that are none, and the marker that repeats a failing case until it passes."""
        require_policies(self._config, items)
        if not timed(self._config) or not self._config.pluginmanager.has_plugin("rerunfailures"):
            return
        refuse_flaky(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Start what the run needs, now that the cases are known. Not called where xdist's workers collect.

        In a worker of xdist before it reports its cases: those of all are dealt out when the last has done so.
        """
        cases = [item for item in session.items if case_key(item) is not None]
        builds = [item for item in session.items if build_key(item) is not None]
        if (cases or builds) and not self._config.getoption("collectonly"):
            with usage_errors():
                if not builds:
                    refuse_useless_base(self._config)
                self._start(cases, builds)
        else:
            live_line.end(self._config)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """End the run where a worker of xdist found no GPU free: the one that would replace it finds none either."""
        if reason := xdist_gpus.busy_text(error):
            pytest.exit(reason, returncode=int(pytest.ExitCode.USAGE_ERROR))

    def _start(self, cases: list[pytest.Item], builds: list[pytest.Item]) -> None:
        from pytest_attnperf.plugin.run import Run

        live_line.show(self._config, "preparing the run")
        self._run = Run.of(self._config, cases, builds)
        self._run.notes = () if self._run.in_process else self.device.notes
        self._config.pluginmanager.register(self._run, "attnperf-run")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Let a case that a mark or a hook skips, or expects to fail unrun, come to its verdict: it may not be left out
        where it was timed.

        A compiled kernel is skipped once more by its worker, which says so.
        """
        if _SKIPPED in item.stash:
            del item.stash[_SKIPPED]
        try:
            with self._without_fixtures(item):
                return (yield)
        except (pytest.skip.Exception, pytest.xfail.Exception) as skip:
            if self._run is None or (case_key(item) is None and build_key(item) is None):
                raise
            item.stash[_SKIPPED] = str(skip.msg)
            return None

    @contextlib.contextmanager
    def _without_fixtures(self, item: pytest.Item) -> Iterator[None]:
        """Set up no fixture of what a worker runs: there they are needed, and here they could initialise the GPU."""
        remote = self._run is not None and (build_key(item) is not None or case_key(item) is not None)
        if self._run is None or self._run.in_process or not remote or not isinstance(item, pytest.Function):
            yield
            return
        names = item.fixturenames
        item.fixturenames = [name for name in names if name == "request"]  # sets nothing up; other plugins read it
        try:
            yield
        finally:
            item.fixturenames = names

    def pytest_report_collectionfinish(self) -> list[str]:
        """Warn of a GPU that an import has initialised here."""
        return [f"attnperf: warning: {note}" for note in self._run.notes] if self._run is not None else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> object | None:
        """Judge a case instead of running its body; ordinary tests run as ever."""
        if self._run is not None and build_key(pyfuncitem) is not None:
            raise_code_verdict(self._run.code.judge(pyfuncitem))
            return True
        key = case_key(pyfuncitem)
        if key is None or self._run is None:
            return None
        if (reason := pyfuncitem.stash.get(_SKIPPED, None)) is not None:
            self._leave_out(self._run, pyfuncitem, key, reason)
            return True
        following = self._next_key(pyfuncitem)
        if self._run.in_process:
            self._run.serve_in_process(pyfuncitem, key)
            return None
        result = self._run.judge(pyfuncitem, key, following)
        self._run.attach(pyfuncitem, result)
        raise_verdict(result)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Let a case that is expected to fail unrun come to its verdict, too: pytest says so only here."""
        try:
            return (yield)
        except pytest.xfail.Exception as expected:
            key = case_key(item)
            if self._run is None or key is None or self._run.encoded(item) is not None:
                raise
            self._leave_out(self._run, item, key, str(expected.msg))
            return None

    def _leave_out(self, run: Run, item: pytest.Item, key: CaseKey, reason: str) -> None:
        """Give a case that pytest does not run its result, and the test what follows from it."""
        result = run.skipped(item, key, reason)
        run.attach(item, result)
        raise_verdict(result)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        """Let the result travel with the report."""
        report = yield
        if report.when == "call" and self._run is not None:
            for name, encoded in ((RESULT, self._run.encoded(item)), (CODE_RESULT, self._run.code.encoded(item))):
                if encoded is not None:
                    setattr(report, name, encoded)
                    setattr(report, SELECTED, self._run.selected)
        return report

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Give verdicts that are neither right nor wrong a category of their own, never the word passed."""
        case = getattr(report, RESULT, None)
        encoded = case or getattr(report, CODE_RESULT, None)
        if encoded is None or report.when != "call" or not report.passed:
            return None
        if case and case.get("quarantined"):
            return QUARANTINED
        if case and case.get("new") and case["verdict"] == Verdict.NO_BASELINE.value:
            return NEW
        return UNCHANGED if case and case.get("unchanged") else STATUS.get(Verdict(encoded["verdict"]))

    def _next_key(self, item: pytest.Item) -> Any:
        if hasattr(self._config, "workerinput"):
            return None
        return next_case(item.session.items, item)


STATUS: dict[Verdict, tuple[str, str, str]] = {
    Verdict.SAME: ("passed", ".", "SAME"),
    Verdict.FASTER: ("passed", ".", "FASTER"),
    # Seen here only where `fail_on` leaves them out.
    Verdict.SLOWER: ("slower", "S", "SLOWER"),
    Verdict.INCORRECT: ("incorrect", "I", "INCORRECT"),
    Verdict.WORSE: ("worse", "W", "WORSE"),
    Verdict.SUSPICIOUS: ("suspicious", "!", "SUSPICIOUS"),
    Verdict.ERROR: ("broken", "X", "ERROR"),
    Verdict.UNDECIDED: ("undecided", "?", "UNDECIDED"),
    Verdict.NO_BASELINE: ("no baseline", "b", "NO_BASELINE"),
    Verdict.INCOMPARABLE: ("incomparable", "i", "INCOMPARABLE"),
    Verdict.ENVIRONMENT: ("environment", "e", "ENVIRONMENT"),
    Verdict.RECORDED: ("recorded", "r", "RECORDED"),
}


QUARANTINED = ("quarantined", "q", "QUARANTINED")
UNCHANGED = ("unchanged", "u", "UNCHANGED")
NEW = ("new", "n", "NEW")


def raise_verdict(result: CaseResult) -> None:
    """Fail or skip the running test as its verdict demands."""
    if result.fails:
        from pytest_attnperf.reports.run.terminal import failure_text

        pytest.fail(failure_text(result, own=True), pytrace=False)
    if result.verdict is Verdict.UNSUPPORTED:
        raise pytest.skip.Exception("; ".join(result.reasons) or result.summary, _use_item_location=True)


def raise_code_verdict(result: CodeResult) -> None:
    """Fail or skip the running test as the verdict on its code object demands."""
    if result.fails:
        from pytest_attnperf.reports.run.code_objects import code_failure_text

        pytest.fail(code_failure_text(result, own=True), pytrace=False)
    if result.verdict is Verdict.UNSUPPORTED:
        raise pytest.skip.Exception(result.summary, _use_item_location=True)
