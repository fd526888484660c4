"""Sentences of a result with their topic as data: code that depends on one checks its kind, never its words.

A plain note is a `str`. A `Note` is a `str`, too, so that it is printed, joined and compared as its text.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any


class NoteKind(str, enum.Enum):
    """The topic of a note, a reason, a finding or an error, where something depends on it. Files store the values."""

    PLAIN = "plain"

    # Notes of a case: what has changed beside its time.
    LOOSENED = "loosened"
    CREPT = "crept"
    DRIFTED = "configuration drifted"
    CHANGED = "what ran changed"
    CHANGED_SIDE = "what ran differs from the base side"
    COST_GREW = "cost grew"
    UNCHANGED = "machine code unchanged"
    SAME_LAUNCHES = "launches unchanged"
    SAME_FILES = "files unchanged"
    RELEASES = "two releases"

    # Notes of a case: what it was compared with, and what was left out.
    LOCAL = "local baseline"
    LOCAL_NEW = "local baseline of this run"
    NEAR_FLOOR = "near the floor"
    NEEDLESS = "needless quarantine"
    NOT_PROFILED = "not profiled"
    NO_STAGES = "stages not timed"
    PROVEN_ONLY = "proven only"

    # Notes and findings of a run, notes of a history, of a profile.
    CANDIDATE = "candidate"
    OTHER_COMMIT = "other commit"
    MIXED_SHARDS = "mixed shards"
    MISSING_SHARDS = "missing shards"
    TOO_FEW_POINTS = "too few points"
    COPIES = "copies and fills"

    # Reasons: why nothing can be compared.
    FOREIGN = "foreign code"
    OTHER_PRODUCT = "other product"
    OTHER_PATH = "other path"
    MIXED_PATHS = "mixed paths"
    WORKLOAD = "workload differs"
    PROCESSES = "too few processes"
    MACHINE = "machine differs"
    BASE_SIDE = "base side"

    # Reasons: why a time, a file or a process is not trusted.
    BELOW_FLOOR = "below the floor"
    REMEMBERS = "remembers results"
    NO_STORE = "no store"
    NO_MATRIX = "no matrix instructions"
    CONTRADICTED = "contradicted"
    OUT_OF_MEMORY = "out of memory"
    NO_ANSWER = "no answer"
    NOT_READ = "request not read"
    KILLED = "killed"
    DIED = "died"

    # Reasons: what decided, or prevented a decision.
    EXPIRED = "quarantine expired"
    GONE = "timed before"
    BUDGET = "budget ended"
    TOOLCHAIN = "toolchain changed"
    LIMIT = "limit"
    NOISE = "noise"
    CARDS = "cards"
    CYCLES = "cycles"
    CANARY = "canary"
    FIRST_LOOK = "first look"
    SOURCES = "sources"
    PINNED = "stored choice"
    DETECTS = "detects"


class Note(str):
    """A sentence with its kind. `about` is the part that a reader needs without the rest of the sentence, else ''."""

    kind: NoteKind
    about: str

    def __new__(cls, kind: NoteKind, text: str, about: str = "") -> Note:
        """Makes a note with this kind, text and `about`; none of them can be changed afterwards."""
        note = super().__new__(cls, text)
        note.__dict__.update(kind=kind, about=str(about))
        return note

    @property
    def text(self) -> str:
        """The note's sentence as a plain `str`, without its kind."""
        return str(self)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a note cannot be changed: {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Note, (self.kind, str(self), self.about)


def kind_of(text: str) -> NoteKind:
    """Returns the kind of a `Note`; NoteKind.PLAIN for a plain `str`."""
    return text.kind if isinstance(text, Note) else NoteKind.PLAIN


def reword_note(note: str, text: str) -> str:
    """Returns `text` as a note of the same kind and `about`; unchanged if `note` is a plain `str`."""
    return Note(note.kind, text, note.about) if isinstance(note, Note) else text


def filter_notes(texts: Iterable[str], *kinds: NoteKind) -> list[Note]:
    """Returns the notes among `texts` that have one of `kinds`, in their order; leaves out plain strings."""
    return [text for text in texts if isinstance(text, Note) and text.kind in kinds]
