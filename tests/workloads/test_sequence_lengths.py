from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.sequence_lengths import PATTERN, format_lengths, parse_lengths


@given(lengths=st.lists(st.integers(1, 1 << 20), min_size=1, max_size=50).map(tuple))
def test_lengths_are_read_back_from_their_text(lengths: tuple[int, ...]) -> None:
    """Every list of lengths has one text, which is one word of the pattern and parses back to it."""
    text = format_lengths(lengths)
    assert parse_lengths(text) == lengths
    assert re.fullmatch(PATTERN, text)


@pytest.mark.parametrize(
    ("text", "lengths"),
    [("63", (63,)), ("63_1000", (63, 1000)), ("3x512_63", (512, 512, 512, 63)), ("1_2x1_1", (1, 1, 1, 1))],
)
def test_a_count_stands_before_a_length(text: str, lengths: tuple[int, ...]) -> None:
    """Lengths are joined by underscores, and a length that is repeated may be written once."""
    assert parse_lengths(text) == lengths


def test_equal_lengths_in_a_row_have_one_text() -> None:
    """A count is written where there are two and more, so that equal batches have equal ids."""
    assert format_lengths((512, 512, 63, 512)) == "2x512_63_512"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "sequence lengths '' are malformed"),
        ("63_", "sequence lengths '63_' are malformed"),
        ("8x", "sequence lengths '8x' are malformed"),
        ("-5", "write positive lengths joined by '_'"),
        ("63_0", "sequence lengths '63_0' hold a zero"),
        ("0x512", "every length and every count must be at least 1"),
        ("65537x1", "sequence lengths '65537x1' are 65537 sequences; at most 65536 are allowed"),
    ],
)
def test_malformed_lengths_are_refused(text: str, message: str) -> None:
    """What is wrong is said with the text and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        parse_lengths(text)
