from __future__ import annotations

import json
import math

from pytest_attnperf.cli.profile_output import PROFILE_FORMAT, profile_json
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.profiles import ForwardPasses, Gain, Spread, StatsRow


def test_records_field_by_field_under_a_format() -> None:
    """Programs find the fields of the records and the version of their form."""
    row = StatsRow("api", 'hip"Malloc', Spread(2, 10))
    content = json.loads(profile_json({"host": (row,)}))
    assert content["format"] == PROFILE_FORMAT
    assert content["host"][0]["name"] == 'hip"Malloc'
    assert content["host"][0]["spread"]["median_ns"] is None


def test_a_gain_without_limit_is_a_word() -> None:
    """JSON has no infinity: the text stays JSON that every parser reads."""
    content = json.loads(profile_json({"gain": Gain("all", 1.0, math.inf)}), parse_constant=lambda name: 1 / 0)
    assert content["gain"]["limit"] == "Infinity"


def test_a_name_repaints_nothing() -> None:
    """C1 control letters, DEL and what turns the direction of writing are escapes in the JSON."""
    text = profile_json({"host": (StatsRow("api", "a\x9b2J\x7f\u202e", Spread(2, 10)),)})
    assert r"a\u009b2J\u007f\u202e" in text


def test_a_note_is_its_text() -> None:
    """This form has no kinds: what is told of copies stands beside what is told of kernels."""
    odd = (Note(NoteKind.COPIES, "copies: 3 calls do not divide by 2 passes"), "a: 3 calls do not divide by 2 passes")
    content = json.loads(profile_json({"passes": ForwardPasses(2, "how", odd=odd)}))
    assert content["passes"]["odd"] == [str(line) for line in odd]
