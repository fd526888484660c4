"""A pytest session that is a worker: its loop serves the controller's requests instead of running all tests.

Loaded by `-p pytest_attnperf.plugin.worker_session`. Imports standard library, pytest and this package's server side.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from pytest_attnperf.measure import flight_recorder, interpreting
from pytest_attnperf.plugin import main
from pytest_attnperf.plugin.config import run_config
from pytest_attnperf.plugin.fixtures import SERVER
from pytest_attnperf.plugin.keys import build_key, case_key
from pytest_attnperf.plugin.session_setup import (
    Collectors,
    device_for,
    device_kind,
    make_collectors,
    provided_device,
    role_of,
    usage_errors,
)
from pytest_attnperf.records import CaseKey, Role
from pytest_attnperf.workers.compile_server import CompileServer
from pytest_attnperf.workers.device_protocol import can_fork
from pytest_attnperf.workers.forking import Obstacle, Requests, find_obstacle, spare_driver
from pytest_attnperf.workers.launch import TEMPLATE
from pytest_attnperf.workers.protocol import Channel, ChannelClosedError
from pytest_attnperf.workers.server import Server

PR_SET_PDEATHSIG = 1

UNDO = pytest.StashKey[Callable[[], None]]()
"""Function that undoes `spare_driver`, which keeps a template from starting the GPU driver while it collects."""

COMPILED_CACHE = Path(".attnperf") / "cache" / "compiled"
"""Cache of compiled kernels, relative to the tree's root."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Registers pytest-attnperf's main plugin if no entry point did (another interpreter, a source tree)."""
    if not pluginmanager.has_plugin("attnperf"):
        pluginmanager.register(main, "attnperf")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Makes Triton interpreted, if this worker interprets, before a conftest imports a library that asks for Triton's
    driver. In a template (a process that forks workers) also keeps suites from initialising the GPU driver."""
    interpreting.start_interpreting()
    early_config.add_cleanup(interpreting.stop_interpreting)
    if (early_config.known_args_namespace.attnperf_worker_fd or "").startswith(TEMPLATE):
        early_config.stash[UNDO] = spare_driver()


def pytest_configure(config: pytest.Config) -> None:
    """Turns this session into a worker, or into a template that forks workers: opens its channel to the controller and
    registers its plugin objects. Raises UsageError if no controller started it."""
    text = run_config(config).worker_fd
    if text is None:
        raise pytest.UsageError("pytest_attnperf.plugin.worker_session is for worker processes; do not load it with -p")
    _die_with_controller()
    channel = Requests(int(text[len(TEMPLATE) :])) if text.startswith(TEMPLATE) else open_channel(text)
    with usage_errors():
        collectors = make_collectors(config)
    config.pluginmanager.register(WorkerSession(config, channel, collectors), "attnperf-worker")


def open_channel(text: str) -> Channel:
    """Opens the channel of `--attnperf-worker-fd`: '7' is a socket, '10,11' are descriptors to read and to write.
    Raises pytest.UsageError if it is neither or a descriptor is not open."""
    numbers = text.split(",")
    try:
        fds = [int(number) for number in numbers]
        return Channel.from_fds(fds[0], fds[1]) if len(fds) == 2 else Channel.from_fd(*fds)
    except (ValueError, TypeError, OSError) as error:
        raise pytest.UsageError(
            f"--attnperf-worker-fd={text!r} must name an open socket, or an open descriptor to read and one to write "
            f"('10,11'): {error}; it is set by the controller, not by hand"
        ) from error


def _die_with_controller() -> None:
    """Asks Linux to kill this process when its parent dies, so that no orphan holds a GPU."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class WorkerSession:
    """Plugin object of a worker, or of a template, which forks workers; serves requests instead of running tests."""

    def __init__(self, config: pytest.Config, asked: Channel | Requests, collectors: Collectors) -> None:
        self._config = config
        self._asked = asked
        self._collectors = collectors
        self._reports: list[pytest.TestReport] = []
        self._announced = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Registers backends, workloads and kernels of conftests before tests are parametrised."""
        with usage_errors():
            self._collectors.register_all()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Serves the controller's requests until it ends the session or closes the channel; tells it if collection
        failed. Returns True, so that pytest runs no tests itself."""
        channel = self._open_channel(None if session.testsfailed else self._find_obstacle)
        if channel is None:
            return True
        if session.testsfailed:
            channel.send({"event": "failed", "message": "the suite could not be collected; see the log"})
            return True
        compiles = run_config(self._config).worker_role == Role.COMPILE.value
        key_of = build_key if compiles else case_key
        items = {key: item for item in session.items if (key := key_of(item)) is not None}
        server = self._compile_server(channel, items) if compiles else self._device_server(channel, items)
        self._config.stash[SERVER] = server
        with contextlib.suppress(ChannelClosedError):
            server.announce()
            self._announced = True
            self._serve_items(server, items)
        return True

    def _open_channel(self, find: Callable[[], Obstacle | None] | None) -> Channel | None:
        """Returns the channel to the controller; None if the controller requested no worker from this template.

        In a template (a process that forks workers) this returns in each forked worker. If `find` returns an obstacle
        to forking, or is None because collection failed, the template does not fork, and becomes the only worker.
        """
        if isinstance(self._asked, Channel):
            return self._asked
        self._config.stash[UNDO]()
        obstacle = Obstacle.COLLECTION if find is None else find()
        if obstacle is None:
            requested = self._asked.serve()
        else:
            alone = self._asked.serve_alone(obstacle)
            if alone is None:
                return None
            requested = alone
        self._asked = Channel.from_fd(requested.channel)
        return self._asked

    def _find_obstacle(self) -> Obstacle | None:
        provided = provided_device(self._config)
        if provided is not None and not can_fork(provided):
            return Obstacle.DEVICE
        return find_obstacle()

    def _device_server(self, channel: Channel, items: Iterable[CaseKey]) -> Server:
        kind, _ = device_kind(self._config)
        device = device_for(self._config)
        return Server(channel, device, list(items), role_of(kind), self._config.rootpath)

    def _compile_server(self, channel: Channel, items: Iterable[CaseKey]) -> CompileServer:
        root = self._config.rootpath
        return CompileServer(
            channel,
            list(items),
            root,
            root / COMPILED_CACHE,
            self._collectors.cases.registry.get,
            execute=run_config(self._config).execute,
        )

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Sends {'event': 'failed'} with pytest's exit status, if the controller still waits for the first message."""
        if self._announced:
            return
        channel = self._open_channel(None)
        if channel is not None:
            with contextlib.suppress(ChannelClosedError):
                channel.send({"event": "failed", "message": f"the worker's pytest ended with {exitstatus!s}"})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collects the reports of the running item: set-up, call and teardown."""
        self._reports.append(report)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self) -> bool:
        """Returns True, which disables pytest-timeout: it would kill a case that waits for a request."""
        return True

    def _serve_items(self, server: Server, items: dict[CaseKey, pytest.Item]) -> None:
        while (request := server.next_item()) is not None:
            key = CaseKey(**request["key"])
            if key not in items:
                server.refuse(request, f"no case {key} here; {len(items)} cases exist")
                continue
            following = items.get(CaseKey(**request["next_key"])) if request["next_key"] else None
            item = items[key]
            self._reports.clear()
            # Tear down fixtures that only the case announced as next needed: pytest refuses an item whose chain of
            # collectors is not the one that is set up. There is no public function for this.
            item.session._setupstate.teardown_exact(item)
            with _record_launches():
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            server.report_item_finished(*_find_outcome(self._reports))


def _record_launches() -> contextlib.AbstractContextManager[None]:
    """Returns a context that records every kernel launch in a file, if the controller asks for one; else a no-op."""
    path = os.environ.get(flight_recorder.VARIABLE)
    return flight_recorder.record_launches(Path(path)) if path else contextlib.nullcontext()


def _find_outcome(reports: list[pytest.TestReport]) -> tuple[str, str]:
    """Returns ('failed', error text), ('skipped', reason) or ('passed', '') by the reports of all phases."""
    for report in reports:
        if report.failed:
            return "failed", f"{report.when}: {_describe_failure(report)}"
    for report in reports:
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            return "skipped", reason.removeprefix("Skipped").removeprefix(":").strip()
    return "passed", ""


def _describe_failure(report: pytest.TestReport) -> str:
    """Returns the first line of the error, then its traceback, if there is one."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None or crash.message == f"Failed: {report.longreprtext}":  # pytest.fail(..., pytrace=False)
        return report.longreprtext
    return f"{crash.message.partition(chr(10))[0]}\n{report.longreprtext}"
