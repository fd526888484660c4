from __future__ import annotations

import pytest

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.fields import Grammar

GRAMMAR = Grammar(
    family="copying",
    numbers={"m": "rows", "kib": "kibibytes"},
    required=("m",),
    flags=("hot",),
    dtypes=("f16", "i8"),
    id_required=("kind",),
    choices={"kind": ("copy", "read")},
    texts={"q": ("lengths", "[0-9]+(_[0-9]+)*"), "": ("batch", "[0-9]+q[0-9]+")},
)


def test_a_family_without_a_batch_needs_no_field_for_it() -> None:
    """Only where `b` is a number must an id give it."""
    assert Grammar("rows", {"r": "rows"}, ("r",)).parse_id("rows-r3-f16") == {"rows": 3, "dtype": "f16"}
    with pytest.raises(WorkloadError, match="does not give b"):
        Grammar("rows", {"b": "batch", "r": "rows"}, ("r",)).parse_id("rows-r3-f16")


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ("m=3,copy,f16", "copying-copy-m3-f16", {"rows": 3, "kind": "copy", "dtype": "f16"}),
        ("m=3, kind=read, hot", "copying-read-m3-hot", {"rows": 3, "kind": "read", "hot": True}),
        ("read,m=3,q=63_1000", "copying-read-m3-q63_1000", {"rows": 3, "kind": "read", "lengths": "63_1000"}),
        ("read,m=3,q=63", "copying-read-m3-q63", {"rows": 3, "kind": "read", "lengths": "63"}),
        ("read,m=3,2q64", "copying-read-m3-2q64", {"rows": 3, "kind": "read", "batch": "2q64"}),
        ("read,m=3,i8", "copying-read-m3-i8", {"rows": 3, "kind": "read", "dtype": "i8"}),
    ],
)
def test_lines_and_ids_give_the_same_attributes(line: str, text: str, expected: dict[str, object]) -> None:
    """Words of a choice, values that are texts, and bare words of a pattern are read from both forms."""
    assert GRAMMAR.parse_line(line) == expected
    assert GRAMMAR.parse_id(text) == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("m=3,kind=write", "unknown field 'kind'"),
        ("m=3,copy,read", "gives kind \\(read\\) twice"),
        ("m=3,copy=1", "unknown field 'copy'"),
        ("m=3,q=63_", "q must match .*, got '63_'"),
        ("m=3,q", "unknown field 'q'"),
        (
            "m=3,2q",
            r"unknown field '2q' \(did you mean 'q'\?\); allowed are m=, kib=, q=, a bare .*, copy, read, hot",
        ),
        ("copy", "does not give m; required are m"),
    ],
)
def test_what_a_line_may_not_hold(line: str, said: str) -> None:
    """The error names the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=said):
        GRAMMAR.parse_line(line)


def test_what_an_id_must_give() -> None:
    """An id lacks nothing that a line may leave out, a choice included."""
    with pytest.raises(WorkloadError, match="does not give kind; required are kind, m"):
        GRAMMAR.parse_id("copying-m3")
