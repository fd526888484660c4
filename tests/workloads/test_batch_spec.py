from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.batch_spec import GRAMMAR, BatchPart, format_batch, parse_batch


@st.composite
def parts(draw: st.DrawFn) -> BatchPart:
    """Any part that may exist; lengths are often multiples of 1024."""
    q = draw(st.integers(1, 5000) | st.integers(1, 64).map(lambda k: 1024 * k))
    past = draw(st.integers(0, 5000) | st.integers(0, 64).map(lambda k: 1024 * k))
    return BatchPart(draw(st.integers(1, 300)), q, q + past)


@given(batch=st.lists(parts(), min_size=1, max_size=6))
def test_a_batch_parses_back_from_its_text(batch: list[BatchPart]) -> None:
    """The text of any batch parses to the same sequences in the same order, and to a text that stays as it is."""
    parsed = parse_batch(format_batch(batch))
    sizes = [(part.q, part.kv) for part in batch for _ in range(part.count)]
    assert [(part.q, part.kv) for part in parsed for _ in range(part.count)] == sizes
    assert parse_batch(format_batch(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2q2k_8q1s1k", (BatchPart(2, 2048, 2048), BatchPart(8, 1, 1024))),
        ("2q2k, 8q1s1k", (BatchPart(2, 2048, 2048), BatchPart(8, 1, 1024))),
        ("1q4k_32q1s2k", (BatchPart(1, 4096, 4096), BatchPart(32, 1, 2048))),
        ("q5_2q5s5_q5s6", (BatchPart(3, 5, 5), BatchPart(1, 5, 6))),
    ],
)
def test_batches_read_as_engines_write_them(text: str, expected: tuple[BatchPart, ...]) -> None:
    """A count of 1 and keys as many as queries may be left out, k is 1024, and equal neighbours are one part."""
    assert parse_batch(text) == expected


@pytest.mark.parametrize(
    ("text", "canonical"),
    [("1q4096_32q1s2048", "q4k_32q1s2k"), ("2q2ks2k,q1025", "2q2k_q1025"), ("3q1s9_q1s9", "4q1s9")],
)
def test_a_batch_has_one_text(text: str, canonical: str) -> None:
    """However a batch is written, its text is the shortest one."""
    assert format_batch(parse_batch(text)) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2q2k_8s1k", "batch '2q2k_8s1k': part '8s1k' does not follow the grammar; write " + GRAMMAR),
        ("2q2k_", "part '' does not follow the grammar"),
        ("q2m", "part 'q2m' does not follow the grammar"),
        ("q5-q6", "part 'q5-q6' does not follow the grammar"),
        ("3q0", "batch part '3q0': q must be at least 1, got 0"),
        ("0q5", "batch part '0q5': count must be at least 1, got 0"),
        ("q1s0", "batch part 'q1s0': s must be at least 1, got 0"),
        ("q5_4q2ks1k", "batch part '4q2ks1k': s must be at least q, got s=1024 and q=2048"),
    ],
)
def test_a_malformed_batch_names_the_part_and_the_grammar(text: str, message: str) -> None:
    """What is wrong is said of the part that is wrong, with how parts are written."""
    with pytest.raises(WorkloadError, match=re.escape(message)) as caught:
        parse_batch(text)
    assert GRAMMAR in str(caught.value)
