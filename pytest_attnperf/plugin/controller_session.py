"""The controller: the user's pytest session. It judges each case through workers and runs no case's body itself."""

from __future__ import annotations

import contextlib
import os
import sys
import unittest
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.plugin.config import (
    RunConfig,
    find_sharding,
    is_xdist_controller,
    is_xdist_worker,
    run_config,
)
from pytest_attnperf.plugin.gathered import SELECTED, add_junit_properties, encode_result
from pytest_attnperf.plugin.keys import PLANNED, build_key, case_key, find_next_case
from pytest_attnperf.plugin.option_values import check_rootdir, refuse_bad_values
from pytest_attnperf.plugin.recorded_tree import refuse_uncommitted
from pytest_attnperf.plugin.refusals import (
    plan_cases,
    refuse_contradictions,
    refuse_flaky,
    refuse_gating,
    refuse_hidden_collecting,
    refuse_repeats,
    refuse_two_modes,
    refuse_unheeded,
    refuse_unittest,
    refuse_update,
    refuse_useless_base,
)
from pytest_attnperf.plugin.selection import show_notice
from pytest_attnperf.plugin.session_setup import Collectors, make_collectors, usage_errors
from pytest_attnperf.plugin.unknown_names import refuse_unknown_keys
from pytest_attnperf.plugin.verdicts import raise_code_verdict, raise_verdict, status_of

if TYPE_CHECKING:
    from pytest_attnperf.plugin.run import Run
    from pytest_attnperf.records import CaseKey

_SKIPPED = pytest.StashKey[str]()
"""Reason why an item was skipped before its body would have run."""


def configure_controller(config: pytest.Config) -> None:
    """Checks options and registers the plugin objects of a session that is not a worker. Raises a usage error."""
    with usage_errors():
        asked, collects = run_config(config), config.getoption("collectonly")
        refuse_unknown_keys(config)
        check_rootdir(config)
        collectors = make_collectors(config)
        _check_options(config, asked)
        if asked.is_timed and is_xdist_controller(config) and not collects:
            from pytest_attnperf.plugin.features.gpus import several_gpus

            several_gpus.prepare_xdist(config)
        # Recording, calibrating and measuring on all GPUs at once are no benchmarks of the code.
        if asked.is_timed and not asked.is_recording and not asked.together:
            _register_benchmark_sink(config)
        if asked.gate and asked.shard:
            from pytest_attnperf.plugin.features.sharding.sharding import register_sharding

            register_sharding(config)
    session = ControllerSession(config, collectors)
    config.pluginmanager.register(session, "attnperf-controller")
    config.pluginmanager.register(session.device, "attnperf-device-here")
    if asked.gate and not collects and not is_xdist_worker(config):
        from pytest_attnperf.plugin.ending import NoCase

        config.pluginmanager.register(NoCase(config), "attnperf-no-case")


def _check_options(config: pytest.Config, asked: RunConfig) -> None:
    """Raises UsageError for options that contradict each other, xdist, or the GPUs of this machine."""
    refuse_contradictions(asked)
    refuse_hidden_collecting(config, asked)
    if asked.pin_gpu:
        from pytest_attnperf.plugin.features.gpus import several_gpus

        several_gpus.refuse_pin(config)
    if asked.is_timed:
        refuse_two_modes(asked)
        refuse_repeats(config)
        if asked.together or is_xdist_controller(config):
            from pytest_attnperf.plugin.features.gpus import several_gpus

            several_gpus.refuse_together(config)
            several_gpus.refuse_workers(config)
        refuse_update(asked)
        refuse_uncommitted(asked)
        refuse_gating(asked)
    refuse_unheeded(asked)
    if not is_xdist_worker(config):  # its controller did
        refuse_bad_values(config, asked)


def _register_benchmark_sink(config: pytest.Config) -> None:
    """Registers the plugin object that passes samples to pytest-benchmark, if that is loaded and not switched off."""
    allowed = run_config(config).choice("benchmark") == "auto"
    if allowed and hasattr(config.option, "benchmark_skip"):
        from pytest_attnperf.plugin.features.benchmark.benchmark_sink import BenchmarkSink

        config.pluginmanager.register(BenchmarkSink(config), "attnperf-benchmark")


def make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Returns a scheduler that groups cases by backend, with `--dist load` in a run that measures; else None."""
    if config.getoption("dist", default="no") != "load" or not run_config(config).is_timed:
        return None
    from pytest_attnperf.plugin.features.gpus import several_gpus

    return several_gpus.make_backend_scheduler(config, log)


def auto_workers(config: pytest.Config) -> int | None:
    """Returns the worker count for `-n auto`; None leaves it to xdist. Raises for a wrong --attnperf-pin-gpu."""
    from pytest_attnperf.plugin.features.gpus import several_gpus

    with usage_errors():
        return several_gpus.auto_workers(config)


def lease_in_xdist_worker(config: pytest.Config) -> None:
    """Leases a GPU in an xdist worker of a timed run, else does nothing. Called before conftests are loaded."""
    from pytest_attnperf.plugin.features.gpus import xdist_gpus

    with usage_errors():
        xdist_gpus.lease_in_worker(config)


class ControllerSession:
    """Plugin object of a session that is no worker: starts the run, judges each case instead of running its body."""

    def __init__(self, config: pytest.Config, collectors: Collectors) -> None:
        self._config = config
        self._collectors = collectors
        self._run: Run | None = None
        self.device = DeviceHere()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Registers backends and kernels before tests are made; in xdist's controller also starts the run."""
        with usage_errors():
            self._collectors.register_all()
            asked = run_config(self._config)
            others = (asked.is_timed, asked.profile, asked.warm, asked.typed.get("budget"))
            ours = self._collectors.has_registered or any(others)
            if not ours or self._config.getoption("collectonly"):
                return
            self._show_live("collecting tests")
            if is_xdist_controller(self._config):
                self._start_run([], [])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Stores how each case is judged, then keeps one part with --attnperf-shard. Raises UsageError for invalid
        settings, unittest cases and flaky marks."""
        plan_cases(self._config, items)
        refuse_unittest(items)
        if not self._config.getoption("collectonly") and any(map(case_key, items)) and not any(map(build_key, items)):
            refuse_useless_base(run_config(self._config))
        if run_config(self._config).is_timed and self._config.pluginmanager.has_plugin("rerunfailures"):
            refuse_flaky(items)
        if (sharding := find_sharding(self._config)) is not None:
            with usage_errors():
                sharding.keep_part(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Starts the run, now that the cases are known. xdist's controller does not collect and does not call this.

        A worker of xdist starts its run before it reports its cases; they are distributed when all workers have.
        """
        cases = [item for item in session.items if case_key(item) is not None]
        builds = [item for item in session.items if build_key(item) is not None]
        # Also called after an error that ended collection before all cases were planned; pytest reports that error.
        planned = all(PLANNED in item.stash for item in cases)
        sharding = find_sharding(self._config)
        some = cases or builds or (sharding is not None and sharding.is_empty)
        if planned and some and not self._config.getoption("collectonly"):
            with usage_errors():
                self._start_run(cases, builds)
        else:
            self._show_live("")

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """Exits pytest if a worker of xdist found no free GPU: a replacement would find none either."""
        from pytest_attnperf.plugin.features.gpus import xdist_gpus

        if reason := xdist_gpus.busy_text(error):
            pytest.exit(reason, returncode=int(pytest.ExitCode.USAGE_ERROR))

    def _start_run(self, cases: list[pytest.Item], builds: list[pytest.Item]) -> None:
        from pytest_attnperf.plugin.run import Run

        self._show_live("preparing the run")
        self._run = Run.set_up(self._config, cases, builds)
        self._run.notes = () if self._run.in_process else self.device.notes
        if self._run.notes:
            show_notice(self._config, "attnperf-warnings", [f"attnperf: warning: {note}" for note in self._run.notes])
        self._config.pluginmanager.register(self._run, "attnperf-run")

    def _show_live(self, phase: str) -> None:
        """Shows what the session does on the live line; '' removes the line. Does nothing without one."""
        if not _has_live_line(self._config):
            return
        from pytest_attnperf.plugin.features.live import live_line

        if phase:
            live_line.show_phase(self._config, phase)
        else:
            live_line.end_line(self._config)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Catches a skip, or an xfail with run=False, of a case in its setup, so that the case still gets a verdict.

        A case with a baseline must not disappear by a skip. For a compiled kernel the compile worker repeats the skip.
        """
        if _SKIPPED in item.stash:
            del item.stash[_SKIPPED]
        try:
            with self._without_fixtures(item):
                return (yield)
        except (pytest.skip.Exception, pytest.xfail.Exception, unittest.SkipTest) as skip:
            if self._run is None or (case_key(item) is None and build_key(item) is None):
                raise
            item.stash[_SKIPPED] = str(getattr(skip, "msg", skip))
            return None

    @contextlib.contextmanager
    def _without_fixtures(self, item: pytest.Item) -> Iterator[None]:
        """In the block, hides fixtures of an item that a worker runs: set up here they could initialise the GPU."""
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

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> object | None:
        """Judges a case or compiled kernel instead of running its body: returns True, or fails or skips the test. None,
        so that the body runs, for an ordinary test and for a case judged in this process."""
        run = self._run
        if run is not None and run.features.code is not None and build_key(pyfuncitem) is not None:
            raise_code_verdict(run.features.code.judge(pyfuncitem))
            return True
        if run is None or case_key(pyfuncitem) is None:
            return None
        if (reason := pyfuncitem.stash.get(_SKIPPED, None)) is not None:
            raise_verdict(run.record_skipped(pyfuncitem, reason), pyfuncitem.config)
            return True
        if run.in_process:
            run.serve_in_process(pyfuncitem)
            return None
        raise_verdict(run.judge(pyfuncitem, self._next_key(pyfuncitem)), pyfuncitem.config)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Gives a verdict also to a case with xfail(run=False), for which pytest raises only here, and to one that a
        hook skips before it is judged."""
        try:
            return (yield)
        except (pytest.skip.Exception, pytest.xfail.Exception, unittest.SkipTest) as skip:
            if self._run is None or case_key(item) is None or encode_result(item):
                raise
            raise_verdict(self._run.record_skipped(item, str(getattr(skip, "msg", skip))), item.config)
            return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Attaches the case's result to its report, which xdist sends, and adds the item's properties for JUnit."""
        if call.when == "call" and self._run is not None:
            add_junit_properties(item)
        report = yield
        if report.when == "call" and self._run is not None:
            for name, result in encode_result(item).items():
                setattr(report, name, result)
                setattr(report, SELECTED, self._run.gathered.selected)
        return report

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Returns (category, letter, word) to show for a passed test with a verdict; None for any other report."""
        return status_of(report)

    def _next_key(self, item: pytest.Item) -> CaseKey | None:
        return None if is_xdist_worker(self._config) else find_next_case(item.session.items, item)


def _has_live_line(config: pytest.Config) -> bool:
    """Returns whether to draw the live line: on a terminal where only pytest prints.

    It is off in a worker of xdist, in a log, with -q, and with -s, where tests print between our lines.
    """
    if is_xdist_worker(config) or config.get_verbosity() < 0 or config.getoption("capture") == "no":
        return False
    try:
        on_terminal = os.isatty(sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):  # standard output is no file
        return False
    writer: Any = config.get_terminal_writer()
    return on_terminal and hasattr(writer, "_file") and os.environ.get("TERM", "dumb") not in ("", "dumb")


WHY = (
    "pytest's own process, which measures nothing, now holds GPU memory; in exclusive compute mode no worker can use "
    "the GPU; initialise it inside the test, or in what the test calls"
)


class DeviceHere:
    """Plugin object that notes which import initialised the GPU in pytest's process. Does not import torch."""

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()
        """Warnings for the results; empty if the GPU was not initialised."""
        self._note_if_initialised("a conftest.py or a plugin")

    def _note_if_initialised(self, by: str) -> None:
        if not self.notes and is_initialised():
            self.notes = (f"{by} initialised the GPU while tests were collected: {WHY}",)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, object, object]:
        """Notes the first file whose import initialised the GPU."""
        report = yield
        self._note_if_initialised(collector.nodeid or "a plugin")
        return report


def is_initialised() -> bool:
    """Returns whether torch has a context on a GPU in this process; False if torch is not imported."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # torch may be partly imported, or a fake module
    asked = getattr(cuda, "is_initialized", None)
    return bool(asked()) if callable(asked) else False
