from __future__ import annotations

from pytest_attnperf.records.profiles import Finding
from pytest_attnperf.tools.profilers.findings_text import finding_lines


def test_contradictions_stand_first_and_all_are_counted() -> None:
    """A reader sees what is wrong before what holds, and how many of each there are."""
    found = (
        Finding("ratio", True, "51.9x", "", "121.89 / 2.35 is 51.9"),
        Finding("waves", False, "4", "8", "256 threads are 8 waves"),
        Finding("hits", None, "90%", "", "no counter"),
    )
    assert finding_lines(found) == [
        "CONTRADICTED waves: 256 threads are 8 waves",
        "OPEN hits: no counter",
        "holds ratio: 121.89 / 2.35 is 51.9",
        "1 contradicted, 1 open, 1 hold",
    ]
