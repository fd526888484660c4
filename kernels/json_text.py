"""Reads JSON files strictly, and finds the position of a value in the text, so that only this value is replaced.

A file with invalid JSON (NaN, duplicate keys), or one that would exhaust the reader, is refused. Nothing in it is
executed or opened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

BYTES_MAX = 1 << 20
"""Configuration files have some 10,000 bytes."""

Span = tuple[int, int]
"""(start, end) of a value in a text; end is the index after it."""

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def read_json(path: Path, error: Callable[[str], Exception]) -> tuple[str, Any]:
    """Returns a JSON file's text and its parsed content. For a file that cannot be read, is invalid or has over
    BYTES_MAX bytes, raises the exception that `error` makes from a message naming the file."""
    try:
        with path.open("rb") as stream:
            data = stream.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise error(f"{path}: has more than {BYTES_MAX} bytes; no configuration file is that long")
        # Nesting that exhausts the stack counts as unreadable.
        return (text := data.decode("utf-8")), parse_json(text)
    except (OSError, ValueError, RecursionError) as caught:
        raise error(f"{path}: cannot be read as JSON ({caught}); restore it or write it anew") from caught


def parse_json(text: str) -> Any:
    """Returns the parsed content. Raises ValueError for invalid JSON, NaN, infinities and duplicate keys, and
    RecursionError for nesting that is too deep."""
    return json.loads(text, object_pairs_hook=_require_unique, parse_constant=_refuse_constant)


def find_members(text: str, start: int = 0) -> dict[str, Span]:
    """Returns key -> (start, end) in the text of that key's value, for the object that begins at `start`; `parse_json`
    must have accepted the text."""
    return dict(_walk_values(text, start, keyed=True))


def find_elements(text: str, start: int) -> list[Span]:
    """Returns (start, end) in the text of each element of the list that begins at `start`; `parse_json` must have
    accepted the text."""
    return [span for _, span in _walk_values(text, start, keyed=False)]


def find_start(text: str) -> int:
    """Returns the index in the text at which the outermost JSON value begins, after leading white space."""
    return _after_space(text, 0)


def _walk_values(text: str, start: int, *, keyed: bool) -> Iterator[tuple[str, Span]]:
    at, key = _after_space(text, start + 1), ""
    if text[at] in "]}":
        return
    while True:
        if keyed:
            key, at = _DECODER.raw_decode(text, at)
            at = _after_space(text, _after_space(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        yield key, (at, end)
        at = _after_space(text, end)
        if text[at] != ",":
            return
        at = _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _require_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise ValueError(f"{twice!r} is given twice")
    return held


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
