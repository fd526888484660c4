"""Sentences of a result with what they are about as data: whoever acts on one asks for its kind, never for its words.

A plain note is a `str` like any other. A `Note` is one, too, so that it is printed, joined and compared as its text.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any


class NoteKind(str, enum.Enum):
    """What a note, a reason, a finding or an error is about, where something depends on it. Files hold the values."""

    PLAIN = "plain"

    # Notes of a case: what has changed beside its time.
    LOOSENED = "loosened"
    CREPT = "crept"
    DRIFTED = "configuration drifted"
    CHANGED = "what ran changed"
    CHANGED_SIDE = "what ran differs from the base side"
    UNCHANGED = "machine code unchanged"
    SAME_LAUNCHES = "launches unchanged"
    SAME_FILES = "files unchanged"
    RELEASES = "two releases"

    # Notes of a case: what it was held against, and what was left out.
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

    # Reasons: what a time, a file or a process is not believed for.
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

    # Reasons: what decided, or kept something from being decided.
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
    """A sentence of a kind. `about` is the part of it that a reader needs without the words around it, else ''."""

    kind: NoteKind
    about: str

    def __new__(cls, kind: NoteKind, text: str, about: str = "") -> Note:
        """The note; nothing of it can be changed."""
        note = super().__new__(cls, text)
        note.__dict__.update(kind=kind, about=str(about))
        return note

    @property
    def text(self) -> str:
        """The sentence alone."""
        return str(self)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a note cannot be changed: {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Note, (self.kind, str(self), self.about)


def kind_of(text: str) -> NoteKind:
    """The kind of a note; plain where it is a text alone."""
    return text.kind if isinstance(text, Note) else NoteKind.PLAIN


def reword_note(note: str, text: str) -> str:
    """The note in other words."""
    return Note(note.kind, text, note.about) if isinstance(note, Note) else text


def filter_notes(texts: Iterable[str], *kinds: NoteKind) -> list[Note]:
    """Those of these kinds, in their order."""
    return [text for text in texts if isinstance(text, Note) and text.kind in kinds]
