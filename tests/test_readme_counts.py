"""Counts that the README states, against what they count."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUITES = {
    "prefill": "of prefill",
    "prefill_features": "of its features",
    "hip_ladder": "of the HIP ladder",
    "attention_layer": "of attention layers",
    "attention_stages": "of the stages of attention",
}
"""Suites that the README names, and how."""


def test_stored_cases_are_counted() -> None:
    """What it says is stored for H200s, in all and by suite, is what lies there."""
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    files = (ROOT / "baselines" / "sm_90" / "h200").glob("*.json")
    stored = {file.stem: len(json.loads(file.read_text(encoding="utf-8"))["entries"]) for file in files}
    said = {suite: _number(text, rf"(\d+) {words}") for suite, words in SUITES.items()}
    assert said == {suite: stored[suite] for suite in SUITES}
    assert _number(text, r"`baselines/sm_90/h200/` holds (\d+) cases") == sum(stored.values())
    assert _number(text, r"(\d+) of other families") == sum(stored.values()) - sum(said.values())


def test_cases_of_the_other_product_are_counted() -> None:
    """What it says is stored for H100s is what lies there."""
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    files = (ROOT / "baselines" / "sm_90" / "h100-80gb-hbm3").glob("*.json")
    stored = sum(len(json.loads(file.read_text(encoding="utf-8"))["entries"]) for file in files)
    assert _number(text, r"`baselines/sm_90/h100-80gb-hbm3/` holds (\d+) cases") == stored


def _number(text: str, pattern: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, f"the README does not say {pattern!r}"
    return int(found[1])
