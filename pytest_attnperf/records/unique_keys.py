"""A key that stands twice in one object of a JSON file: readers take the last, and nobody sees what the first said.

In a baseline it comes about where somebody keeps both sides of a marked conflict. In any file it could be made to show
a reviewer another value than the one that counts.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from pytest_attnperf.errors import AttnperfError, BaselineError

_OTHER_QUOTE = b"\\u0022"
"""The one way to write a quotation mark inside a string that msgspec does not write."""


CONFLICT = (
    "both sides of a conflict were kept, or it was edited by hand; keep one of them (attnperf merge-baselines "
    "--resolve, while the merge is open)"
)


def require_unique_keys(
    data: bytes, source: str, error: type[AttnperfError] = BaselineError, advice: str = CONFLICT
) -> None:
    """Raise `error` naming the key where an object of this JSON, which is known to be readable, has it twice.

    Quotation marks are counted in the text and in what was read from it: a key that was dropped took two with it. That
    takes half as long as looking at every object (21 against 38 ms for 454 entries), which is done where they differ.
    """
    try:
        if _OTHER_QUOTE not in data and data.count(b'"') == msgspec.json.encode(msgspec.json.decode(data)).count(b'"'):
            return
        json.loads(data, object_pairs_hook=_require_unique)
    except _TwiceError as twice:
        raise error(f"{source}: the key {twice.key[:200]!r} stands twice in one object: {advice}") from None
    except (ValueError, RecursionError, msgspec.MsgspecError) as cause:
        raise error(f"{source}: is not readable as JSON ({cause}); restore it") from cause


class _TwiceError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _require_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _TwiceError(key)
        found[key] = value
    return found
