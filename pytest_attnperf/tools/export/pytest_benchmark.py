"""A file as pytest-benchmark's --benchmark-json writes it, which `pytest-benchmark compare` reads.

What the plugin gives pytest-benchmark during a run (`plugin.features.benchmark`) is made here from stored results.
Statistics are pytest-benchmark's own.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from pytest_attnperf.errors import UsageError
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.export.benchmark_rounds import BenchmarkRounds, extra_info, group_of, machine_of, rounds_of
from pytest_attnperf.tools.export.exported_cases import (
    TEXT_LIMIT,
    Exported,
    ExportedCase,
    is_time,
    list_devices,
    make_name,
    require_cases,
)
from pytest_attnperf.tools.export.strict_json import to_json

US_PER_S = 1e6
MACHINE = "attnperf"
"""Key of our part of pytest-benchmark's machine info, as in files that a run writes."""


def render_pytest_benchmark(exported: Exported) -> str:
    """Returns the samples of all cases. Raises UsageError without any case, for cases of several devices, which one
    such file does not tell apart, and without pytest-benchmark."""
    cases = require_cases(exported)
    if len(devices := list_devices(cases)) > 1:
        raise UsageError(
            f"a file of pytest-benchmark is of one machine, and these results are of {', '.join(devices)}; export each "
            "into a file of its own"
        )
    try:
        from pytest_benchmark import __version__ as version
    except ImportError as error:
        raise UsageError(
            "--to pytest-benchmark needs pytest-benchmark, which makes its statistics: pip install "
            "'pytest-attnperf[benchmark]'"
        ) from error
    benchmarks = [_make_benchmark(one, name) for one, name in zip(cases, _choose_names(cases), strict=True)]
    commits = {one.run.commit for one in cases}
    content = {
        "machine_info": {MACHINE: _list_common_machine(cases)},
        "commit_info": {"id": one_line(commits.pop(), TEXT_LIMIT) if len(commits) == 1 else ""},
        "benchmarks": benchmarks,
        "datetime": one_line(max(one.run.started for one in cases), TEXT_LIMIT),
        "version": version,
    }
    return to_json(content)


def _list_common_machine(cases: tuple[ExportedCase, ...]) -> dict[str, str]:
    """Returns the facts of the machine on which all cases agree."""
    first, *others = [machine_of(one.case) for one in cases]
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _choose_names(cases: tuple[ExportedCase, ...]) -> list[str]:
    """Returns a name per case: its test's, under which a run gives it to pytest-benchmark, or its own if two cases are
    of one test."""
    nodes = [make_name(one.case.nodeid) for one in cases]
    shared = Counter(nodes)
    return [node if node and shared[node] == 1 else one.name for node, one in zip(nodes, cases, strict=True)]


def _make_benchmark(exported: ExportedCase, name: str) -> dict[str, Any]:
    from pytest_benchmark.stats import Stats

    case = exported.case
    rounds = _choose_rounds(exported)
    make: Any = Stats  # it has no types
    stats = make()
    for seconds in rounds.seconds:
        stats.update(seconds)
    params = {"backend": case.key.backend, "workload": case.key.workload}
    return {
        "group": group_of(case),
        "name": name.rpartition("::")[2],
        "fullname": name,
        "params": {param: one_line(text, TEXT_LIMIT) for param, text in params.items()},
        "param": None,
        "extra_info": extra_info(case, rounds, exported.run.commit),
        "options": {"timer": "attnperf_device_clock"},
        "stats": {**stats.as_dict(), "data": stats.data, "iterations": 1},
    }


def _choose_rounds(exported: ExportedCase) -> BenchmarkRounds:
    """Returns the stored blocks, or the processes' medians where blocks are not stored or are no times."""
    found = rounds_of(exported.case)
    if found is not None and all(is_time(seconds * US_PER_S) for seconds in found.seconds):
        return found
    medians_us = exported.process_us or (exported.median_us,)
    return BenchmarkRounds(tuple(us / US_PER_S for us in medians_us), "process medians", ())
