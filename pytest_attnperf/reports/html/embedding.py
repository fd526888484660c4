"""Data and scripts in a form that is safe inside an HTML page: they cannot end their element, and data cannot run.

The same input gives the same bytes: keys keep their order, and compressed data holds no time.
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
"""Room for the marker after a flush and the checksum after the last one; more than both need."""

_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def script_json(value: Json) -> str:
    """Returns JSON that cannot end or break a script element: '<', '>', '&' and unusual line ends are escaped."""
    return compact_json(value).translate(_ESCAPES)


def compact_json(value: Json) -> str:
    """Returns JSON without spaces. Raises ValueError for NaN and infinity, which are not JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def round_figure(value: float | None, digits: int = 6) -> float | None:
    """Returns a figure with `digits` significant digits, to sort and draw by, never to print; None if not finite."""
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return float(f"{value:.{digits}g}")


def csp_hash(text: str) -> str:
    """Returns "'sha256-...'", with which a content security policy allows an inline script or style of this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def pack_json(value: Json) -> str:
    """Returns the value as JSON, compressed by zlib and encoded as base64, for the page's script to unpack."""
    return base64.b64encode(zlib.compress(_encode_text(compact_json(value)), 9)).decode()


def pack_lines(lines: Iterable[Sequence[Json]], budget_bytes: int) -> tuple[str, int]:
    """Returns (base64 of the first JSON lines that fit into `budget_bytes`, compressed by zlib; their number)."""
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
    # A name may hold lone surrogates, which UTF-8 cannot encode.
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
