"""How strong an edit must be for a slowdown that is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality import sizing
from benchmarks.quality.processes import Case
from benchmarks.quality.sizing import Trees, choose_strengths, sized, strength_for, strengths_of
from benchmarks.slowdowns import EDITS

CASES = (Case("triton.softmax", "softmax-r192-c64-f16", "softmax_power"), Case("other", "w", "softmax_power"))
LEVELS = {"slow1": 0.01, "slow5": 0.05}


class Known(Trees):
    """Slowdowns that follow from the strength: nothing up to 100, then 0.02 % for each."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "gpu")
        self.asked: list[int] = []

    def slowdowns(self, strengths: Any, cases: Any, count: int) -> Any:
        """As `Trees.slowdowns`."""
        self.asked += [one["softmax_power"] for one in strengths]
        found = [max(0.0, (one["softmax_power"] - 100) * 0.0002) for one in strengths]
        return [[{case.name: (slowdown, 10.0) for case in cases} for slowdown in found] for _ in range(count)]


def test_strengths_lie_between_probes() -> None:
    """At the last place where the curve passes the level; beyond the probes the slope goes on, but not without end."""
    curve = [(10, 0.01), (20, 0.005), (40, 0.03)]
    assert strength_for(curve, 0.02) == 32
    assert strength_for(curve, 0.06) == 80
    assert strength_for(curve, 1.0) == 160
    assert strength_for([(10, 0.0)], 0.01) == 40
    assert strength_for([(1, 0.5)], 0.01) == 1


def test_what_is_hidden_up_to_a_point_is_found(tmp_path: Path) -> None:
    """What was chosen by the probes is tried, and chosen again."""
    trees = Known(tmp_path)
    strengths = choose_strengths(trees, CASES, LEVELS)
    assert trees.asked[:3] == list(EDITS["softmax_power"].strengths)
    assert strengths["slow1"]["softmax_power"] == pytest.approx(150, rel=0.1)
    assert strengths["slow5"]["softmax_power"] == pytest.approx(350, rel=0.1)
    sizes = sized(trees, CASES, strengths, LEVELS, "r")
    assert [(size.case, size.label) for size in sizes[:2]] == [(case.name, "slow1") for case in CASES]
    assert all(size.size == pytest.approx(size.nominal, rel=0.2) for size in sizes)
    assert strengths_of(sizes) == strengths


def test_on_a_cpu_calls_spin_for_a_share_of_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes 10 us spins for 500 ns more to be 5 % slower."""
    trees = Trees(tmp_path, "cpu")
    found = [[{"native.matmul/w": (0.0, 10.0)}]] * 3
    monkeypatch.setattr(trees, "slowdowns", lambda strengths, cases, count: found)
    cases = [Case("native.matmul", "w", "spin")]
    strengths = choose_strengths(trees, cases, LEVELS)
    assert strengths == {"slow1": {"native.matmul/w": 100}, "slow5": {"native.matmul/w": 500}}
    assert trees.variant(strengths["slow5"]).spin_ns == {"native.matmul/w": 500}
    assert trees.variant(strengths["slow5"]).tree == sizing.ROOT
    sizes = sized(trees, cases, strengths, LEVELS, "r")
    assert [(size.size, size.true_sd, size.how) for size in sizes] == [(0.01, 0.0, "spin 100"), (0.05, 0.0, "spin 500")]
    assert strengths_of(sizes) == strengths


def test_a_tree_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the same strengths."""
    made: list[dict[str, int]] = []

    def make_tree(folder: Path, edits: dict[str, int]) -> Path:
        made.append(edits)
        return folder

    monkeypatch.setattr(sizing, "make_tree", make_tree)
    trees = Trees(tmp_path, "gpu")
    assert trees.variant({"softmax_power": 1}).tree == trees.variant({"softmax_power": 1}).tree
    assert trees.variant({"softmax_power": 2}).tree != trees.variant({}).tree
    assert made == [{"softmax_power": 1}, {"softmax_power": 2}, {}]
