"""Compiled kernels in the user's pytest: starts compile workers after the last timed case and judges code objects.

Also returns, for the end of the run, findings on stored entries without a kernel and lines on kernels not gated.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.baselines.code_schema import entry_of
from pytest_attnperf.baselines.code_store import CodeStore
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.config import is_xdist_worker, run_config
from pytest_attnperf.plugin.features.code_objects.code_items import (
    archs_of,
    build_of,
    code_policy_for,
    code_settings,
)
from pytest_attnperf.plugin.features.feature import Feature
from pytest_attnperf.plugin.gathered import RESULT
from pytest_attnperf.plugin.keys import build_key
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.reports.run.code_objects import TEXT_LIMIT
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import RunResult
from pytest_attnperf.session.code_session import CodeCase, CodeSession
from pytest_attnperf.session.plausibility import ANALYSED

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.on import FeatureContext
    from pytest_attnperf.results import CaseResult
    from pytest_attnperf.session.settings import RunSettings
    from pytest_attnperf.workers.compile_pool import CompilePool
    from pytest_attnperf.workers.launch import LaunchPlan

MOST_COMPILERS = 8
EXECUTE = "--attnperf-execute"


@dataclass(eq=False)
class CodeRun(Feature):
    """Compiles and judges the kernels of a run.

    baselines   folders of stored kernels, in the order in which they are searched
    plan        returns how workers of this tree are started; called when compilers start
    timed       cases that may be timed and have not ended. Compilers start after the last of them, or when the first
                kernel is judged; the modules that compile are imported only then
    """

    config: pytest.Config
    items: Sequence[pytest.Item]
    settings: RunSettings
    baselines: Sequence[Path]
    plan: Callable[[], LaunchPlan]
    timed: set[CaseKey] = field(default_factory=set)
    _judged: int = 0
    _session: CodeSession | None = None
    _pool: CompilePool | None = None

    def judge(self, item: pytest.Function) -> CodeResult:
        """Compiles and judges the kernel of one item; returns the result and stores it with the item. The first call
        starts the compilers for all builds, unless they run already."""
        key, build = build_key(item), build_of(item)
        assert key is not None
        assert build is not None
        result = self._ensure_session().judge(CodeCase(key, item.nodeid, build, code_policy_for(self.config, item)))
        item.stash[RESULT] = result
        return result

    def before_run(self) -> None:
        """Starts the compilers at once if the run times no case."""
        self._compile_ahead()

    def after_case(self, result: CaseResult | CodeResult) -> None:
        """Counts the result. Ends the compilers after the last kernel, so that they do not disturb cases timed next;
        starts them after the last timed case."""
        self._judged += isinstance(result, CodeResult)
        self.timed.discard(result.key)
        if self._judged == len(self.items):
            self.shutdown()
        else:
            self._compile_ahead()

    def before_shutdown(self, *, interrupted: bool) -> None:
        """Ends the compilers, even if kernels are left."""
        self.shutdown()

    @property
    def compile_counts(self) -> tuple[int, int] | None:
        """(Number of compiled kernels, number of all); None while no compiler works or all kernels are compiled."""
        counts = None if self._pool is None else self._pool.counts
        return None if counts is None or counts[0] >= counts[1] else counts

    @property
    def uncompiled_count(self) -> int | None:
        """Number of kernels that are not compiled yet; None while there are no compile workers."""
        return None if self._pool is None else self._pool.counts[1] - self._pool.counts[0]

    def shutdown(self) -> None:
        """Ends the compile workers; does nothing if there are none."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _compile_ahead(self) -> None:
        """Starts compiling if no timed case is left; not in a worker of xdist, which does not know others' cases."""
        if not self.timed and not is_xdist_worker(self.config):
            self._ensure_session()

    def _ensure_session(self) -> CodeSession:
        if self._session is None:
            from pytest_attnperf.codeobject.analysis import Analyser
            from pytest_attnperf.workers.compile_pool import CompilePool, make_compile_plan

            beside = is_xdist_worker(self.config)  # one of several, so it compiles only its own builds
            plan = make_compile_plan(self._with_options(self.plan()), (str(item.path) for item in self.items))
            size = 1 if beside else min(len(os.sched_getaffinity(0)), MOST_COMPILERS)
            self._pool = CompilePool(plan, size, self.settings.case_limit_seconds)
            if not beside:
                self._pool.begin(key for item in self.items if (key := build_key(item)) is not None)
            self._session = CodeSession(
                mode=self.settings.mode,
                compiler=self._pool,
                store=CodeStore(*self.baselines),
                analyse=Analyser(self.config.rootpath / ANALYSED),
                accepted=self.settings.accepted,
                trial=bool(code_settings(self.config)),
                options=(*self.settings.given_options, *((EXECUTE,) if run_config(self.config).execute else ())),
            )
        return self._session

    def _with_options(self, plan: LaunchPlan) -> LaunchPlan:
        """Returns the plan with --attnperf-arch set, because compile workers see no GPU and could not detect
        architectures, and with --attnperf-execute if it was typed."""
        flag = options.BY_NAME["arch"].flag
        archs = f"{flag}={','.join(archs_of(self.config))}"
        execute = (EXECUTE,) if run_config(self.config).execute else ()
        return replace(plan, passed_options=(*plan.passed_options, archs, *execute))


SHOWN = 5
UNRESOLVED = frozenset({Verdict.NO_BASELINE, Verdict.INCOMPARABLE})


def find_unused_code(
    run: RunResult, store: CodeStore, registered: Collection[str], elsewhere: Iterable[CaseKey] = ()
) -> list[str]:
    """Returns findings on stored kernels that are not compiled any more, for the architectures of this run.

    registered   names of all registered kernels; a registered kernel without an item is no finding, because another
                 file may compile it
    elsewhere    cases and kernels that other shards of the run have
    """
    found = []
    archs = {result.key.label for result in run.code}
    keys = [*(result.key for result in run.code), *(key for key in elsewhere if key.label in archs)]
    judged, kernels = {(key.label, entry_of(key)) for key in keys}, {key.backend for key in keys}
    for arch in sorted(archs):
        try:
            stored = store.load(arch)
        except BaselineError as error:
            found.append(str(error))
            continue
        found += [
            f"{entry} has a code object stored for {arch} and is not compiled any more: its kernel or configuration "
            "was removed or renamed"
            for entry in stored
            if (arch, entry) not in judged
            and ((kernel := entry.partition("/")[0]) in kernels or kernel not in registered)
        ]
    return found


def find_not_compiled(run: RunResult, store: CodeStore) -> list[str]:
    """Returns findings on stored kernels that could not be compiled here, e.g. because the compiler is missing."""
    lost: Counter[tuple[str, str]] = Counter()
    for result in run.code:
        if result.verdict is not Verdict.UNSUPPORTED:
            continue
        with contextlib.suppress(BaselineError):  # each of its results reports it
            if store.find(result.key.label, entry_of(result.key)) is not None:
                lost[result.key.label, result.summary] += 1
    return [
        one_line(f"{count} stored code objects for {arch} were not compiled here: {why}", TEXT_LIMIT)
        for (arch, why), count in lost.items()
    ]


def unresolved_code_lines(run: RunResult) -> list[str]:
    """Returns lines on kernels without a baseline or not comparable: SHOWN per verdict, then the number of others."""
    lines = []
    for verdict in sorted({result.verdict for result in run.code} & UNRESOLVED):
        results = [result for result in run.code if result.verdict is verdict]
        shown = (f"{verdict.value}: {result.key}: {result.summary}" for result in results[:SHOWN])
        lines += [one_line(line, TEXT_LIMIT) for line in shown]
        if len(results) > SHOWN:
            lines.append(f"{verdict.value}: {len(results) - SHOWN} more code objects")
    return lines


def make_feature(given: FeatureContext) -> CodeRun:
    """Returns the feature that compiles and judges kernels; also stores it in `given.code`."""
    roots = given.session.bench.store.roots
    given.code = CodeRun(given.config, given.builds, given.settings, roots, given.plan, given.timed_keys)
    return given.code
