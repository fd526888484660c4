"""Which files count as entered by an ordinary case."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from benchmarks.one_case import Watch

MODULE = """
def called_by_the_file(): pass
def called(): pass
called_by_the_file()
"""


def test_importing_a_file_does_not_count_and_calling_its_function_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs when a file is imported is left out; threads that start meanwhile are seen."""
    for name in ("imported_only", "entered", "entered_elsewhere"):
        (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    before, watch = sys.getprofile(), Watch()
    watch.begin()
    try:
        import entered  # type: ignore[import-not-found]
        import entered_elsewhere  # type: ignore[import-not-found]
        import imported_only  # type: ignore[import-not-found]  # noqa: F401

        entered.called()
        thread = threading.Thread(target=entered_elsewhere.called)
        thread.start()
        thread.join()
    finally:
        watch.end()
        sys.setprofile(before)
    files = [Path(name.partition(":")[0]) for name in watch.functions]
    seen = {file.stem for file in files if file.parent == tmp_path}
    assert seen == {"entered", "entered_elsewhere"}
