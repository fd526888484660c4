"""Counts that the README states, compared with what they count."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
LINES_MOST = 150


def test_the_readme_is_short() -> None:
    """One screen says what this is, the rest of the page what to type; everything else is in docs/."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= LINES_MOST


def test_stored_cases_are_counted() -> None:
    """What it says is stored for H200s, in all and by number of cards, is what lies there."""
    entries = _list_entries("sm_90/h200/*.json")
    cards = [len({process["device_id"] for process in entry["processes"]}) for entry in entries]
    assert _number(r"`baselines/sm_90/h200/` holds (\d+) cases from four cards") == len(entries) == cards.count(4)
    assert _number(r"the (\d+) that a plain run times") + _number(r"and (\d+) of the \d+ that are left") == len(entries)


def test_figures_that_were_measured_are_those_of_the_evidence() -> None:
    """How often unchanged code was red, and what is stored, are the figures of docs/evidence.md."""
    evidence = " ".join((ROOT / "docs" / "evidence.md").read_text(encoding="utf-8").split())
    red = re.search(r"\d+ of [\d,]+ decisions red", README)
    assert red is not None
    assert f"{red[0]}** in" in evidence
    stored, nightly = _number(r"holds (\d+) cases from four"), _number(r"of the (\d+) that are left to nightly runs")
    plain = _number(r"the (\d+) that a plain run times")
    assert f"{stored} of {plain + nightly}; " in evidence


def test_decisions_of_the_evidence_are_those_of_the_stored_runs() -> None:
    """The decisions that were not red are counted in the files that hold them."""
    evidence = " ".join((ROOT / "docs" / "evidence.md").read_text(encoding="utf-8").split())
    verdicts = [
        fields["verdict"]
        for name in ("h200_gate_power.jsonl", "h200_gate_power_pooled.jsonl")
        for fields in map(json.loads, (ROOT / "benchmarks" / "figures" / name).read_text(encoding="utf-8").splitlines())
        if fields.get("how") == "suites"
    ]
    red = sum(verdict not in ("SAME", "FASTER", "MOVED") for verdict in verdicts)
    assert f"{red} of {len(verdicts):,} decisions red**" in evidence


def test_cases_of_the_other_product_are_counted() -> None:
    """What it says is stored for H100s is what lies there."""
    stored = len(_list_entries("sm_90/h100-80gb-hbm3/*.json"))
    assert _number(r"`baselines/sm_90/h100-80gb-hbm3/` holds (\d+) cases of one card") == stored


def test_code_objects_are_counted() -> None:
    """What it says is stored of compiled kernels is what lies there, for each architecture that it names."""
    found = (path.parent.name for path in (ROOT / "baselines").glob("gfx*/code_objects.json"))
    architectures = sorted(found, key=lambda name: (len(name), name))
    assert f"stored for {', '.join(architectures[:-1])} and {architectures[-1]}" in README
    assert _number(r"([\d,]+) code objects are stored") == len(_list_entries("gfx*/code_objects.json"))


def test_code_objects_are_counted_by_compiler() -> None:
    """What docs/code-objects.md says is stored by Triton and by clang."""
    entries = {
        (path.parent.name, key): entry
        for path in (ROOT / "baselines").glob("gfx*/code_objects.json")
        for key, entry in json.loads(path.read_text(encoding="utf-8"))["entries"].items()
    }
    by_hip = sum(key.startswith("hip.") for _, key in entries)
    page = " ".join((ROOT / "docs" / "code-objects.md").read_text(encoding="utf-8").split())
    assert f"{len(entries) - by_hip:,} Triton objects" in page
    assert f"{by_hip} HIP objects" in page


def _list_entries(pattern: str) -> list[dict[str, Any]]:
    """Entries of all baseline files of a pattern below baselines/."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "baselines").glob(pattern)]
    return [entry for file in files for entry in file["entries"].values()]


def _number(pattern: str) -> int:
    found = re.search(pattern, README)
    assert found is not None, f"the README does not say {pattern!r}"
    return int(found[1].replace(",", ""))
