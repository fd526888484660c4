"""The end of a run: baselines are merged, what concerns the whole run is found, and results.json is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.plugin.config import RunConfig, run_config
from pytest_attnperf.plugin.exit_status import failures
from pytest_attnperf.plugin.findings import crept, loosened, quarantined_anew, unused_entries
from pytest_attnperf.plugin.merging import merge_recorded
from pytest_attnperf.plugin.selection import asked_suites, is_unfiltered
from pytest_attnperf.plugin.tiers import run_tier
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import RunResult

if TYPE_CHECKING:
    from pytest_attnperf.plugin.cases import CaseCollector
    from pytest_attnperf.plugin.features.code_objects.code_items import CodeCollector


@dataclass(frozen=True)
class Ended:
    """A run as it was written, with its findings.

    failed_by   why it fails as a whole; empty where it does not, or only by its cases
    results     where its results are, as it is shown; '' where they could not be written
    roots       folders of baselines
    """

    run: RunResult
    failed_by: tuple[str, ...]
    results: str
    roots: Sequence[Path]


def end_run(
    config: pytest.Config, run: RunResult, store: BaselineStore, hidden: Sequence[str], *, interrupted: bool
) -> Ended:
    """Write everything that a run leaves; what fails at that fails the run, and keeps nothing else from being written.

    hidden   cases that fail although their test does not
    """
    asked = run_config(config)
    collector: CaseCollector | None = config.pluginmanager.get_plugin("attnperf-cases")
    run = replace(run, tier=run_tier(config), left_to_nightly=collector.left_to_nightly if collector else ())
    findings, problems, merged = [*run.findings, *loosened(run), *crept(run)], list[str](), list[Path]()
    if run.mode == "update" and interrupted:
        findings.append("interrupted: no baseline was written")
    elif run.mode == "update":
        merged, problems = merge_recorded(run, store, asked.accept)
        findings += problems
    elif run.mode == "gate":
        findings += _gate_findings(config, run, store)
    paths = tuple(str(shown_path(asked, path)) for path in merged)
    run = replace(run, findings=tuple(findings), baseline_paths=paths)
    unwritten = _write_results(run, asked)
    failed_by = failures(run, [*problems, *unwritten], hidden, strict=asked.strict)
    return Ended(run, failed_by, "" if unwritten else str(shown_path(asked, results_path(asked))), store.roots)


def results_path(asked: RunConfig) -> Path:
    """Where a run's results go."""
    return asked.root / asked.results


def shown_path(asked: RunConfig, path: Path) -> Path:
    """A path as it is shown and stored: relative to the tree where it lies inside."""
    return path.relative_to(asked.root) if path.is_relative_to(asked.root) else path


def has_profiles(run: RunResult) -> bool:
    """Whether a case was profiled."""
    return any(case.profile is not None for case in run.cases)


def _gate_findings(config: pytest.Config, run: RunResult, store: BaselineStore) -> list[str]:
    """Exemptions that are new; of a run of everything, stored entries that nothing belongs to any more."""
    findings = quarantined_anew(run, store)
    whole = is_unfiltered(config) and run.complete
    findings += unused_entries(run, store, partial(asked_suites, config)) if whole else []
    if not run.code:
        return findings
    from pytest_attnperf.baselines.code_store import CodeStore
    from pytest_attnperf.plugin.features.code_objects.code_closing import not_compiled, unused_code

    collector: CodeCollector | Any = config.pluginmanager.get_plugin("attnperf-code")
    registered = [kernel.name for kernel in collector.registry] if collector else []
    kernels, left = CodeStore(*store.roots), collector.left_to_nightly if collector else 0
    findings += not_compiled(run, kernels)
    return findings + (unused_code(run, kernels, registered) if whole and not left else [])


def _write_results(run: RunResult, asked: RunConfig) -> list[str]:
    """Write results.json where the run leaves any; why it could not be written, which costs nothing that is printed."""
    if run.mode == "check" and not has_profiles(run):
        return []
    path = results_path(asked)
    try:
        json_results.write(path, run)
    except OSError as error:
        return [
            f"{shown_path(asked, path)} was not written ({error.strerror or error}), and is as it was "
            "before: all that is left of the run is printed here; make room, or name another file with "
            "--attnperf-results"
        ]
    return []
