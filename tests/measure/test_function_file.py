"""A function of a file that is imported by its path."""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_attnperf.measure.function_file import find_function, load_file


def test_any_file_name_can_be_loaded(tmp_path: Path) -> None:
    """Whatever its suffix; its folder is on the path meanwhile, and not afterwards."""
    (tmp_path / "beside_it.py").write_text("VALUE = 3\n")
    (tmp_path / "my kernel.txt").write_text("from beside_it import VALUE\ndef kernel(): return VALUE\n")
    module = load_file(str(tmp_path / "my kernel.txt"), "named_by_a_test")
    assert find_function(module, "kernel", "my kernel.txt")() == 3
    assert str(tmp_path) not in sys.path
