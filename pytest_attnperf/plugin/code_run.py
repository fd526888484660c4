"""Compiled kernels inside the user's pytest: starts compile workers when the first is due, and gathers results."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.code_items import archs_of, build_key, build_of, code_policy_for, code_settings
from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.reports.files.noted import from_values, to_values
from pytest_attnperf.reports.run.code_objects import code_properties

if TYPE_CHECKING:
    from pytest_attnperf.session.code_session import CodeSession
    from pytest_attnperf.session.settings import RunSettings
    from pytest_attnperf.workers.compile_pool import CompilePool
    from pytest_attnperf.workers.launch import LaunchPlan

ANALYSIS_CACHE = Path(".attnperf") / "cache" / "code"
MOST_COMPILERS = 8
_RESULT = pytest.StashKey[CodeResult]()


@dataclass(eq=False)
class CodeRun:
    """What a run knows of its compiled kernels.

    baselines   folders of stored kernels, first found first
    plan        how workers of this tree are started; asked when the first kernel is due

    What reads and compiles kernels is imported then, too: most runs have none.
    """

    config: pytest.Config
    items: Sequence[pytest.Item]
    settings: RunSettings
    baselines: Sequence[Path]
    plan: Callable[[], LaunchPlan]
    results: dict[CaseKey, CodeResult] = field(default_factory=dict)
    _session: CodeSession | None = None
    _pool: CompilePool | None = None

    def judge(self, item: pytest.Function) -> CodeResult:
        """The verdict of one item. The other selected ones are compiled meanwhile."""
        from pytest_attnperf.session.code_session import CodeCase

        key, build = build_key(item), build_of(item)
        assert key is not None
        assert build is not None
        result = self._judges().judge(CodeCase(key, item.nodeid, build, code_policy_for(self.config, item)))
        item.stash[_RESULT] = result
        item.user_properties.extend(code_properties(result))
        return result

    def encoded(self, item: pytest.Item) -> dict[str, Any] | None:
        """The item's result as builtins, or None."""
        result = item.stash.get(_RESULT, None)
        encoded: dict[str, Any] | None = None if result is None else to_values(result)
        return encoded

    def gather(self, encoded: dict[str, Any]) -> CodeResult:
        """Keep a result that a report brought, from this process or from xdist's."""
        result = from_values(encoded, CodeResult)
        self.results[result.key] = result
        if len(self.results) == len(self.items):
            self.shutdown()  # what is timed next must not share the machine with compilers
        return result

    @property
    def compiling(self) -> tuple[int, int] | None:
        """How many kernels are compiled, and of how many; None while no compiler is at work."""
        counts = None if self._pool is None else self._pool.counts
        return None if counts is None or counts[0] >= counts[1] else counts

    def shutdown(self) -> None:
        """End the compile workers."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _judges(self) -> CodeSession:
        if self._session is None:
            from pytest_attnperf.baselines.code_store import CodeStore
            from pytest_attnperf.codeobject.analysis import Analyser
            from pytest_attnperf.session.code_session import CodeSession
            from pytest_attnperf.workers.compile_pool import CompilePool, compile_plan

            beside = hasattr(self.config, "workerinput")  # one of several: each compiles what it is given
            plan = compile_plan(self._with_archs(self.plan()), (str(item.path) for item in self.items))
            size = 1 if beside else min(len(os.sched_getaffinity(0)), MOST_COMPILERS)
            self._pool = CompilePool(plan, size, self.settings.case_limit_seconds)
            if not beside:
                self._pool.begin(key for item in self.items if (key := build_key(item)) is not None)
            self._session = CodeSession(
                mode=self.settings.mode,
                compiler=self._pool,
                store=CodeStore(*self.baselines),
                analyse=Analyser(self.config.rootpath / ANALYSIS_CACHE),
                accepted=self.settings.accepted,
                trial=bool(code_settings(self.config)),
                options=self.settings.given_options,
            )
        return self._session

    def _with_archs(self, plan: LaunchPlan) -> LaunchPlan:
        """Both sides compile for the same: a worker is shown no GPU, and would find none."""
        flag = options.BY_NAME["arch"].flag
        archs = f"{flag}={','.join(archs_of(self.config))}"
        return replace(plan, passed_options=(*plan.passed_options, archs))
