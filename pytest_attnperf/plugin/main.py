"""The plugin pytest loads. Kept light: without an attnperf option or a marked test it costs next to nothing.

Sessions come in three kinds: a *worker* (`--attnperf-worker-fd`), a *controller* (any other session that runs
cases), and an xdist controller, which runs nothing and only gathers what its workers report.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.measure import clocks as _clocks  # noqa: F401  before any user's code could replace them
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.config import run_config

if TYPE_CHECKING:
    from pytest_attnperf.plugin.fixtures import CaseHandle, CodeObjectHandle, TimerFunction

MARKER_HELP = (
    "attnperf(family, workloads, backends=None, without=None, suite=None, label=None, timed=True, "
    "breakdown=False, tier=None, nightly=None, cpu=None, each=None, quarantine=None, until=None, threshold=None, ...): "
    "run this test once per (backend, workload) and gate it"
)
NIGHTLY_HELP = "attnperf_nightly: only nightly runs take this case (put there by nightly= and each= of attnperf)"
CPU_HELP = "attnperf_cpu: only nightly runs time this case on a GPU (put there by cpu= of attnperf)"
CODE_MARKER_HELP = (
    "attnperf_code(kernels=None, code_fail_on=None, code_growth=None): run this test once per compiled "
    "kernel, configuration and architecture, and gate its code object"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare options and ini keys."""
    options.add_options(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser
) -> Generator[None, object, object]:
    """Lease the GPU of a worker of xdist before a conftest can import torch; offer `--update-baselines` where none has
    taken the name.
    """
    if options.XDIST_GPUS in os.environ:
        from pytest_attnperf.plugin import controller_session

        controller_session.lease_in_xdist_worker(early_config)
    result = yield
    with contextlib.suppress(ValueError):
        parser.addoption(
            "--update-baselines",
            dest="attnperf_update_baselines",
            action="store_true",
            default=False,
            help="alias of --attnperf-update-baselines",
        )
    return result


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks that conftests implement."""
    from pytest_attnperf.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Set up a controller; workers are set up by `worker_session`."""
    config.addinivalue_line("markers", MARKER_HELP)
    config.addinivalue_line("markers", NIGHTLY_HELP)
    config.addinivalue_line("markers", CPU_HELP)
    config.addinivalue_line("markers", CODE_MARKER_HELP)
    if run_config(config).is_worker or config.getoption("help", default=False):
        return
    from pytest_attnperf.plugin import controller_session

    controller_session.configure_controller(config)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say that torch is missing, which this package never installs; of a run that measures, where no conftest brings a
    device of its own.
    """
    asked = run_config(config)
    measures = asked.gate or asked.is_recording
    if not measures or config.hook.pytest_attnperf_device.get_hookimpls() or _has_torch():
        return []
    return [
        f"attnperf: torch is not installed for {sys.executable}: cases call kernels on its tensors; install the build "
        "for this GPU (a CPU build where there is none); attnperf doctor says more"
    ]


def _has_torch() -> bool:
    """Whether it can be found, without importing it."""
    try:
        return importlib.util.find_spec("torch") is not None
    except ValueError:  # sys.modules holds something that was never found, or is kept from being so
        return sys.modules.get("torch") is not None


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """`-n auto` of a run that measures: one worker per GPU."""
    from pytest_attnperf.plugin import controller_session

    return controller_session.auto_workers(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Neighbours of one backend on one worker, in a run that measures."""
    from pytest_attnperf.plugin import controller_session

    return controller_session.make_scheduler(config, log)


@pytest.fixture
def attnperf(request: pytest.FixtureRequest) -> CaseHandle:
    """One case: call `attnperf.run(backend, workload)` or `attnperf.gate(name, fn, reference=..., inputs=...)`."""
    from pytest_attnperf.plugin import fixtures

    return fixtures.case_handle(request)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Any:
    """The backend of this item; parametrised by the attnperf marker."""
    from pytest_attnperf.plugin import fixtures

    return fixtures.fail_missing_parameter(request, "backend")


@pytest.fixture
def workload(request: pytest.FixtureRequest) -> Any:
    """The workload of this item; parametrised by the attnperf marker."""
    from pytest_attnperf.plugin import fixtures

    return fixtures.fail_missing_parameter(request, "workload")


@pytest.fixture
def code_object(request: pytest.FixtureRequest) -> CodeObjectHandle:
    """One compiled kernel: call `code_object.gate(kernel_build)`."""
    from pytest_attnperf.plugin import fixtures

    return fixtures.CodeObjectHandle(request.config)


@pytest.fixture
def kernel_build(request: pytest.FixtureRequest) -> Any:
    """What this item compiles; parametrised from the registered kernels where `code_object` is asked for, too."""
    from pytest_attnperf.plugin import fixtures

    return fixtures.fail_missing_build(request)


@pytest.fixture
def gpu_timer() -> TimerFunction:
    """`samples = gpu_timer(fn, *args)`: blocks of one process in microseconds per call. Measures, never gates."""
    from pytest_attnperf.plugin import fixtures

    return fixtures.timer_function()
