"""Batches of a serving step as engines write them: `2q2k_8q1s1k` is two prompts of 2048 tokens and eight sequences
that add one token to 1024 keys.

    batch   part, or parts joined by '_' or ','
    part    [count]q<length>[k][s<length>[k]]

`count` sequences (default: 1) have `q` query tokens each, and `s` keys (default: as many as query tokens), including
the query tokens' own keys; k stands for 1024.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_attnperf.errors import WorkloadError

GRAMMAR = "[count]q<length>[k][s<length>[k]], k being 1024, e.g. '2q2k' or '8q1s1k'; parts are joined by '_'"
_PART = re.compile(r"(?P<count>[0-9]*)q(?P<q>[0-9]+)(?P<q_unit>k?)(?:s(?P<s>[0-9]+)(?P<s_unit>k?))?")
_KILO = 1024


@dataclass(frozen=True)
class BatchPart:
    """Sequences of one size: `count` of them, each of `q` query tokens and `kv` keys.

    Raises WorkloadError for a number below 1, and for fewer keys than query tokens.
    """

    count: int
    q: int
    kv: int

    def __post_init__(self) -> None:
        for name, value in (("count", self.count), ("q", self.q), ("s", self.kv)):
            if value < 1:
                raise WorkloadError(f"batch part {self.text!r}: {name} must be at least 1, got {value}; {GRAMMAR}")
        if self.kv < self.q:
            raise WorkloadError(
                f"batch part {self.text!r}: s must be at least q, got s={self.kv} and q={self.q}: the query tokens' "
                f"own keys are among the keys; {GRAMMAR}"
            )

    @property
    def text(self) -> str:
        """The part as canonical text, e.g. '8q1s1k': no count of 1, no `s` equal to `q`, a k for multiples of 1024."""
        count = "" if self.count == 1 else str(self.count)
        keys = "" if self.kv == self.q else f"s{_format_length(self.kv)}"
        return f"{count}q{_format_length(self.q)}{keys}"


def parse_batch(text: str) -> tuple[BatchPart, ...]:
    """Parses a batch such as '2q2k_8q1s1k' into its parts, in order; equal neighbours are joined: `q5_2q5` is one part,
    of three sequences. Raises WorkloadError naming the part that does not follow the grammar, or whose lengths are
    impossible."""
    found: list[BatchPart] = []
    for word in re.split("[_,]", text):
        part = _parse_part(word.strip(), text)
        if found and (found[-1].q, found[-1].kv) == (part.q, part.kv):
            part = BatchPart(found.pop().count + part.count, part.q, part.kv)
        found.append(part)
    return tuple(found)


def format_batch(parts: Iterable[BatchPart]) -> str:
    """Returns the canonical text of parts, joined by '_', e.g. '2q2k_8q1s1k'."""
    return "_".join(part.text for part in parts)


def _parse_part(word: str, text: str) -> BatchPart:
    match = _PART.fullmatch(word)
    if not match:
        raise WorkloadError(f"batch {text!r}: part {word!r} does not follow the grammar; write {GRAMMAR}")
    q = int(match["q"]) * (_KILO if match["q_unit"] else 1)
    kv = q if match["s"] is None else int(match["s"]) * (_KILO if match["s_unit"] else 1)
    return BatchPart(int(match["count"] or 1), q, kv)


def _format_length(tokens: int) -> str:
    return f"{tokens // _KILO}k" if tokens and tokens % _KILO == 0 else str(tokens)
