"""What a recording run leaves: every RECORDED case and kernel in its file of baselines."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.baselines.writing import NewEntry, merge_entries, new_entry
from pytest_attnperf.plugin.problems import noted
from pytest_attnperf.records import Verdict
from pytest_attnperf.results import RunResult


def merge_recorded(run: RunResult, store: BaselineStore, accepted: str) -> tuple[list[Path], list[str]]:
    """Merge cases and kernels; (paths written, problems).

    accepted   why a slowdown since the creep guard's anchor is wanted; '' leaves the anchors where they are
    """
    written, problems = _merge_cases(run, store, accepted)
    if run.code:
        from pytest_attnperf.baselines.code_store import CodeStore
        from pytest_attnperf.plugin.features.code_objects.code_closing import merge_code

        more_written, more_problems = merge_code(run, CodeStore(*store.roots))
        return [*written, *more_written], [*problems, *more_problems]
    return written, problems


def _merge_cases(run: RunResult, store: BaselineStore, accepted: str) -> tuple[list[Path], list[str]]:
    groups: dict[tuple[str, str, str], dict[str, NewEntry]] = defaultdict(dict)
    for case in run.cases:
        if case.verdict is Verdict.RECORDED and case.fingerprint is not None:
            must = case.fingerprint.must_match
            groups[must["arch"], must["product"], case.key.suite][case.key.entry] = new_entry(
                case, run.commit, accepted
            )
    paths: list[Path] = []
    problems: list[str] = []
    for (arch, product, suite), entries in sorted(groups.items()):
        with noted(problems):
            paths.append(merge_entries(store, store.roots[0], arch, product, suite, entries))
    return paths, problems
