"""A key that stands twice in a baseline file, as where both sides of a conflict were kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.baselines import code_schema, schema
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records.unique_keys import require_unique_keys

ROOT = Path(__file__).parents[2]
TIMED = min((ROOT / "baselines" / "sm_90" / "h200").glob("*.json"), key=lambda path: path.stat().st_size)
KERNELS = ROOT / "examples/own-kernel/baselines/gfx942/code_objects.json"
JSON = st.recursive(
    st.text('ab"\\:{,', max_size=4) | st.integers(0, 9),
    lambda part: st.lists(part, max_size=2) | st.dictionaries(st.text('ab"\\', max_size=2), part, max_size=3),
    max_leaves=8,
)


def twice(text: str, key: str, value: str) -> bytes:
    """The text with one pair more before the first of that key."""
    assert f'"{key}": ' in text
    return text.replace(f'"{key}": ', f'"{key}": {value}, "{key}": ', 1).encode()


def test_an_entry_or_a_field_that_stands_twice_is_named() -> None:
    """Two entries of one name, two fields of one entry, two tables: reading any of them is an error, never the last."""
    text = TIMED.read_text()
    entry = next(iter(json.loads(text)["entries"]))
    whole = json.dumps(json.loads(text)["entries"][entry])
    for key, value in ((entry, whole), ("summary", '"1 us"'), ("entries", "{}")):
        with pytest.raises(BaselineError, match=rf"prefill: the key '{key}' stands twice in one object: both sides of"):
            schema.decode_baseline(twice(text, key, value), "prefill")
    with pytest.raises(BaselineError, match="kernels: the key 'vgprs' stands twice"):
        code_schema.decode_code_file(twice(KERNELS.read_text(), "vgprs", "1"), "kernels")


@settings(max_examples=60, deadline=None)
@given(value=JSON, other=st.booleans())
def test_any_object_is_looked_at_and_no_sound_text_refused(value: object, *, other: bool) -> None:
    """Whatever its strings hold, and however their quotation marks are written: only a key that is dropped counts."""
    text = json.dumps({"a": value, "b": [{"c": value}]})
    text = text.replace('\\"', "\\u0022") if other and "\\\\" not in text else text
    require_unique_keys(text.encode(), "x")
    with pytest.raises(BaselineError, match="x: the key 'c' stands twice"):
        require_unique_keys(text.replace('{"c": ', '{"c": "", "c": ', 1).encode(), "x")


def test_bytes_that_are_no_text_are_refused() -> None:
    """In a field that nobody reads, too."""
    with pytest.raises(BaselineError, match=r"x: is not readable as JSON .*; restore it"):
        require_unique_keys(b'{"a": "\xff"}', "x")
