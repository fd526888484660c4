"""Says in what two recordings of one case differ, so that their processes are not of one thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_attnperf.baselines.schema import to_plain
from pytest_attnperf.correctness.digest import select_agreed
from pytest_attnperf.correctness.what_ran import list_differences
from pytest_attnperf.gate.comparable import ABSENT, list_config_changes, list_truth_changes
from pytest_attnperf.records import Tolerance
from pytest_attnperf.results import CaseResult


def list_disagreements(here: CaseResult, there: CaseResult) -> list[str]:
    """Returns all that keeps two recordings of a case out of one entry, as texts: 'torch: 2.11.0 here, 2.10.0 there';
    [] if nothing does. Both must be timed, of one commit, and their policies as `Policy.to_record` gives them.

    Fields of the fingerprint that only name the software count, too. An entry has one of each, and a slowdown under
    another one is ENVIRONMENT: an entry of two drivers could fail no run of one of them.
    """
    assert here.fingerprint is not None
    assert there.fingerprint is not None
    pairs: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = [
        ("", here.fingerprint.must_match, there.fingerprint.must_match),
        ("", here.fingerprint.named, there.fingerprint.named),
        ("workload ", _describe_workload(here), _describe_workload(there)),
        ("policy ", here.policy, there.policy),
        ("limit of cost ", here.cost_limits, there.cost_limits),
        ("", _describe_measuring(here), _describe_measuring(there)),
    ]
    found = [text for what, ours, theirs in pairs for text in _list_value_changes(what, ours, theirs)]
    found += list_config_changes(there.config, here.config, other="there")
    found += [f"launches, there -> here: {text}" for text in list_differences(here.launches, there.launches)]
    return found + _list_truth_names(here, there)


def _describe_workload(case: CaseResult) -> dict[str, Any]:
    assert case.figures is not None
    values: dict[str, Any] = to_plain(case.figures)
    return {**values.pop("definition"), **values}


def _describe_measuring(case: CaseResult) -> dict[str, str]:
    """Returns the timer, settings and tolerances of the case's processes and proofs, and the id of its sources."""
    return {
        "timer": ", ".join(sorted({process.timer for process in case.first})),
        "settings of torch": ", ".join(sorted({process.settings for process in case.first})),
        "tolerance": ", ".join(sorted({_format_tolerance(check.tolerance) for check in case.checks})),
        "source_id": case.source_id,
    }


def _format_tolerance(tolerance: Tolerance) -> str:
    return " ".join([f"{tolerance.multiplier:g}", *(f"{name} {own:g}" for name, own in tolerance.outputs)])


def _list_value_changes(what: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [
        f"{what}{name}: {_format_value(ours.get(name, ABSENT))} here, {_format_value(theirs.get(name, ABSENT))} there"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name, ABSENT) != theirs.get(name, ABSENT)
    ]


def _format_value(value: Any) -> str:
    return "none" if value in ("", [], None) else str(value)


def _list_truth_names(here: CaseResult, there: CaseResult) -> list[str]:
    ours, theirs = (select_agreed(check.truth for check in case.checks) for case in (here, there))
    names = [name for name in ours if list_truth_changes({name: ours[name]}, theirs)]
    return [f"the same seed gives other values here and there: {', '.join(names)}"] if names else []
