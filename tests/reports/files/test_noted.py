"""Notes keep their kinds in results files, journals, and between xdist's processes; plain ones are texts as ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.notes import Note, NoteKind, kind_of
from pytest_attnperf.reports.files.json_results import ResultsFileError, decode, encode
from pytest_attnperf.reports.files.noted import from_values, to_values
from pytest_attnperf.results import CaseResult, RunResult

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]

PATH = Note(NoteKind.OTHER_PATH, "another path ran: ck", "ck")
NOTES = ("plain", Note(NoteKind.CREPT, "crept"), Note(NoteKind.PLAIN, "plain, too"))
CODE = CodeResult(CaseKey("code_objects", "k", "c", "gfx942"), "n", Verdict.SAME, "same", notes=NOTES)


def kinds(texts: tuple[str, ...]) -> list[NoteKind]:
    """The kind of each."""
    return [kind_of(text) for text in texts]


def noted(case: CaseFactory, run: RunFactory) -> RunResult:
    """A run with kinds wherever there may be some."""
    made = run(case(reasons=(PATH,), notes=NOTES), code=(CODE,), notes=(Note(NoteKind.CANDIDATE, "c"),))
    return replace(made, findings=(Note(NoteKind.MISSING_SHARDS, "one is missing"), "crept: x"))


def test_kinds_are_read_as_they_were_written(case: CaseFactory, run: RunFactory) -> None:
    """Of reasons, notes and findings, of a case, of a kernel and of the run."""
    before = noted(case, run)
    after = decode(encode(before), "r.json")
    assert after == before
    [one], [code] = after.cases, after.code
    assert (kinds(one.reasons), kinds(one.notes)) == ([NoteKind.OTHER_PATH], kinds(NOTES))
    assert isinstance(one.reasons[0], Note)
    assert one.reasons[0].about == "ck"
    assert kinds(code.notes) == kinds(NOTES)
    assert (kinds(after.notes), kinds(after.findings)) == (
        [NoteKind.CANDIDATE], [NoteKind.MISSING_SHARDS, NoteKind.PLAIN]
    )  # fmt: skip


def test_a_plain_note_is_a_text_in_the_file(case: CaseFactory, run: RunFactory) -> None:
    """And one of a kind an object."""
    [one] = json.loads(encode(noted(case, run)))["cases"]
    assert one["notes"] == ["plain", {"kind": "crept", "text": "crept"}, "plain, too"]
    assert one["reasons"] == [{"kind": "other path", "text": "another path ran: ck", "about": "ck"}]


def test_words_have_no_kind_in_a_file_of_now(case: CaseFactory, run: RunFactory) -> None:
    """Only files of before are told by their texts."""
    after = decode(encode(run(case(notes=("crept: 2 us",)))), "r.json")
    assert kinds(after.cases[0].notes) == [NoteKind.PLAIN]


def test_a_kind_of_a_later_version_is_read_as_a_text(case: CaseFactory, run: RunFactory) -> None:
    """New kinds come without a new schema."""
    text = encode(run(case(reasons=(PATH,)))).replace(b'"other path"', b'"not yet thought of"')
    [reason] = decode(text, "r.json").cases[0].reasons
    assert (reason, type(reason)) == ("another path ran: ck", str)


@pytest.mark.parametrize("odd", [{"kind": "crept"}, {"kind": 1, "text": "x"}, {"kind": "crept", "text": 1}, [], 1])
def test_a_malformed_note_is_refused(case: CaseFactory, run: RunFactory, odd: Any) -> None:
    """By the place where it stands."""
    values = json.loads(encode(run(case(notes=("x",)))))
    values["cases"][0]["notes"] = [odd]
    with pytest.raises(ResultsFileError, match=r"cases\[0\]\.notes\[0\]|cases\[\.\.\.\]\.notes"):
        decode(json.dumps(values).encode(), "r.json")


def test_kinds_reach_the_controller_of_xdist(case: CaseFactory) -> None:
    """As builtins, which is what xdist hands on; what is handed on stays as it is."""
    before = case(reasons=(PATH,), notes=NOTES)
    values = to_values(before)
    for _ in range(2):
        again = from_values(values, CaseResult)
        assert (again, kinds(again.reasons), kinds(again.notes)) == (before, kinds(before.reasons), kinds(NOTES))
    code = from_values(to_values(CODE), CodeResult)
    assert (code, kinds(code.notes)) == (CODE, kinds(NOTES))
