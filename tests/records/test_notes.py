"""A note is its text, and carries what it is about."""

from __future__ import annotations

import copy
import pickle

import pytest

from pytest_attnperf.records.notes import Note, NoteKind, filter_notes, kind_of, reword_note

CREPT = Note(NoteKind.CREPT, "slower step by step", "step by step")


def test_a_note_is_printed_and_compared_as_its_text() -> None:
    """Whoever prints, joins or looks a text up needs to know nothing of kinds."""
    assert f"a: {CREPT}" == "a: slower step by step"
    assert (CREPT, {CREPT: 1}["slower step by step"]) == ("slower step by step", 1)
    assert type(CREPT.text) is str


def test_notes_are_chosen_by_their_kinds() -> None:
    """A plain text is of none, whatever it says."""
    texts = ("slower step by step", CREPT, Note(NoteKind.LOCAL, "here"))
    assert [kind_of(text) for text in texts] == [NoteKind.PLAIN, NoteKind.CREPT, NoteKind.LOCAL]
    assert filter_notes(texts, NoteKind.CREPT, NoteKind.LOCAL) == [CREPT, "here"]
    assert filter_notes(texts, NoteKind.FOREIGN) == []


def test_a_note_cannot_be_changed() -> None:
    """Neither its kind nor what it is about."""
    with pytest.raises(AttributeError, match="cannot be changed: kind"):
        CREPT.kind = NoteKind.PLAIN


@pytest.mark.parametrize("again", [copy.deepcopy(CREPT), pickle.loads(pickle.dumps(CREPT))])
def test_a_copy_has_its_kind(again: Note) -> None:
    """`dataclasses.asdict` copies what a record holds."""
    assert (again, again.kind, again.about) == (CREPT, NoteKind.CREPT, "step by step")


def test_other_words_keep_the_kind() -> None:
    """And a plain text stays plain."""
    note = reword_note(CREPT, "worse and worse")
    assert (note, kind_of(note)) == ("worse and worse", NoteKind.CREPT)
    assert kind_of(reword_note("plain", "other")) is NoteKind.PLAIN
