from __future__ import annotations

import importlib.util
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "benchmarks" / "process_levels.py"
spec = importlib.util.spec_from_file_location("process_levels", SOURCE)
assert spec is not None
assert spec.loader is not None
process_levels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(process_levels)


class Clockwork:
    """A timer whose blocks take no time and count up."""

    def __init__(self) -> None:
        self.blocks = 0

    def measure(self, pairs: int) -> list[float]:
        """The number of the block."""
        self.blocks += pairs
        return [float(self.blocks)]


def test_blocks_are_gathered_by_when_they_began() -> None:
    """Each window has the median of its own blocks, and none where no block began."""
    blocks = [(0.0, 1.0), (0.5, 3.0), (0.9, 2.0), (2.5, 7.0)]
    assert process_levels.by_window(blocks, (0.0, 1.0, 2.0, 3.0)) == [2.0, None, 7.0]


def test_a_series_fills_its_windows() -> None:
    """Blocks go on until the last window ends, with a gap between them."""
    blocks = process_levels.series(Clockwork(), 0.01)
    assert [us for _, us in blocks] == [float(number) for number in range(1, len(blocks) + 1)]
    assert blocks[-1][0] < process_levels.WINDOWS_S[-1]
    assert 20 < len(blocks) < 75
