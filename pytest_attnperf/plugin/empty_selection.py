"""What names on the command line leave of marked tests: one without a case is said, a run without any refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.plugin.config import run_config

TESTS_SHOWN, NAMES_SHOWN, TEXT_MAX = 4, 8, 200


@dataclass(frozen=True)
class MarkedTest:
    """A test of backends and workloads, as it was parametrised.

    nodeid     without its parameters
    backends   names of those that its marker allows, whatever the command line says
    chosen     names of those that the command line leaves, and `cases` how many cases they make
    """

    nodeid: str
    family: str
    backends: tuple[str, ...]
    chosen: frozenset[str]
    cases: int


def refuse_empty(config: pytest.Config, tests: Sequence[MarkedTest], items: Iterable[pytest.Item]) -> None:
    """Raise pytest's UsageError where a name of `--attnperf-backend`, or all that was typed, selects no case of the
    tests and no compiled kernel among the items."""
    if not tests:
        return
    compiled = _launching(config, items)
    asked = run_config(config)
    for name in asked.backend.split(","):
        chosen = [one for test in tests for one in (*test.chosen, *compiled)]
        if name.strip() and not any(_covers(name.strip(), one) for one in chosen):
            raise pytest.UsageError(
                f"--attnperf-backend={name.strip()} selects no case: {_listed(tests)}. Select a test that has it, or "
                "a backend of these"
            )
    flag = asked.replaced_by
    if flag and not compiled and not any(test.cases for test in tests):
        families = ", ".join(sorted({test.family for test in tests}))
        text = asked.text(flag.removeprefix("--attnperf-"))
        raise pytest.UsageError(
            f"{flag}={text[:TEXT_MAX]} selects no case: the selected tests are of {families}. Select tests of its "
            "family, or workloads of these"
        )


def _launching(config: pytest.Config, items: Iterable[pytest.Item]) -> frozenset[str]:
    """Backends that launch a kernel which one of the items compiles."""
    params = [getattr(getattr(item, "callspec", None), "params", {}) for item in items]
    builds = {build.kernel for one in params if isinstance(build := one.get("kernel_build"), KernelBuild)}
    if not builds:
        return frozenset()
    code: Any = config.pluginmanager.get_plugin("attnperf-code")
    return frozenset(name for kernel in builds for name in code.registry.get(kernel).backends)


def without_cases(tests: Sequence[MarkedTest]) -> str:
    """One line that names the tests for which nothing is left of what was typed; '' where there is none."""
    empty = [test.nodeid for test in tests if not test.cases]
    if not empty:
        return ""
    more = f" and {len(empty) - TESTS_SHOWN} more" if len(empty) > TESTS_SHOWN else ""
    return f"attnperf: no case is selected of {', '.join(empty[:TESTS_SHOWN])}{more}"


def _covers(name: str, backend: str) -> bool:
    return backend == name or backend.startswith(f"{name}.")


def _listed(tests: Sequence[MarkedTest]) -> str:
    said = [f"{test.nodeid} has {_some(test.backends, NAMES_SHOWN)}" for test in tests[:TESTS_SHOWN]]
    more = len(tests) - TESTS_SHOWN
    return "; ".join([*said, f"{more} more tests do not have it either"] if more > 0 else said)


def _some(names: Sequence[str], shown: int) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"{', '.join(names[:shown]) or 'none'}{more}"
