"""Neighbours of the fake device notice each other by locks alone."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

from pytest_attnperf.testing.fake.backends import take_block_time


def test_a_process_is_slowed_only_while_another_one_measures(tmp_path: Path) -> None:
    """Nobody else: 1. A lock that is held: 1 + interference. The same file, released: 1 again."""
    script = {"interference": 0.05}
    assert take_block_time(script, tmp_path) == 1.0
    other = tmp_path / "1.lock"
    with other.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert take_block_time(script, tmp_path) == 1.05
    assert take_block_time(script, tmp_path) == 1.0


def test_a_turn_takes_the_scripted_time(tmp_path: Path) -> None:
    """`block_s` is slept; a script without `interference` leaves no file."""
    began = time.monotonic()
    assert take_block_time({"block_s": 0.01}, tmp_path) == 1.0
    assert time.monotonic() - began >= 0.01
    assert list(tmp_path.iterdir()) == []
