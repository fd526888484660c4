"""JUnit XML from stored results, as `pytest --junitxml` writes it from a run; and a case as JUnit properties."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.code import CODE_SUITE, CodeResult
from pytest_attnperf.reports.run.code_objects import code_failure_text, list_code_properties
from pytest_attnperf.reports.run.joined import Joined
from pytest_attnperf.reports.run.overview import STORED, format_comparison_base, format_device
from pytest_attnperf.reports.run.terminal import failure_text
from pytest_attnperf.reports.text.commands import format_repeat_command
from pytest_attnperf.results import CaseResult, RunResult

NAME_LIMIT = 1_000
TEXT_LIMIT = 20_000
OWN_COUNTS = ("attnperf.quarantined", "attnperf.unchanged")
"""Properties of cases that a testsuite counts in its own properties."""

_NOT_XML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, and control characters that it should not."""


@dataclass(frozen=True)
class _Test:
    """A testcase: its node id, time, outcome and properties."""

    nodeid: str
    fallback: str
    seconds: float
    failure: str
    skipped: str
    properties: Sequence[Property]


def render_junit(joined: Joined) -> bytes:
    """Returns JUnit XML: a testsuite per device and suite, a testcase per case and kernel; deterministic.

    A case that fails its test is a failure with the text that the terminal shows. An unsupported case is skipped. Every
    other case passes; only the properties say that it is undecided, as in pytest's own file. A stored baseline is
    skipped, because nothing was measured.
    """
    root = Element("testsuites", name="pytest-attnperf")
    groups: dict[tuple[str, str], list[_Test]] = {}
    for shown in joined.cases:
        groups.setdefault((shown.device, shown.case.key.suite), []).append(_make_case_test(shown.case, shown.run.mode))
    for (device, suite), tests in groups.items():
        runs = [run for run in joined.runs if format_device(run) == device]
        _add_suite(root, f"{suite} on {device}" if device else suite, runs, tests)
    if joined.code:
        _add_suite(root, CODE_SUITE, [run for run in joined.runs if run.code], list(map(_make_code_test, joined.code)))
    _set_counts(root, [test for tests in root for test in tests.iter("testcase")])
    ElementTree.indent(root, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'.encode()


def _make_case_test(case: CaseResult, mode: str) -> _Test:
    reason = "; ".join(case.reasons) or case.summary
    skipped = mode == STORED or case.verdict is Verdict.UNSUPPORTED
    return _Test(
        nodeid=case.nodeid,
        fallback=str(case.key),
        seconds=case.seconds,
        failure=failure_text(case) if case.fails else "",
        skipped=reason if skipped and not case.fails else "",
        properties=list_properties(case),
    )


def _make_code_test(result: CodeResult) -> _Test:
    return _Test(
        nodeid=result.nodeid,
        fallback=str(result.key),
        seconds=result.seconds,
        failure=code_failure_text(result) if result.fails else "",
        skipped=result.summary if result.verdict is Verdict.UNSUPPORTED and not result.fails else "",
        properties=list_code_properties(result),
    )


def _add_suite(root: Element, name: str, runs: Sequence[RunResult], tests: Sequence[_Test]) -> None:
    suite = SubElement(root, "testsuite", name=xml_text(name, NAME_LIMIT))
    started = _find_start_time(runs)
    if started:
        suite.set("timestamp", started)
    known = {
        "version": [run.version for run in runs],
        "mode": [run.mode for run in runs],
        "commit": [run.commit for run in runs],
        "against": [format_comparison_base(run) for run in runs],
        "command": [run.command for run in runs],
    }
    listed = [(f"attnperf.{name}", ", ".join(dict.fromkeys(filter(None, values)))) for name, values in known.items()]
    _add_properties(suite, [*((name, value) for name, value in listed if value), *_list_count_properties(tests)])
    for test in tests:
        _add_test(suite, test)
    _set_counts(suite, list(suite.iter("testcase")))


def _list_count_properties(tests: Sequence[_Test]) -> list[Property]:
    """Returns ('quarantined' or 'unchanged' property, count) of tests that have it: JUnit has no such counts."""
    names = [name for test in tests for name, _ in test.properties]
    return [(name, names.count(name)) for name in OWN_COUNTS if name in names]


def _add_test(suite: Element, test: _Test) -> None:
    classname, name = _split_nodeid(test.nodeid or test.fallback)
    element = SubElement(suite, "testcase", classname=classname, name=name, time=f"{test.seconds:.3f}")
    _add_properties(element, test.properties)
    if test.failure:
        first = test.failure.partition("\n")[0]
        failure = SubElement(element, "failure", message=xml_text(first, NAME_LIMIT))
        failure.text = xml_text(test.failure, TEXT_LIMIT)
    elif test.skipped:
        skipped = SubElement(element, "skipped", type="pytest.skip", message=xml_text(test.skipped, NAME_LIMIT))
        skipped.text = xml_text(test.skipped, TEXT_LIMIT)


def _add_properties(parent: Element, found: Iterable[Property]) -> None:
    listed = SubElement(parent, "properties")
    for name, value in found:
        SubElement(listed, "property", name=name, value=xml_text(str(value), TEXT_LIMIT))


def _set_counts(element: Element, tests: Sequence[Element]) -> None:
    """Sets the counts and the time of a testsuite, or of the root. Errors are 0, because every problem fails a test."""
    element.set("tests", str(len(tests)))
    element.set("failures", str(sum(test.find("failure") is not None for test in tests)))
    element.set("errors", "0")
    element.set("skipped", str(sum(test.find("skipped") is not None for test in tests)))
    element.set("time", f"{sum(float(test.get('time', '0')) for test in tests):.3f}")


def _split_nodeid(nodeid: str) -> tuple[str, str]:
    """Returns (classname, name) as pytest does: 'a/test_b.py::TestC::test_d[e]' -> ('a.test_b.TestC', 'test_d[e]')."""
    path, bracket, parameters = xml_text(nodeid, NAME_LIMIT).partition("[")
    file, *names = path.split("::")
    first = file.replace("/", ".").removesuffix(".py")
    if not names:
        return first, f"{first}{bracket}{parameters}"
    return ".".join([first, *names[:-1]]), f"{names[-1]}{bracket}{parameters}"


def _find_start_time(runs: Sequence[RunResult]) -> str:
    """Returns the earliest start time of the runs in ISO 8601; '' if it is invalid or there are no runs."""
    started = min((run.started for run in runs), default="")
    try:
        return datetime.fromisoformat(started.replace("Z", "+00:00")).isoformat()
    except ValueError:
        return ""


def xml_text(text: str, limit: int) -> str:
    """Returns text cut to `limit` characters; those that XML 1.0 cannot hold become '#x1B', as pytest writes them."""
    shown = text if len(text) <= limit else f"{text[: limit - 3]}..."
    return _NOT_XML.sub(lambda found: f"#x{ord(found.group()):02X}", shown)


Property = tuple[str, str | float | int]


def list_properties(case: CaseResult) -> list[Property]:
    """Returns (name, value) of a case's known figures, unrounded, for JUnit: ('attnperf.median_us', 106.1), ..."""
    low, high = case.interval or (None, None)
    figures = case.figures
    values: dict[str, str | float | int | None] = {
        "verdict": case.verdict.value,
        "summary": case.summary,
        "suite": case.key.suite,
        "backend": case.key.backend,
        "workload": case.key.workload,
        "label": case.key.label or None,
        "median_us": case.median_us,
        "baseline_us": case.baseline_us,
        "ratio": case.ratio,
        "ratio_low": low,
        "ratio_high": high,
        "threshold": case.threshold,
        "processes": len(case.first) + len(case.second) or None,
        "pairs": len(case.pairs) or None,
        "against": case.against or None,
        "flops": figures.flops if figures else None,
        "bytes_min": figures.bytes_min if figures else None,
        "floor_us": case.floor_us,
        "peak_memory_bytes": case.peak_memory_bytes,
        "reproduce": format_repeat_command(case.reproduce, case.nodeid) or None,
        "quarantined": case.quarantined or None,
        "unchanged": "yes" if case.unchanged else None,
    }
    return [(f"attnperf.{name}", value) for name, value in values.items() if value is not None]
