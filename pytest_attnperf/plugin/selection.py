"""What of the suite the command line selects, and what is said of what it leaves out: a test without a case, a run
without any.

Which runs take a case: every run; those that time nothing, and nightly ones; those that time nothing or have no GPU,
and nightly ones; or nightly ones only. A run is of tier `pr` unless it says `--attnperf-tier=nightly` or names single
tests: whoever types a test means it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.backends import Backend, Registry
from pytest_attnperf.errors import UnknownNameError, UsageError
from pytest_attnperf.gate.policy import CHECK, CPU, NIGHTLY, PR, require_tier
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.config import run_config
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import TRITON, Families


def is_unfiltered(config: pytest.Config) -> bool:
    """Whether everything was selected: only then does an entry without a case mean that a case has gone."""
    get, asked = config.getoption, run_config(config)
    filters = (
        get("keyword", default=""),
        get("markexpr", default=""),
        get("lf", default=False),
    )
    narrowed = any(filters) or any("::" in str(arg) for arg in config.args)
    by_us = asked.backend or asked.workload or asked.model or asked.code_set
    return not narrowed and not by_us


def whole_parts(config: pytest.Config) -> tuple[Path, ...]:
    """Files and folders that are selected as a whole; none where cases of them were picked out."""
    start = config.invocation_params.dir
    return tuple(Path(start, str(arg)).resolve() for arg in config.args) if is_unfiltered(config) else ()


def find_lost_suites(config: pytest.Config, suites: Sequence[str]) -> list[str]:
    """Those of stored `suites` without a case that have lost it: their file is selected, or is nowhere, and so is a
    folder.

    A suite that no file is called like may be one that a marker names: it is not asked for where a file that is not
    selected holds its name.
    """
    parts = whole_parts(config)
    if parts and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        parts = (config.rootpath,)  # nobody has typed what the ini file's testpaths leave out
    if not suites or not parts:
        return []
    files = {path: path.stem.removeprefix("test_") for path in _python_files(config)}
    unselected = [path for path in files if not any(path.is_relative_to(part) for part in parts)]
    folders = any(part.is_dir() for part in parts)
    asked = []
    for suite in suites:
        named = [path for path, name in files.items() if name == suite]
        elsewhere = not named and any(suite in path.read_text(errors="replace") for path in unselected)
        if any(path not in unselected for path in named) or (folders and not named and not elsewhere):
            asked.append(suite)
    return asked


def _python_files(config: pytest.Config) -> Iterator[Path]:
    """All of a project that pytest would look at."""
    left_out = config.getini("norecursedirs")
    for folder, folders, names in os.walk(config.rootpath):
        folders[:] = [name for name in folders if not any(fnmatch(name, pattern) for pattern in left_out)]
        yield from (Path(folder, name) for name in names if name.endswith(".py"))


TESTS_SHOWN, NAMES_SHOWN, TEXT_MAX = 4, 8, 200


@dataclass(frozen=True)
class MarkedTest:
    """A test of backends and workloads, as it was parametrised.

    nodeid     without its parameters
    backends   names of those that its marker allows, whatever the command line says
    chosen     names of those that the command line leaves, and `cases` how many cases they make
    no_triton  what messages add where a Triton backend of the family was asked for; '' where there is nothing to add
    """

    nodeid: str
    family: str
    backends: tuple[str, ...]
    chosen: frozenset[str]
    cases: int
    no_triton: str = ""


def refuse_empty(config: pytest.Config, tests: Sequence[MarkedTest], items: Iterable[pytest.Item]) -> None:
    """Raise pytest's UsageError where a name of `--attnperf-backend`, or all that was typed, selects no case of the
    tests and no compiled kernel among the items."""
    if not tests:
        return
    compiled = _find_launching_backends(config, items)
    asked = run_config(config)
    for name in asked.backend.split(","):
        chosen = [one for test in tests for one in (*test.chosen, *compiled)]
        if name.strip() and not any(_is_name_of(name.strip(), one) for one in chosen):
            raise pytest.UsageError(
                f"--attnperf-backend={name.strip()} selects no case: {_join_tests(tests)}. Select a test that "
                f"has it, or "
                f"a backend of these{_reason_no_triton(name.strip(), tests)}"
            )
    flag = asked.replaced_by
    if flag and not compiled and not any(test.cases for test in tests):
        families = ", ".join(sorted({test.family for test in tests}))
        text = asked.text(flag.removeprefix("--attnperf-"))
        raise pytest.UsageError(
            f"{flag}={text[:TEXT_MAX]} selects no case: the selected tests are of {families}. Select tests of its "
            "family, or workloads of these"
        )


def _find_launching_backends(config: pytest.Config, items: Iterable[pytest.Item]) -> frozenset[str]:
    """Backends that launch a kernel which one of the items compiles."""
    params = [getattr(getattr(item, "callspec", None), "params", {}) for item in items]
    builds = {build.kernel for one in params if isinstance(build := one.get("kernel_build"), KernelBuild)}
    if not builds:
        return frozenset()
    code: Any = config.pluginmanager.get_plugin("attnperf-code")
    return frozenset(name for kernel in builds for name in code.registry.get(kernel).backends)


def describe_tests_without_cases(tests: Sequence[MarkedTest], typed: str) -> str:
    """One line that names the tests for which nothing is left of what was typed; '' where there is none.

    typed    `--attnperf-backend`: where it asks for Triton, the line says which families have no such backend, and why
    """
    empty = [test for test in tests if not test.cases]
    if not empty:
        return ""
    return (
        f"attnperf: no case is selected of {_join_some([test.nodeid for test in empty], TESTS_SHOWN)}"
        + _reason_no_triton(typed, empty)
    )


def split_names(text: str) -> list[str]:
    """'a, b' -> ['a', 'b'], as options give names of backends."""
    return [name.strip() for name in text.split(",") if name.strip()]


def find_backend(name: str, registry: Registry, families: Families) -> Backend:
    """The backend of that name. Raises UsageError with those that exist, and why the family it names has none."""
    try:
        return registry.get(name)
    except UnknownNameError as error:
        group, _, family = name.partition(".")
        if group == TRITON and (why := families.reason_no_triton(family)):
            raise UsageError(f"{error}{why}") from error
        raise


def expand_names(names: Iterable[str], registry: Registry, families: Families) -> list[str]:
    """Names of backends; `triton` selects every `triton.*`. Raises UsageError as `find_backend` does."""
    expanded: list[str] = []
    for name in names:
        group = [backend.name for backend in registry if backend.name.startswith(f"{name}.")]
        known = any(backend.name == name for backend in registry)
        expanded += [find_backend(name, registry, families).name] if known or not group else group
    return expanded


def includes_triton(names: Iterable[str]) -> bool:
    """Whether one of the names is of this repository's Triton backends, or of all of them."""
    return any(name.partition(".")[0] == TRITON for name in names)


def _reason_no_triton(typed: str, tests: Iterable[MarkedTest]) -> str:
    """What the families of the tests say of a Triton backend, where one was typed; each once."""
    whys = dict.fromkeys(test.no_triton for test in tests)
    return "".join(whys) if includes_triton(split_names(typed)) else ""


def _is_name_of(name: str, backend: str) -> bool:
    return backend == name or backend.startswith(f"{name}.")


def _join_tests(tests: Sequence[MarkedTest]) -> str:
    said = [f"{test.nodeid} has {_join_some(test.backends, NAMES_SHOWN)}" for test in tests[:TESTS_SHOWN]]
    more = len(tests) - TESTS_SHOWN
    return "; ".join([*said, f"{more} more tests do not have it either"] if more > 0 else said)


def _join_some(names: Sequence[str], shown: int) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"{', '.join(names[:shown]) or 'none'}{more}"


class NoCase:
    """Plugin object of a gating run; heard only where there is no other of a run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._lost: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a strict run that would pass, or say nothing but that it found no tests."""
        config, asked = self._config, run_config(self._config)
        ended = exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if ended or config.pluginmanager.has_plugin("attnperf-run") or not asked.strict:
            return
        folder = config.rootpath / asked.baselines
        self._lost = find_lost_suites(config, sorted({path.stem for path in folder.glob("*/*/*.json")}))
        if self._lost:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say which suites have lost their cases."""
        if self._lost:
            terminalreporter.write_line(
                f"exit status 1: no case was collected, and baselines are stored of {', '.join(self._lost)}: their "
                "tests were skipped as a whole, ignored, removed or renamed"
            )


class Notice:
    """Plugin object of a session that leaves something out."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = list(lines)

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say what was left out, and why."""
        return self._lines


def show_notice(config: pytest.Config, name: str, lines: Sequence[str]) -> None:
    """Have lines said, by whom `name` says; nothing without any."""
    if lines:
        config.pluginmanager.register(Notice(lines), name)


NIGHTLY_MARK, CPU_MARK = "attnperf_nightly", "attnperf_cpu"
"""Mark cases of a test that every run takes: those that only nightly runs take, and those that only they time on a
GPU."""


def run_tier(config: pytest.Config) -> str:
    """'pr' or 'nightly'. Raises UsageError for any other tier that was asked for."""
    asked = require_tier(run_config(config).tier, options.BY_NAME["tier"].flag)
    by_name = any("::" in str(arg) for arg in config.args)
    return asked or (NIGHTLY if by_name else PR)


def tier_of(item: pytest.Item, settings: Mapping[str, Any]) -> str:
    """'' for a case of every run, 'check', 'cpu' or 'nightly'; `settings` are its marker's."""
    for mark, tier in ((NIGHTLY_MARK, NIGHTLY), (CPU_MARK, CPU)):
        if item.get_closest_marker(mark) is not None:
            return tier
    tier = str(settings.get("tier") or "")
    return "" if tier == PR else tier


def is_left_out(tier: str, config: pytest.Config, *, on_gpu: bool) -> bool:
    """Whether this run leaves cases of this tier to nightly ones."""
    if not tier or run_tier(config) == NIGHTLY:
        return False
    return tier == NIGHTLY or (run_config(config).is_timed and (tier == CHECK or on_gpu))


def make_params(
    backends: Sequence[Backend], workloads: Sequence[Workload], chosen: Collection[Backend], left: Mapping[str, str]
) -> list[Any]:
    """A parameter for each workload and each of the chosen backends; what is left to other runs is marked so.

    backends   of the test, whatever the command line chooses of them
    left       marks, by ids of workloads or by `backend-workload` of single cases
    """
    found = []
    for workload in workloads:
        for backend in (one for one in backends if one in chosen):
            name = f"{backend.name}-{workload.id}"
            mark = left.get(workload.id) or left.get(name)
            marks = [getattr(pytest.mark, mark)] if mark else []
            found.append(pytest.param(backend, workload, id=name, marks=marks))
    return found


def find_left_to_others(
    settings: Mapping[str, Any], backends: Sequence[Backend], workloads: Sequence[Workload], where: str
) -> dict[str, str]:
    """What the marker's `nightly`, `cpu` and `each` leave to other runs, as `params` takes it.

    nightly   those of the workloads that only nightly runs take; a text may name a single case, 'backend-workload'
    cpu       those that only nightly runs time on a GPU, likewise
    each      how many workloads other runs take with each backend, of a test that is never timed: they are dealt in
              turn, so that together the backends take all

    Raises UsageError for a workload that is none of the test's, for a number that is none, for `each` beside another,
    and for a workload in two lists.
    """
    known = [workload.id for workload in workloads]
    cases = frozenset(f"{backend.name}-{workload}" for backend in backends for workload in known)
    cpu, nightly = (_read_workload_list(settings, name, known, cases, where) for name in ("cpu", "nightly"))
    if both := sorted(set(cpu) & set(nightly)):
        raise UsageError(f"{where}: the attnperf marker has {both[0]} in nightly= and in cpu=; leave it in nightly=")
    each = settings.get("each")
    if each is None:
        return dict.fromkeys(cpu, CPU_MARK) | dict.fromkeys(nightly, NIGHTLY_MARK)
    if beside := [name for name in ("nightly", "cpu") if settings.get(name) is not None]:
        raise UsageError(f"{where}: the attnperf marker has {beside[0]}= and each=; give one of them")
    if not isinstance(each, int) or isinstance(each, bool) or each < 1:
        raise UsageError(f"{where}: the attnperf marker has each={each!r}; allowed: a whole number of at least 1")
    if settings.get("timed", True):
        raise UsageError(f"{where}: the attnperf marker has each= and is timed; give nightly=[...], or timed=False")
    return dict.fromkeys(_find_undealt([backend.name for backend in backends], known, each), NIGHTLY_MARK)


def _read_workload_list(
    settings: Mapping[str, Any], keyword: str, known: Sequence[str], cases: Collection[str], where: str
) -> list[str]:
    """Ids of the workloads, and names of single cases, that a keyword of the marker lists, of those that are known."""
    names = [one if isinstance(one, str) else one.id for one in settings.get(keyword) or ()]
    for name in names:
        if name not in known and name not in cases:
            raise UsageError(f"{where}: {keyword}={name!r} is none of the workloads: {', '.join(known)}")
    return names


def _find_undealt(backends: Sequence[str], workloads: Sequence[str], each: int) -> frozenset[str]:
    dealt = set()
    turn = 0
    for backend in backends:
        for _ in range(min(each, len(workloads))):
            dealt.add(f"{backend}-{workloads[turn % len(workloads)]}")
            turn += 1
    return frozenset(f"{backend}-{workload}" for backend in backends for workload in workloads) - dealt


def file_rank(path: Path, config: pytest.Config) -> int:
    """The place of a file among those that `--attnperf-first` names; behind them where it is not named."""
    first = run_config(config).first.replace(",", " ").split()
    names = [Path(name).stem for name in first]
    return names.index(path.stem) if path.stem in names else len(names)
