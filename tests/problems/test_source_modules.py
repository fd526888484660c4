from __future__ import annotations

import inspect
import traceback
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.problems.source_modules import load_function

FILE = Path(__file__)
SOURCES = {
    "src/main.py": "from .lib.double import double\nfrom . import one\n\ndef run(x):\n    return double(x) + one.ONE\n",
    "src/lib/double.py": "def double(x):\n    return 2 * x\n",
    "src/one.py": "ONE = 1\n",
    "notes.txt": "no code",
}


def test_sources_import_each_other() -> None:
    """As in a package, and the same function comes back the second time."""
    run = load_function("solution", "twice", FILE, SOURCES, "src/main.py::run")
    assert run(3) == 7
    assert load_function("solution", "twice", FILE, SOURCES, "src/main.py::run") is run


def test_changed_sources_are_other_modules() -> None:
    """Both sides of a comparison may be loaded in one process."""
    changed = {**SOURCES, "src/one.py": "ONE = 10\n"}
    assert load_function("solution", "twice", FILE, changed, "src/main.py::run")(3) == 16
    assert load_function("solution", "twice", FILE, SOURCES, "src/main.py::run")(3) == 7


def test_a_function_has_a_file_and_a_source() -> None:
    """The file is the one whose content a run hashes; Triton reads the source, and a traceback shows the line."""
    run = load_function("solution", "twice", FILE, SOURCES, "src/main.py::run")
    assert inspect.getmodule(run).__file__ == str(FILE)  # type: ignore[union-attr]
    assert inspect.getsource(run).startswith("def run(x):\n    return double(x)")
    with pytest.raises(TypeError) as caught:
        run(None)
    assert "return 2 * x" in "".join(traceback.format_exception(caught.value))


def test_a_missing_function_is_named() -> None:
    """With the one that is spelled most like it."""
    with pytest.raises(
        UsageError, match=r"solution 'twice' has no function 'rum' \(did you mean 'run'\?\) in src/main.py"
    ):
        load_function("solution", "twice", FILE, SOURCES, "src/main.py::rum")
