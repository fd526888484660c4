"""Lengths of the sequences of a packed batch as one word: `8x512_63` is eight sequences of 512 and one of 63."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from pytest_attnperf.errors import WorkloadError

PATTERN = r"([0-9]+x)?[0-9]+(_([0-9]+x)?[0-9]+)*"
"""What a word of lengths looks like; also to be used as the pattern of a text field of `fields.Grammar`."""

SEQUENCES_MAX = 65_536
"""Largest number of sequences of one batch; more is taken for a slip of the pen."""


def parse_lengths(text: str) -> tuple[int, ...]:
    """`8x512_63` -> eight times 512, then 63, in that order.

    Raises WorkloadError for another form, for a length or a count of zero, and for more than SEQUENCES_MAX sequences.
    """
    if not re.fullmatch(PATTERN, text):
        raise WorkloadError(
            f"sequence lengths {text!r} are malformed; write positive lengths joined by '_', each with an optional "
            "count before it, e.g. '63_1000' or '8x512_63'"
        )
    runs: list[tuple[int, int]] = []
    for word in text.split("_"):
        count, _, length = word.rpartition("x")
        runs.append((int(count or 1), int(length)))
    if any(count == 0 or length == 0 for count, length in runs):
        raise WorkloadError(f"sequence lengths {text!r} hold a zero; every length and every count must be at least 1")
    if (sequences := sum(count for count, _ in runs)) > SEQUENCES_MAX:
        raise WorkloadError(f"sequence lengths {text!r} are {sequences} sequences; at most {SEQUENCES_MAX} are taken")
    return tuple(length for count, length in runs for _ in range(count))


def lengths_text(lengths: Sequence[int]) -> str:
    """The one word that `parse_lengths` reads these lengths from; equal lengths in a row are written with a count."""
    runs = ((length, len(list(run))) for length, run in itertools.groupby(lengths))
    return "_".join(f"{count}x{length}" if count > 1 else str(length) for length, count in runs)
