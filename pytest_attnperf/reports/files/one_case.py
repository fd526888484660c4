"""Reads one case of a results file without decoding the others: first all names, then the chosen case.

A file of 10,000 cases takes most of a second to decode; their names and one full case take a fraction of that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeVar

import msgspec

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.records.unique_keys import require_unique_keys
from pytest_attnperf.reports.files.json_results import TWICE, ResultsFileError, decode, give_kinds
from pytest_attnperf.reports.run.overview import rank_verdict
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult, RunResult

Kind = Literal["cases", "code"]
KINDS: tuple[Kind, ...] = ("cases", "code")
"""Fields of a run that hold results with a verdict."""

LISTED = 20
NEAREST = 5
COMPARED_MOST = 200
"""Most names that are compared letter by letter: those that share most words with the typed text."""

NAME_LIMIT = 400
_WORDS = re.compile(r"[^A-Za-z0-9]+")
_Read = TypeVar("_Read")


class _Named(msgspec.Struct):
    """The fields by which a case or a compiled kernel is found."""

    key: CaseKey
    nodeid: str
    verdict: Verdict
    fails: bool = False
    ratio: float | None = None
    notes: tuple[Any, ...] = ()


@dataclass(frozen=True)
class ResultEntry:
    """One case or compiled kernel of a file; `place` is its index there, and `ratio` new / stored."""

    kind: Kind
    place: int
    key: CaseKey
    nodeid: str
    verdict: Verdict
    fails: bool
    ratio: float | None = None
    timed: bool = True


@dataclass(frozen=True)
class ResultsIndex:
    """A results file of which only the names have been read."""

    where: str
    entries: tuple[ResultEntry, ...]
    _top: dict[str, msgspec.Raw]
    _raw: dict[str, list[msgspec.Raw]]

    @property
    def timed_count(self) -> int:
        """Number of timed cases in the file, which share the run's false-alarm rate; at least 1."""
        return max(1, sum(entry.kind == "cases" and entry.timed for entry in self.entries))

    def run_with(self, entry: ResultEntry) -> RunResult:
        """Returns the file's run with only the result `entry`. Raises ResultsFileError if it is invalid."""
        held = {kind: [raw[entry.place]] if kind == entry.kind else [] for kind, raw in self._raw.items()}
        alone = {**self._top, **{kind: msgspec.Raw(msgspec.json.encode(raw)) for kind, raw in held.items()}}
        return decode(msgspec.json.encode(alone), self.where)

    def choose_worst(self) -> ResultEntry:
        """Returns the worst result: failing first, by verdict, then the slowest. Raises UsageError without results."""
        if not self.entries:
            raise UsageError(
                f"{self.where} holds no case: nothing was selected, or the run ended before any was judged"
            )
        return min(self.entries, key=lambda e: (not e.fails, rank_verdict(e.verdict), -(e.ratio or 0.0), str(e.key)))

    def find(self, what: str) -> ResultEntry:
        """Returns the result with this node id, key, key without suite, or a part of these that only one has. Raises
        UsageError, listing candidates, if several or none match."""
        exact = [e for e in self.entries if what in (e.nodeid, str(e.key), e.key.entry)]
        found = exact or [e for e in self.entries if what in e.nodeid or what in str(e.key)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(
                f"{_quote_name(what)} is part of {len(found)} cases of {self.where}; name "
                f"one:\n{_format_entries(found)}"
            )
        raise UsageError(self._describe_no_match(what))

    def _describe_no_match(self, what: str) -> str:
        said = f"{self.where} has no case {_quote_name(what)}"
        names = find_nearest_names(what, [name for e in self.entries for name in (str(e.key), e.nodeid)])
        if names:
            return "\n".join(
                [f"{said}; the nearest names are:", *(f"  {one_line(name, NAME_LIMIT)}" for name in names)]
            )
        backends = Counter(f"{e.key.suite}/{e.key.backend}" for e in self.entries)
        listed = ", ".join(f"{one_line(name)} ({count})" for name, count in backends.most_common(LISTED))
        return f"{said}; it holds {len(self.entries)}: {listed or 'none'}"


def read_index(data: bytes, where: str) -> ResultsIndex:
    """Reads the names of all results in a file, but decodes none of them. Raises ResultsFileError for another file."""
    top = _decode_part(data, dict[str, msgspec.Raw], where)
    require_unique_keys(data, where, ResultsFileError, TWICE)
    decode(msgspec.json.encode({**top, **{kind: msgspec.Raw(b"[]") for kind in KINDS if kind in top}}), where)
    schema = msgspec.json.decode(top["schema"], type=int)
    raw: dict[str, list[msgspec.Raw]] = {}
    entries: list[ResultEntry] = []
    for kind in KINDS:
        held = top.get(kind, msgspec.Raw(b"[]"))
        raw[kind] = _decode_part(held, list[msgspec.Raw], where)
        named = _decode_part(held, list[_Named], where)
        entries += [_make_entry(kind, place, one, schema) for place, one in enumerate(named)]
    return ResultsIndex(where, tuple(entries), top, raw)


def find_nearest_names(what: str, names: Sequence[str]) -> list[str]:
    """Returns at most NEAREST of `names` that are spelled like `what`, the nearest first; [] if none is."""
    wanted = set(_WORDS.split(what))
    known = sorted(dict.fromkeys(names), key=lambda name: -len(wanted & set(_WORDS.split(name))))
    return get_close_matches(what, known[:COMPARED_MOST], NEAREST, 0.5)


def _make_entry(kind: Kind, place: int, one: _Named, schema: int) -> ResultEntry:
    notes = {"notes": one.notes}
    give_kinds(notes, schema)
    untimed = filter_notes(notes["notes"], NoteKind.PROVEN_ONLY)
    return ResultEntry(kind, place, one.key, one.nodeid, one.verdict, one.fails, one.ratio, timed=not untimed)


def _decode_part(data: bytes | msgspec.Raw, kind: type[_Read], where: str) -> _Read:
    """Returns JSON decoded as `kind`. Raises ResultsFileError naming the file `where` if it has another form."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        text = one_line(str(error), NAME_LIMIT) if data else "it is empty"
        raise ResultsFileError(
            f"{where} is not a results file of this version: {text}; make it again with pytest --attnperf"
        ) from error


def _format_entries(entries: Sequence[ResultEntry]) -> str:
    lines = [f"  {entry.verdict.value:12} {one_line(str(entry.key), NAME_LIMIT)}" for entry in entries[:LISTED]]
    more = len(entries) - LISTED
    return "\n".join([*lines, f"  ... and {more} more"] if more > 0 else lines)


def _quote_name(what: str) -> str:
    return repr(one_line(what, NAME_LIMIT))


def find_single_result(run: RunResult) -> CaseResult | CodeResult:
    """Returns the only case or compiled kernel of a run made by `ResultsIndex.run_with`."""
    held: tuple[CaseResult | CodeResult, ...] = (*run.cases, *run.code)
    return held[0]
