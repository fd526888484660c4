"""Files written in the form of this version; among them every baseline of this repository."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from pytest_attnperf.baselines.schema import decode_baseline
from pytest_attnperf.baselines.writing import rewrite_file
from pytest_attnperf.errors import BaselineError

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "baselines" / "sm_90" / "h200").glob("*.json"))
SMALLEST = min(SHIPPED, key=lambda path: path.stat().st_size)


def test_a_file_without_summaries_gains_them_and_nothing_else(tmp_path: Path) -> None:
    """What is read before and after is equal, each entry begins with its line, and a second time changes no byte."""
    before = msgspec.json.decode(SMALLEST.read_bytes())
    for entry in before["entries"].values():
        del entry["summary"]
    path = tmp_path / SMALLEST.name
    path.write_bytes(msgspec.json.encode(before))
    assert rewrite_file(path)
    after = path.read_bytes()
    assert decode_baseline(after, "after") == decode_baseline(msgspec.json.encode(before), "before")
    assert after == SMALLEST.read_bytes()
    assert all(next(iter(entry)) == "summary" for entry in msgspec.json.decode(after)["entries"].values())
    assert not rewrite_file(path)


def test_every_shipped_baseline_has_summaries() -> None:
    """No entry of this repository lacks its line: a diff of any can be read."""
    assert len(SHIPPED) > 10
    for path in SHIPPED:
        assert all(entry.summary for entry in decode_baseline(path.read_bytes(), path.name).entries.values()), path.name


def test_other_files_are_left_and_damaged_ones_named(tmp_path: Path) -> None:
    """Compiled kernels and ceilings stay as they are; a lying summary, a lost field or no JSON is an error."""
    path = tmp_path / "a.json"
    for text in ('{"schema": 1, "entries": {}}', "[]"):
        path.write_text(text)
        assert not rewrite_file(path)
    text = SMALLEST.read_text()
    damaged = {
        re.sub(r" us, \d+ proc", " us, 99 proc", text): "was edited by hand",
        text.replace('"note"', '"nota"'): "this version does not know .*nota",
        text[:-40]: "is not readable as JSON",
    }
    for broken, expected in damaged.items():
        path.write_text(broken)
        with pytest.raises(BaselineError, match=expected):
            rewrite_file(path)
        assert path.read_text() == broken
