"""Damage done to a sound file, the same for the same seed: bytes, and values of JSON and cells of tables.

Half of what is done to text keeps its form (still JSON, still a table), for what does not parse is refused at the door
and tests nothing behind it.
"""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

Mutation = Callable[[random.Random, bytes, bytes], bytes]
"""(random, file, another file of the same reader) -> damaged file."""

PATHS = ("../../../escaped", "/escaped-absolute", "..", ".", "C:\\escaped", "\\\\host\\share", "a\0b", "~/escaped",
         "file:///escaped", "-rf", "--help", "con", "a/" * 300, "x" * 300)  # fmt: skip
TEXTS = (
    *PATHS,
    "",
    " ",
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m\x85\x7f",
    "\u202egnp.exe",
    "\ud800",
    "\U0010ffff",
    "line\nline\r\n\tend",
    "</script><script>alert(1)</script>",
    "$(touch escaped)`touch escaped`;'\"",
    "{0.__class__}{x!r:>99999999}%s%99999999d",
    "__import__('os').system('touch escaped')",
    "'; DROP TABLE runs; --",
    "=cmd|' /C calc'!A0",
    "NaN",
    "nan",
    "1e999",
    "9" * 400,
    "9" * 5000,
    "0x10",
    "1_000",
    "٣",
    "A" * 100_000,
    "@everyone [x](javascript:alert(1)) <img src=x onerror=alert(1)>",
    "|\n|---|\n```\n<!-- -->",
)
"""What stands in place of a text."""

NUMBERS = (0, -1, 1, 2, 0.0, -0.0, 1e-320, 5e-324, 1e308, -1e308, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1,
           2**64, 10**30, 10**400, float("nan"), float("inf"), float("-inf"), 1e18, 0.1, 4096)  # fmt: skip
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": ""}, [None], {"a": {"b": []}})
CELLS = (*TEXTS[:30], "-1", "0", "1e999", "nan", "inf", "18446744073709551616", "1.5", '"', '""', ",,,", '"a\nb"')


def damaged_json(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """One to three values of a JSON document changed, or its text damaged."""
    if rng.random() < 0.2:
        return damaged_bytes(rng, data, other)
    value = json.loads(data)
    try:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            value = _changed(rng, value, other)
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=rng.choice(((",", ":"), (", ", ": "))))
    except (RecursionError, ValueError):  # nested deep twice, or put into itself
        return damaged_bytes(rng, data, other)
    if rng.random() < 0.05:
        text = _twice(rng, text)
    return text.encode("utf-8", "surrogatepass")


def damaged_lines(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """JSON lines: one of them damaged as JSON, or lines taken away, doubled, exchanged, spliced."""
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    kind = rng.randrange(6)
    if kind < 3:
        lines[at] = damaged_json(rng, lines[at], rng.choice(other.splitlines() or [b"{}"])) + b"\n"
    elif kind == 3:
        lines.insert(rng.randrange(len(lines) + 1), lines[at])
    elif kind == 4:
        del lines[at]
    else:
        return damaged_bytes(rng, data, other)
    return b"".join(lines)


def damaged_table(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A CSV file: cells replaced, columns and rows taken away, doubled or exchanged; or its text damaged."""
    if rng.random() < 0.2:
        return damaged_bytes(rng, data, other)
    rows = [line.split(b",") for line in data.split(b"\n")]
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = 0 if rng.random() < 0.2 else rng.randrange(len(rows))
        cell, kind = rng.randrange(len(rows[at])), rng.randrange(6)
        if kind < 3:
            rows[at][cell] = rng.choice(CELLS).encode("utf-8", "surrogatepass")
        elif kind == 3:
            rows[at].insert(cell, rng.choice(rows[at]))
        elif kind == 4:
            rows[at] = rows[at][:cell] or rows[at]
        else:
            rows.insert(at, list(rng.choice(rows)))
    return b"\n".join(b",".join(row) for row in rows)


def damaged_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Bits flipped, bytes overwritten by extreme integers, cut short, spliced with another file, nested deep."""
    damaged = bytearray(data)
    kind = rng.randrange(9)
    at = rng.randrange(len(damaged)) if damaged else 0
    if kind <= 2:
        for _ in range(rng.choice((1, 2, 8, 64))):
            if damaged:
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    elif kind == 3:
        width = rng.choice("BHIQ")
        extreme = rng.choice((0, 1, 2 ** (8 * struct.calcsize(width)) - 1, 2 ** (8 * struct.calcsize(width) - 1)))
        damaged[at : at + struct.calcsize(width)] = struct.pack(f"<{width}", extreme)
    elif kind == 4:
        del damaged[at:]
    elif kind == 5:
        damaged[at:] = other[rng.randrange(len(other) + 1) :]
    elif kind == 6:
        damaged[at:at] = damaged[at : at + rng.randrange(1, 400)] * rng.choice((1, 2, 50))
    elif kind == 7:
        damaged[at:at] = rng.choice((b"[", b'{"a":', b"(", b"\x91", b"\x81\xa1a")) * rng.choice((100, 2_000, 20_000))
    else:
        damaged[at:at] = rng.choice(
            (b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"9" * 5000, b"NaN", b"1e999")
        )
    return bytes(damaged)


def _changed(rng: random.Random, value: Any, other: bytes) -> Any:
    """The document with one value changed, at any depth; the outermost one in few cases."""
    spots: list[tuple[Any, Any]] = []
    _collect(value, spots)
    if not spots or rng.random() < 0.01:
        return _instead(rng, value, other)
    holder, key = rng.choice(spots)
    kind = rng.randrange(10)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice((*TEXTS, *(name for name in holder if isinstance(name, str))))] = holder.pop(key)
    elif kind == 1:
        holder.insert(key, holder[key])
    elif kind == 2:
        source, from_key = rng.choice(spots)
        holder[key] = copy.deepcopy(source[from_key])
    else:
        holder[key] = _instead(rng, holder[key], other)
    return value


def _collect(value: Any, spots: list[tuple[Any, Any]]) -> None:
    keys: Sequence[Any] = (
        list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        spots.append((value, key))
        _collect(value[key], spots)


def _instead(rng: random.Random, value: Any, other: bytes) -> Any:
    """Another value: mostly of the same type, which gets furthest."""
    kind = rng.random()
    if isinstance(value, str) and kind < 0.7:
        return rng.choice(TEXTS)
    if isinstance(value, (int, float)) and kind < 0.7:
        return rng.choice(NUMBERS)
    if isinstance(value, list) and kind < 0.4:
        return value * rng.choice((0, 2, 30))
    if isinstance(value, list) and kind < 0.6:
        return value[::-1]
    if kind > 0.98:
        return _nested(rng.choice((50, 900)))
    if kind > 0.96:
        try:
            return json.loads(other)
        except (ValueError, RecursionError):
            return None
    return rng.choice((*TEXTS, *NUMBERS, *OTHERS))


def _nested(depth: int) -> Any:
    value: Any = 0
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def _twice(rng: random.Random, text: str) -> str:
    """A key that stands twice in one object."""
    places = [at for at, letter in enumerate(text) if letter == "{" and text[at + 1 : at + 2] == '"']
    if not places:
        return text
    at = rng.choice(places) + 1
    end = text.index('"', at + 1) + 1
    return f"{text[:at]}{text[at:end]}: null, {text[at:]}"
