"""Which part of the suite the command line selects, and messages on tests or runs that are left without a case.

The tier of a case says which runs take it besides nightly ones: '' every run; 'check' runs that time nothing; 'cpu'
runs that time nothing or have no GPU; 'nightly' none. A run is of tier `pr`, or of tier `nightly` if
`--attnperf-tier=nightly` is given or the command line names single tests.
"""

from __future__ import annotations

import os
import shlex
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

SUITES = "suites"
"""Folder that commands, and runs that measure, take where no path is typed."""


def take_suites(config: pytest.Config) -> None:
    """Makes a timed run take the folder `suites` where no path is typed and the ini file's `testpaths` leave it out.

    `testpaths` name a project's own tests: a plain `pytest --update-baselines` would run these and store nothing.
    """
    folder = config.rootpath / SUITES
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS or not run_config(config).is_timed:
        return
    start = config.invocation_params.dir
    given = [Path(start, str(arg)).resolve() for arg in config.args]
    overlap = any(path.is_relative_to(folder) or folder.is_relative_to(path) for path in given)
    if folder.is_dir() and not overlap:
        config.args = [str(folder)]
        config.args_source = pytest.Config.ArgsSource.ARGS


def is_unfiltered(config: pytest.Config) -> bool:
    """Returns whether no filter was typed: only then does a stored entry without a case mean that the case is gone.

    A filter of the ini file or of a conftest is none: a change under review could hide cases with it.
    """
    get, asked = config.getoption, run_config(config)
    words = [*asked.words, *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))]
    if any(word.startswith("@") for word in words):  # a file of options, which may hold any
        return not _has_filter(config)
    typed = (
        bool(get("keyword", default="")) and _is_short_typed("k", words),
        bool(get("markexpr", default="")) and _is_short_typed("m", words),
        bool(get("lf", default=False)) and not {"--lf", "--last-failed"}.isdisjoint(words),
        any("::" in word for word in words) and any("::" in str(arg) for arg in config.args),
        *(bool(asked.text(name)) and _is_option_typed(name, words) for name in OUR_FILTERS),
    )
    return not any(typed)


OUR_FILTERS = ("backend", "workload", "model", "code-set")


def _has_filter(config: pytest.Config) -> bool:
    """Returns whether a filter is set, wherever it comes from."""
    get, asked = config.getoption, run_config(config)
    filters = (get("keyword", default=""), get("markexpr", default=""), get("lf", default=False))
    by_us = any(asked.text(name) for name in OUR_FILTERS)
    return any(filters) or by_us or any("::" in str(arg) for arg in config.args)


def _is_short_typed(letter: str, words: Sequence[str]) -> bool:
    """Returns whether a word gives the option of one letter, alone or behind others: -k, -kTEXT, -xk."""
    return any(word[:1] == "-" and word[1:2] != "-" and letter in word for word in words)


def _is_option_typed(name: str, words: Sequence[str]) -> bool:
    flag = options.BY_NAME[name].flag
    return any(word == flag or word.startswith(f"{flag}=") for word in words)


def whole_parts(config: pytest.Config) -> tuple[Path, ...]:
    """Returns the command line's files and folders, absolute; () if a filter selects only some of their cases."""
    start = config.invocation_params.dir
    return tuple(Path(start, str(arg)).resolve() for arg in config.args) if is_unfiltered(config) else ()


def find_lost_suites(config: pytest.Config, suites: Sequence[str]) -> list[str]:
    """Returns which of the stored `suites`, which have no case in this run, should have had one.

    These are suites whose test file is selected, or, if a folder is selected, suites without a file. A suite without
    a file of its name may be named by a marker: it is not returned if a file that is not selected contains its name.
    """
    parts = whole_parts(config)
    if parts and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        parts = (config.rootpath,)  # then the whole project counts as selected: nothing was typed
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
    """Yields all Python files of the project outside `norecursedirs`."""
    left_out = config.getini("norecursedirs")
    for folder, folders, names in os.walk(config.rootpath):
        folders[:] = [name for name in folders if not any(fnmatch(name, pattern) for pattern in left_out)]
        yield from (Path(folder, name) for name in names if name.endswith(".py"))


TESTS_SHOWN, NAMES_SHOWN, NEVER_SHOWN, TEXT_MAX = 4, 8, 3, 200


@dataclass(frozen=True)
class MarkedTest:
    """A test with backends and workloads, as it was parametrised.

    nodeid     id without parameters
    backends   names of the backends that its marker allows
    chosen     names of those that the command line selects; `cases` is their number of cases
    no_triton  text that messages add if a Triton backend of the family was asked for and there is none; '' otherwise
    """

    nodeid: str
    family: str
    backends: tuple[str, ...]
    chosen: frozenset[str]
    cases: int
    no_triton: str = ""


def refuse_empty(config: pytest.Config, tests: Sequence[MarkedTest], items: Iterable[pytest.Item]) -> None:
    """Raises a usage error if a name in `--attnperf-backend`, or the typed workloads, select no case of `tests` and no
    compiled kernel of `items`. Does nothing without `tests`."""
    if not tests:
        return
    compiled = _find_launching_backends(config, items)
    asked = run_config(config)
    for name in asked.backend.split(","):
        chosen = [one for test in tests for one in (*test.chosen, *compiled)]
        if name.strip() and not any(_is_name_of(name.strip(), one) for one in chosen):
            raise pytest.UsageError(
                f"--attnperf-backend={name.strip()} selects no case: {_join_tests(tests)}. Select a test that "
                f"has it, or a backend of these{_reason_no_triton(name.strip(), tests)}"
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
    """Returns the names of backends that launch a kernel compiled by one of the items; empty if none does."""
    params = [getattr(getattr(item, "callspec", None), "params", {}) for item in items]
    builds = {build.kernel for one in params if isinstance(build := one.get("kernel_build"), KernelBuild)}
    if not builds:
        return frozenset()
    code: Any = config.pluginmanager.get_plugin("attnperf-code")
    return frozenset(name for kernel in builds for name in code.registry.get(kernel).backends)


def describe_tests_without_cases(tests: Sequence[MarkedTest], typed: str) -> str:
    """Returns a line that names the tests without a selected case; '' if all have one.

    typed    value of `--attnperf-backend`: if it includes Triton, the line adds why families have no such backend
    """
    empty = [test for test in tests if not test.cases]
    if not empty:
        return ""
    return (
        f"attnperf: no case is selected of {_join_some([test.nodeid for test in empty], TESTS_SHOWN)}"
        + _reason_no_triton(typed, empty)
    )


def describe_too_large(backends: Sequence[Backend], reason: str) -> list[str]:
    """Returns lines on cases deselected because a CPU would take too long; [] if there are none.

    backends   the backend of each case; those without any limit are named
    reason     why this run has no GPU
    """
    never = [backend.name for backend in backends if backend.cpu_flops_max <= 0]
    large = len(backends) - len(never)
    lines = []
    if large:
        lines.append(
            f"attnperf: {count_cases(large)} deselected as too large for a CPU ({reason}); a GPU runs them all"
        )
    if never:
        names = _join_some(list(dict.fromkeys(never)), NEVER_SHOWN)
        lines.append(
            f"attnperf: {count_cases(len(never))} deselected of backends without a limit for a CPU (cpu_flops_max is "
            f"0, its default): {names} ({reason}); a GPU runs them all, and --attnperf-backend=NAME tries one here"
        )
    return lines


def count_cases(count: int) -> str:
    """Returns '1 case' or '2 cases'."""
    return f"{count} case{'s' * (count != 1)}"


def split_names(text: str) -> list[str]:
    """Splits the value of an option at commas, without empty parts: 'a, b' -> ['a', 'b']."""
    return [name.strip() for name in text.split(",") if name.strip()]


def find_backend(name: str, registry: Registry, families: Families) -> Backend:
    """Returns the backend of that name. Raises UsageError that lists all names, and why Triton has none."""
    try:
        return registry.get(name)
    except UnknownNameError as error:
        group, _, family = name.partition(".")
        if group == TRITON and (why := families.reason_no_triton(family)):
            raise UsageError(f"{error}{why}") from error
        raise


def expand_names(names: Iterable[str], registry: Registry, families: Families) -> list[str]:
    """Returns names of backends: `triton` becomes all of `triton.*`. Raises UsageError for unknown names."""
    expanded: list[str] = []
    for name in names:
        group = [backend.name for backend in registry if backend.name.startswith(f"{name}.")]
        known = any(backend.name == name for backend in registry)
        expanded += [find_backend(name, registry, families).name] if known or not group else group
    return expanded


def includes_triton(names: Iterable[str]) -> bool:
    """Returns whether one of the names is `triton` or begins with `triton.`."""
    return any(name.partition(".")[0] == TRITON for name in names)


def _reason_no_triton(typed: str, tests: Iterable[MarkedTest]) -> str:
    """Returns why the families of the tests have no Triton backend, each reason once; '' if `typed` names none."""
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


class Notice:
    """Plugin object that makes pytest print these lines after collection."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = list(lines)

    def pytest_report_collectionfinish(self) -> list[str]:
        """Returns the lines for pytest to print after collection."""
        return self._lines


def show_notice(config: pytest.Config, name: str, lines: Sequence[str]) -> None:
    """Prints lines after collection, by a plugin registered as `name`; does nothing without lines."""
    if lines:
        config.pluginmanager.register(Notice(lines), name)


NIGHTLY_MARK, CPU_MARK = "attnperf_nightly", "attnperf_cpu"
"""Markers of single cases that only nightly runs take, or that only nightly runs time on a GPU."""


def run_tier(config: pytest.Config) -> str:
    """Returns the tier of this run: the typed one, else 'nightly' if the command line names single tests, else 'pr'.
    Raises UsageError for any other typed tier."""
    asked = require_tier(run_config(config).tier, options.BY_NAME["tier"].flag)
    by_name = any("::" in str(arg) for arg in config.args)
    return asked or (NIGHTLY if by_name else PR)


def tier_of(item: pytest.Item, settings: Mapping[str, Any]) -> str:
    """Returns the item's tier: 'nightly' or 'cpu' by its markers, else that of `settings`, the keywords of its attnperf
    marker; '' if every run takes the item."""
    for mark, tier in ((NIGHTLY_MARK, NIGHTLY), (CPU_MARK, CPU)):
        if item.get_closest_marker(mark) is not None:
            return tier
    tier = str(settings.get("tier") or "")
    return "" if tier == PR else tier


def is_left_out(tier: str, config: pytest.Config, *, on_gpu: bool) -> bool:
    """Returns whether this run leaves cases of `tier` to nightly runs: those of 'nightly'; in a timed run also those of
    'check' and, on a GPU, of 'cpu'. False in a nightly run."""
    if not tier or run_tier(config) == NIGHTLY:
        return False
    return tier == NIGHTLY or (run_config(config).is_timed and (tier == CHECK or on_gpu))


def make_params(
    backends: Sequence[Backend], workloads: Sequence[Workload], chosen: Collection[Backend], left: Mapping[str, str]
) -> list[Any]:
    """Returns a pytest.param for each workload with each chosen backend; cases left to nightly runs get a marker.

    backends   all backends of the test
    left       id of a workload, or `backend-workload` of a single case -> name of its marker
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
    """Returns {workload or 'backend-workload': marker} for what the attnperf marker's keywords leave to nightly runs:

    nightly   workloads that only nightly runs take; a text may name a single case, 'backend-workload'
    cpu       the same for workloads that only nightly runs time on a GPU
    each      number of workloads that other runs take with each backend, in a test that is never timed; backends take
              them in turn, so that together they take as many different ones as possible

    Raises UsageError for a workload that the test does not have or that is in two lists, for an `each` that is no
    positive whole number or belongs to a timed test, and for `each` together with another keyword.
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
    """Returns the workloads and cases that a keyword of the marker names. Raises UsageError for unknown ones."""
    names = [one if isinstance(one, str) else one.id for one in settings.get(keyword) or ()]
    for name in names:
        if name not in known and name not in cases:
            raise UsageError(f"{where}: {keyword}={name!r} is not a workload of this test; it has: {', '.join(known)}")
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
    """Returns the index of a test file in `--attnperf-first`, by its name without suffix; files not named there get the
    same, higher one."""
    first = run_config(config).first.replace(",", " ").split()
    names = [Path(name).stem for name in first]
    return names.index(path.stem) if path.stem in names else len(names)
