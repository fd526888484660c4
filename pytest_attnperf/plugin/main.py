"""The plugin module that pytest loads. It imports little, so that sessions without attnperf tests pay almost nothing.

There are three kinds of sessions: a *worker* (`--attnperf-worker-fd`), a *controller* (any other session that runs
cases), and an xdist controller, which runs no case and only gathers the reports of its workers.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import os
import shutil
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.measure import clocks as _clocks  # noqa: F401  before any user's code could replace them
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.config import run_config
from pytest_attnperf.plugin.switches import HELP

if TYPE_CHECKING:
    from pytest_attnperf.plugin.fixtures import CaseHandle, CodeObjectHandle, TimerFunction

MARKER_HELP = (
    "attnperf(family, workloads, backends=None, without=None, suite=None, label=None, timed=True, "
    "breakdown=False, tier=None, nightly=None, cpu=None, each=None, quarantine=None, until=None, threshold=None, ...): "
    "run this test once per (backend, workload) and gate it"
)
NIGHTLY_HELP = "attnperf_nightly: only nightly runs take this case (set by nightly= and each= of attnperf)"
CPU_HELP = "attnperf_cpu: only nightly runs time this case on a GPU (set by cpu= of attnperf)"
PRINTS_ONLY = ("help", "showfixtures", "show_fixtures_per_test")
"""Options of pytest that print something and run no test: backends are not registered for them."""

CODE_MARKER_HELP = (
    "attnperf_code(kernels=None, code_fail_on=None, code_growth=None): run this test once per compiled "
    "kernel, configuration and architecture, and gate its code object"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares this plugin's options and ini keys, whose help is their reference."""
    options.add_options(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, object, object]:
    """Leases the GPU of a worker of xdist before a conftest can import torch; then lets pytest load the conftests.

    Adds the option `--update-baselines` unless another plugin has that name. Raises a usage error for an option of an
    earlier release; for a misspelt one adds the nearest name to pytest's own error.
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
    _, unknown = parser.parse_known_and_unknown_args(args, namespace=copy.copy(early_config.option))
    if unknown:
        from pytest_attnperf.plugin.unknown_names import refuse_old_options, suggest_options

        refuse_old_options(unknown)
        parser.extra_info.update(suggest_options(unknown))
    return result


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declares the hooks that conftests implement, e.g. pytest_attnperf_register_backends."""
    from pytest_attnperf.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Declares the markers; unless this is a worker or only prints, checks options and registers plugin objects."""
    config.addinivalue_line("markers", MARKER_HELP)
    config.addinivalue_line("markers", NIGHTLY_HELP)
    config.addinivalue_line("markers", CPU_HELP)
    config.addinivalue_line("markers", CODE_MARKER_HELP)
    asked = run_config(config)
    if asked.is_worker:
        return
    if asked.is_timed:
        from pytest_attnperf.plugin import selection

        selection.take_suites(config)
    if any(config.getoption(name, default=False) for name in PRINTS_ONLY):
        return
    try:
        from pytest_attnperf.plugin import controller_session
    except Exception as error:  # e.g. an op family whose class Python refuses
        from pytest_attnperf.records.raised import describe_raised

        raise pytest.UsageError(describe_raised(error)) from error
    controller_session.configure_controller(config)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Prints all options and returns 0 if `--attnperf-help` is given; None in every other session."""
    if not config.getoption(HELP, default=False):
        return None
    sys.stdout.write(options.render_option_help(shutil.get_terminal_size().columns))
    return 0


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Returns a line if torch is missing in a run that measures, unless a conftest has its own device; else []. This
    package never installs torch."""
    asked = run_config(config)
    measures = asked.gate or asked.is_recording
    if not measures or config.hook.pytest_attnperf_device.get_hookimpls() or _has_torch():
        return []
    return [
        f"attnperf: torch is not installed for {sys.executable}, and cases need it; install the build for this GPU "
        "(a CPU build if there is none); attnperf doctor says more"
    ]


def _has_torch() -> bool:
    """Returns whether torch is installed, without importing it."""
    try:
        return importlib.util.find_spec("torch") is not None
    except ValueError:  # sys.modules has an entry without a spec, or None, which blocks the import
        return sys.modules.get("torch") is not None


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Returns the number of GPUs as that of workers for `-n auto` in a run that measures; None leaves it to xdist."""
    from pytest_attnperf.plugin import controller_session

    return controller_session.auto_workers(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Returns a scheduler that keeps cases of a backend on one worker, in a run that measures; else None."""
    from pytest_attnperf.plugin import controller_session

    return controller_session.make_scheduler(config, log)


@pytest.fixture
def attnperf(request: pytest.FixtureRequest) -> CaseHandle:
    """One case: call `attnperf.run(backend, workload)` or `attnperf.gate(name, fn, reference=..., inputs=...)`."""
    from pytest_attnperf.plugin import fixtures

    return fixtures.case_handle(request)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Any:
    """The backend (kernel implementation) of this test, set by the attnperf marker; without that the test fails."""
    from pytest_attnperf.plugin import fixtures

    return fixtures.fail_missing_parameter(request, "backend")


@pytest.fixture
def workload(request: pytest.FixtureRequest) -> Any:
    """The workload of this test, set by the attnperf marker; without that the test fails."""
    from pytest_attnperf.plugin import fixtures

    return fixtures.fail_missing_parameter(request, "workload")


@pytest.fixture
def code_object(request: pytest.FixtureRequest) -> CodeObjectHandle:
    """Handle of one compiled kernel: call `code_object.gate(kernel_build)`."""
    from pytest_attnperf.plugin import fixtures

    return fixtures.CodeObjectHandle(request.config)


@pytest.fixture
def kernel_build(request: pytest.FixtureRequest) -> Any:
    """The kernel build that this test compiles; needs the fixture `code_object`, too, and registered kernels. Without
    them the test fails."""
    from pytest_attnperf.plugin import fixtures

    return fixtures.fail_missing_build(request)


@pytest.fixture
def gpu_timer() -> TimerFunction:
    """`timed = gpu_timer(fn, *args)`: median_us and interval_us of a call in this process. Measures, never gates."""
    from pytest_attnperf.plugin import fixtures

    return fixtures.timer_function()
