"""benchmarks/further_card.py: whether unchanged code is red on a card that recorded nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.further_card import card_spreads, gate_runs, list_cards, main, read_cases
from pytest_attnperf.baselines.schema import BASELINE_SCHEMA, BaselineFile, Check, Entry, content_id, encode_baseline
from pytest_attnperf.records import Fingerprint, ProcessSummary
from pytest_attnperf.stats import card_components

MACHINE = Fingerprint({"arch": "sm_90"}, {})
CARDS = ("a", "b", "c")


def processes(*medians: float) -> tuple[ProcessSummary, ...]:
    """Two processes on each card, 0.1 % apart."""
    return tuple(
        ProcessSummary(us, us, us, (us,), 10, "graph", device_id=card)
        for card, centre in zip(CARDS, medians, strict=True)
        for us in (centre, centre * 1.001)
    )


def stored(folder: Path, medians: tuple[float, ...], gemm: tuple[float, ...] = ()) -> list[Path]:
    """A file of one compute-bound case, with the GEMM of its canary on the same cards if given."""
    canary = {"gemm": processes(*gemm)} if gemm else {}
    named = content_id(canary) if gemm else ""
    entry = Entry(
        {}, content_id(MACHINE), content_id({}), processes(*medians), Check(0.5, 0.5), "2026-11-30", "0.2.0",
        bound="compute", canary=named,
    )  # fmt: skip
    file = BaselineFile(
        BASELINE_SCHEMA, "gemm", "sm_90", "h200", {content_id(MACHINE): MACHINE}, {content_id({}): {}},
        {"x.gemm/gemm-m8": entry}, {named: canary} if gemm else {},
    )  # fmt: skip
    path = folder / "gemm.json"
    path.write_bytes(encode_baseline(file))
    return [path]


def test_cards_that_are_alike_make_no_run_red(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of three cards recorded, and each other one gated: six runs."""
    assert main([str(path) for path in stored(tmp_path, (100.0, 100.3, 99.9))]) == 0
    assert "0 of 6 runs red, 0 of 6 decisions" in capsys.readouterr().out


def test_a_slow_card_is_red_where_the_others_recorded(tmp_path: Path) -> None:
    """Only runs on the slow card are, whichever card recorded."""
    runs = list(gate_runs(read_cases(stored(tmp_path, (100.0, 100.2, 109.0))), 1))
    assert {(run.stored, run.card) for run in runs if run.red} == {(("a",), "c"), (("b",), "c")}


def test_a_canary_that_is_as_slow_excuses_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless it is left out."""
    paths = [str(path) for path in stored(tmp_path, (100.0, 100.2, 109.0), gemm=(50.0, 50.1, 54.5))]
    assert main(paths) == 0
    assert main([*paths, "--no-canary"]) == 1
    assert "2 x gemm/x.gemm/gemm-m8" in capsys.readouterr().out


def test_another_spread_may_be_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smaller it is, the more is red."""
    monkeypatch.setattr(card_components, "PRIOR_SD", card_components.PRIOR_SD)
    path = str(stored(tmp_path, (100.0, 100.2, 103.6))[0])
    assert [main([path, f"--assumed-percent={percent}"]) for percent in (0.2, 2)] == [1, 0]
    assert "2 of 6 runs red" in capsys.readouterr().out


def test_spreads_are_those_between_cards(tmp_path: Path) -> None:
    """Not between the processes of one; short cases are left out."""
    cases = read_cases(stored(tmp_path, (100.0, 101.0, 102.0)))
    assert card_spreads(cases)["graph"] == [pytest.approx(0.0099, abs=1e-4)]
    assert card_spreads(cases, least_us=200.0) == {}
    assert list_cards(cases) == list(CARDS)


def test_one_card_must_be_left_to_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As many stored cards as there are end with what is there."""
    paths = [str(path) for path in stored(tmp_path, (100.0, 101.0, 102.0))]
    with pytest.raises(SystemExit, match="2"):
        main([*paths, "--stored", "3"])
    assert "--stored=3, and 3 cards ran all cases; one must be left to gate" in capsys.readouterr().err
