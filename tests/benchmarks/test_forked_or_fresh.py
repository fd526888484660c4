"""benchmarks/forked_or_fresh.py: that it tells a smaller spread and another mean from chance."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "forked_or_fresh.py"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("forked_or_fresh", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "forked_or_fresh", module)
    spec.loader.exec_module(module)
    return module


def drawn(seed: int, sd: float, mean: float = 100.0) -> list[float]:
    """Twenty processes."""
    dice = random.Random(seed)
    return [dice.gauss(mean, sd) for _ in range(20)]


def test_a_smaller_spread_is_seen(program: ModuleType) -> None:
    """A third of the spread comes of chance in less than one division of a hundred; an equal one often."""
    assert program.compared(drawn(1, 0.1), drawn(2, 0.3)).as_uneven < 0.01
    assert program.compared(drawn(1, 0.3), drawn(2, 0.3)).as_uneven > 0.1


def test_another_mean_is_seen(program: ModuleType) -> None:
    """Half a percent is outside the interval, nothing is inside."""
    moved, same = (program.compared(drawn(1, 0.2, mean), drawn(2, 0.2)) for mean in (100.5, 100.0))
    assert 0 < moved.half_width < moved.difference
    assert abs(same.difference) < same.half_width


def test_on_the_fake_device(program: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Both ways measure the case in so many processes, and every figure is written down."""
    path = tmp_path / "figures.json"
    assert program.main(["--fake", "--processes=3", f"--json={path}"]) == 0
    said = capsys.readouterr().out
    assert "prefill/fake.a/prefill-b1-s64-h1-d16-f16" in said
    taken = json.loads(path.read_text())
    assert {way: [len(us) for us in one["us"].values()] for way, one in taken.items()} == {"forked": [3], "fresh": [3]}


def test_what_to_time_is_asked_for(program: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """Timing every case of every suite many times is nothing to begin by mistake."""
    with pytest.raises(SystemExit):
        program.main(["--processes=3"])
    assert "one --case are needed" in capsys.readouterr().err
