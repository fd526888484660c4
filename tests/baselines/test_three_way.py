"""Two edits of a baseline file brought together: against a model of dictionaries, and as text with markers."""

from __future__ import annotations

import copy
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.baselines.schema import OPEN_LEVELS
from pytest_attnperf.baselines.three_way import MergedFile, merge_both_sides, merge_three_way, render_merged
from pytest_attnperf.errors import BaselineError

SIDES = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3), max_size=4)


def entry(value: int, **more: Any) -> dict[str, Any]:
    """An entry whose content is one number, recorded on that day."""
    return {"value": value, "environment": f"env{value}", "policy": "p", "recorded": f"2026-01-0{value}", **more}


def file_of(values: dict[str, int]) -> dict[str, Any]:
    """A file of such entries."""
    return {
        "schema": 1,
        "suite": "prefill",
        "environments": {f"env{value}": {"named": value} for value in values.values()},
        "policies": {"p": {}},
        "entries": {key: entry(value) for key, value in values.items()},
        "canaries": {},
    }


def resolved(text: bytes, side: int) -> dict[str, Any]:
    """What is left of the text when every conflict is settled for one side: 1 is ours, 2 theirs."""
    marked = re.compile(r"<<<<<<< ours\n(.*?)=======\n(.*?)>>>>>>> theirs\n", re.DOTALL)
    loaded: dict[str, Any] = msgspec.json.decode(marked.sub(rf"\{side}", text.decode()))
    return loaded


@settings(max_examples=80, deadline=None)
@given(base=SIDES, ours=SIDES, theirs=SIDES)
def test_no_entry_is_lost(base: dict[str, int], ours: dict[str, int], theirs: dict[str, int]) -> None:
    """Of any three files: a change of one side is there, one of both is a conflict, and ids that are named are known.

    Whichever side every conflict is settled for, the text is JSON and holds that side's entries in conflict.
    """
    merged = merge_three_way(file_of(base), file_of(ours), file_of(theirs))
    in_conflict = {
        key for key in ours.keys() | theirs.keys()
        if len({ours.get(key), theirs.get(key)}) == 2 and base.get(key) not in (ours.get(key), theirs.get(key))
    }  # fmt: skip
    assert {one.key for one in merged.conflicts} == in_conflict
    model = {}
    for key in (ours.keys() | theirs.keys()) - in_conflict:
        value = theirs.get(key) if ours.get(key) == base.get(key) else ours.get(key)
        if value is not None:
            model[key] = entry(value)
    assert merged.file["entries"] == model
    for side, own in ((1, ours), (2, theirs)):
        whole = resolved(render_merged(merged, OPEN_LEVELS), side)
        assert whole["entries"] == model | {key: entry(own[key]) for key in in_conflict & own.keys()}
        assert {one["environment"] for one in whole["entries"].values()} <= whole["environments"].keys()


@pytest.mark.parametrize(("prefer", "value"), [("ours", 1), ("theirs", 3), ("newer", 3)])
def test_a_preference_settles_every_conflict(prefer: str, value: int) -> None:
    """Both sides recorded a case again: the side that is preferred is taken, or the later of both."""
    entries, conflicts = merge_both_sides({"a": entry(2)}, {"a": entry(1)}, {"a": entry(3)}, prefer)
    assert (entries, conflicts) == ({"a": entry(value)}, [])


def test_newer_counts_acceptances_and_never_takes_away() -> None:
    """An entry accepted later is newer than one recorded later; one against none is kept; of one day none is newer."""
    accepted = entry(1, accepted=[{"date": "2026-02-01"}])
    both = ({"a": accepted, "b": entry(1)}, {"a": entry(3)})
    assert merge_both_sides({"b": entry(2)}, *both, "newer")[0] == {"a": accepted, "b": entry(1)}
    kernel = entry(1, accepted="spills are wanted")
    _, conflicts = merge_both_sides({}, {"a": kernel}, {"a": entry(1)}, "newer")
    assert [one.key for one in conflicts] == ["a"]


def test_a_summary_line_is_no_change() -> None:
    """A side that only wrote the summary line does not stand against one that changed the entry; alone it is kept."""
    told = entry(1, summary="1 us")
    assert merge_both_sides({"a": entry(1)}, {"a": told}, {"a": entry(2)}) == ({"a": entry(2)}, [])
    for ours, theirs in ((told, entry(1)), (entry(1), told)):
        assert merge_both_sides({"a": entry(1)}, {"a": ours}, {"a": theirs}) == ({"a": told}, [])


def test_what_nobody_names_is_left_out_and_an_anchors_is_kept() -> None:
    """Environments of entries, of anchors and of both sides of a conflict stay; others go."""
    base, ours, theirs = file_of({"a": 1}), file_of({"a": 2}), file_of({"a": 3})
    theirs["entries"]["b"] = entry(3, anchor={"environment": "env9"})
    theirs["environments"]["env9"] = {}
    theirs["environments"]["nobody"] = {}
    del ours["canaries"]
    merged = merge_three_way(base, ours, theirs)
    assert list(merged.file["environments"]) == ["env2", "env3", "env9"]
    assert merged.file["canaries"] == {}
    assert merged == merge_three_way(base, copy.deepcopy(ours), copy.deepcopy(theirs))


def test_markers_stand_around_the_entries_in_conflict_alone() -> None:
    """A reviewer sees both versions of the case between git's markers, and nothing else twice."""
    merged = merge_three_way(file_of({"a": 1, "b": 1}), file_of({"a": 2, "b": 1}), file_of({"a": 3, "b": 1}))
    lines = render_merged(merged, OPEN_LEVELS).decode().splitlines()
    begin, middle, end = (lines.index(mark) for mark in ("<<<<<<< ours", "=======", ">>>>>>> theirs"))
    assert lines[begin - 1] == '  "entries": {'
    assert [lines[begin + 2], lines[middle + 2]] == ['      "value": 2,', '      "value": 3,']
    assert (middle - begin, end - middle) == (7, 7)
    assert lines[end + 1] == '    "b": {'


def test_files_of_two_suites_are_not_merged() -> None:
    """What is no two versions of one file is an error naming the field."""
    with pytest.raises(BaselineError, match="field `suite` is 'prefill' on our side and 'decode' on theirs"):
        merge_three_way({}, file_of({}), {**file_of({}), "suite": "decode"})
    assert isinstance(merge_three_way({}, file_of({}), file_of({})), MergedFile)
