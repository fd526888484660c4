"""Baseline files that somebody has edited."""

from __future__ import annotations

from typing import Any

import msgspec


def replace_field(text: bytes, *path: str | int, value: Any) -> bytes:
    """A JSON document with the field at this path replaced."""
    raw = place = msgspec.json.decode(text)
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return msgspec.json.encode(raw)
