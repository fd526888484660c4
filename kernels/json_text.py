"""JSON files read strictly, and where in their text a value stands, so that one value is replaced and nothing else.

A file that holds what JSON does not (NaN, keys given twice), or that would exhaust the reader, is refused; nothing in
it is executed or opened.
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
"""Where a value begins in a text, and the index after its end."""

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def read_json(path: Path, error: Callable[[str], Exception]) -> tuple[str, Any]:
    """The text of a JSON file and what it holds; `error` makes the exception from a message that names the file."""
    try:
        with path.open("rb") as stream:
            data = stream.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise error(f"{path}: has more than {BYTES_MAX} bytes; no configuration file is that long")
        # A nested value that exhausts the stack is as unreadable as a truncated one.
        return (text := data.decode("utf-8")), parse_json(text)
    except (OSError, ValueError, RecursionError) as caught:
        raise error(f"{path}: cannot be read as JSON ({caught}); restore it or write it anew") from caught


def parse_json(text: str) -> Any:
    """What a JSON text holds. Raises ValueError, also for NaN, infinities and keys given twice, and RecursionError."""
    return json.loads(text, object_pairs_hook=_require_unique, parse_constant=_refuse_constant)


def find_members(text: str, start: int = 0) -> dict[str, Span]:
    """Where the values of the object that begins at `start` stand, by key; the text has been read by `parsed`."""
    return dict(_walk_values(text, start, keyed=True))


def find_elements(text: str, start: int) -> list[Span]:
    """Where the elements of the list that begins at `start` stand."""
    return [span for _, span in _walk_values(text, start, keyed=False)]


def find_start(text: str) -> int:
    """Where the outermost value begins."""
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
