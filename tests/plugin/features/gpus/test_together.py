"""`pytest --attnperf-together` on two fake cards that disturb each other."""

from __future__ import annotations

import pytest

from pytest_attnperf.testing.project import FakeProject


def test_all_cards_at_once_show_interference_and_gate_nothing(
    attnperf_project: FakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cards that slow each other by a quarter: a table says so, results keep each card, strict fails nothing."""
    monkeypatch.setenv("COLUMNS", "100")
    attnperf_project.device(gpus=2, card_bias={"1": 1.1})
    attnperf_project.backend("fake.a", time_us=100.0, block_s=0.01, interference=0.25)
    attnperf_project.backend("fake.b", supported=["scripted"])
    result = attnperf_project.run("--attnperf-together", "--attnperf-effort=budget_ms=40", "--attnperf-strict")
    assert result.ret == 0, result.stdout.str()
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*scaling*worst*", "fake.a * 1.[56]*x of 2 *+2?.? %*", "*most interference*"])
    stored = attnperf_project.results()
    assert stored["mode"] == "together"
    assert stored["gated"] == 0
    cards = next(case["together"] for case in stored["cases"] if case["together"])["gpus"]
    assert [card["device_id"] for card in cards] == ["fake-0", "fake-1"]
    assert cards[1]["alone_us"] / cards[0]["alone_us"] == pytest.approx(1.1, rel=0.03)
    assert all(card["together_us"] / card["alone_us"] == pytest.approx(1.25, rel=0.02) for card in cards)
