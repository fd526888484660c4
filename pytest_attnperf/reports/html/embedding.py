"""Data and scripts as they stand inside an HTML page: nothing in them can end their element or run.

The same input gives the same bytes: keys keep their order, and compressed data carries no time.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = Any

BASE64_GROWTH = 4 / 3
LINES_PER_FLUSH = 16
FLUSH_BYTES = 64
"""A flush ends in a marker and the last one in a checksum; this is more than both."""

_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def script_json(value: Json) -> str:
    """JSON that may stand in a script element: no `<`, `>` or `&`, and none of the line ends that JSON alone allows."""
    return compact_json(value).translate(_ESCAPES)


def compact_json(value: Json) -> str:
    """JSON without spaces. Raises ValueError for NaN and infinity, which no JSON parser takes."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def round_figure(value: float | None, digits: int = 6) -> float | None:
    """As many digits as a measured figure can have: what is sorted by and drawn, never what is printed."""
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return float(f"{value:.{digits}g}")


def csp_hash(text: str) -> str:
    """The source expression that lets an inline script or style of exactly this text be used."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def pack_json(value: Json) -> str:
    """JSON, compressed (zlib), as base64."""
    return base64.b64encode(zlib.compress(_encode_text(compact_json(value)), 9)).decode()


def pack_lines(lines: Iterable[Sequence[Json]], budget_bytes: int) -> tuple[str, int]:
    """As many JSON lines as fit into `budget_bytes` of base64, from the first on, and how many these are."""
    room = int(budget_bytes / BASE64_GROWTH) - FLUSH_BYTES
    stream, taken, held = zlib.compressobj(9), b"", 0
    for batch in _split_batches(lines, LINES_PER_FLUSH):
        trial = stream.copy()
        text = "".join(f"{compact_json(line)}\n" for line in batch)
        added = trial.compress(_encode_text(text)) + trial.flush(zlib.Z_SYNC_FLUSH)
        if len(taken) + len(added) > room:
            break
        stream, taken, held = trial, taken + added, held + len(batch)
    taken += stream.flush(zlib.Z_FINISH)
    return base64.b64encode(taken).decode(), held


def _encode_text(text: str) -> bytes:
    # Lone surrogates, which a name may hold, are no UTF-8.
    return text.encode("utf-8", errors="replace")


def _split_batches(lines: Iterable[Sequence[Json]], size: int) -> Iterable[list[Sequence[Json]]]:
    batch: list[Sequence[Json]] = []
    for line in lines:
        batch.append(line)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
