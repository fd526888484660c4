"""The end of a run, of its compiled kernels: merge baselines, name entries without a kernel, and what was not gated."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Collection
from pathlib import Path

from pytest_attnperf.baselines.code_schema import entry_of
from pytest_attnperf.baselines.code_store import CodeStore, NewKernel
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.plugin.problems import noted
from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.run.code_objects import TEXT_LIMIT
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import RunResult
from pytest_attnperf.session.code_session import new_kernel

SHOWN = 5
UNRESOLVED = frozenset({Verdict.NO_BASELINE, Verdict.INCOMPARABLE})


def merge_code(run: RunResult, store: CodeStore) -> tuple[list[Path], list[str]]:
    """Merge every RECORDED kernel into its architecture's file; (paths written, problems)."""
    groups: dict[str, dict[str, NewKernel]] = defaultdict(dict)
    for result in run.code:
        if result.verdict is Verdict.RECORDED:
            groups[result.key.label][entry_of(result.key)] = new_kernel(result, run.commit)
    paths: list[Path] = []
    problems: list[str] = []
    for arch, entries in sorted(groups.items()):
        with noted(problems):
            paths.append(store.merge(store.roots[0], arch, entries))
    return paths, problems


def unused_code(run: RunResult, store: CodeStore, registered: Collection[str]) -> list[str]:
    """Findings about stored kernels that are not compiled any more, of the architectures that were compiled for.

    registered   names of the kernels that exist: one that no item of this run is about says nothing, because another
                 file may compile it
    """
    found = []
    judged = {(result.key.label, entry_of(result.key)) for result in run.code}
    kernels = {result.key.backend for result in run.code}
    for arch in sorted({arch for arch, _ in judged}):
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


def not_compiled(run: RunResult, store: CodeStore) -> list[str]:
    """Findings about stored kernels that could not be compiled here: a gate that lost its compiler gates nothing."""
    lost: Counter[tuple[str, str]] = Counter()
    for result in run.code:
        if result.verdict is not Verdict.UNSUPPORTED:
            continue
        with contextlib.suppress(BaselineError):  # said already, by each of its results
            if store.find(result.key.label, entry_of(result.key)) is not None:
                lost[result.key.label, result.summary] += 1
    return [
        one_line(f"{count} stored code objects for {arch} were not compiled here: {why}", TEXT_LIMIT)
        for (arch, why), count in lost.items()
    ]


def unresolved_code_lines(run: RunResult) -> list[str]:
    """What kept kernels from being gated, the first few of each kind."""
    lines = []
    for verdict in sorted({result.verdict for result in run.code} & UNRESOLVED):
        results = [result for result in run.code if result.verdict is verdict]
        shown = (f"{verdict.value}: {result.key}: {result.summary}" for result in results[:SHOWN])
        lines += [one_line(line, TEXT_LIMIT) for line in shown]
        if len(results) > SHOWN:
            lines.append(f"{verdict.value}: {len(results) - SHOWN} more code objects")
    return lines
