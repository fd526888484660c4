"""A list that names a module which does not exist, or which cannot be imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.listing import find_place, import_listed_module

LIST = """
MODULES = (
    "native.rows",
    # a comment
    "native.softmax"
    "native.rope",
    "{name}",
)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `listed` with modules native.rows, native.rope, native.broken and triton.flash, a folder."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "listed"]:
        monkeypatch.delitem(sys.modules, name)
    for name in (
        "native/rows",
        "native/rope",
        "native/broken",
        "native/backward",
        "hip/backward",
        "triton/flash/backend",
        "__init__",
    ):
        path = tmp_path / "listed" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import torch_of_mine\n" if "broken" in name else "")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "listed"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rope", 'py:7 names "rope", but there is no listed/rope.py; write "native.rope"'),
        (
            "backward",
            'py:7 names "backward", but there is no listed/backward.py; write "hip.backward" or "native.backward"',
        ),
        ("flash", 'py:7 names "flash", but there is no listed/flash.py; write "triton.flash"'),
        ("native.rop", 'py:7 names "native.rop", but there is no listed/native/rop.py; write "native.rope"'),
        ("native.mine", 'py:7 names "native.mine", but there is no listed/native/mine.py; correct one'),
        ("native/rope.py", 'py:7 names "native/rope.py": use dots, without .py: "native.rope"'),
        ("native.rope.py", 'py:7 names "native.rope.py": use dots, without .py: "native.rope"'),
        (
            "native.softmaxnative.rope",
            'py:5 names "native.softmaxnative.rope": a comma is missing behind "native.softmax"',
        ),
    ],
)
def test_a_name_of_nothing_is_said_with_what_was_meant(name: str, says: str, package: Path) -> None:
    """Its line in the list, and the module of that name, a similar one, dots, or a comma."""
    listing = package / "__init__.py"
    listing.write_text(LIST.format(name=name) if "softmaxnative" not in name else LIST)
    with pytest.raises(UsageError) as raised:
        import_listed_module(f"listed.{name}", str(listing), f'"{name}"')
    assert str(raised.value) == f"{listing.with_suffix('')}.{says}"


def test_a_module_that_cannot_be_imported_is_said_with_its_line(package: Path) -> None:
    """The line that raised, the error, and the line of the list."""
    listing = package / "__init__.py"
    listing.write_text(LIST.format(name="native.broken"))
    with pytest.raises(UsageError) as raised:
        import_listed_module("listed.native.broken", str(listing), '"native.broken"')
    error = "ModuleNotFoundError: No module named 'torch_of_mine'"
    assert str(raised.value) == f"{package}/native/broken.py:1: {error}; {listing}:7 lists this module"


def test_a_text_that_is_nowhere_is_placed_at_the_first_line(package: Path) -> None:
    """A file that names it is still named."""
    listing = package / "__init__.py"
    listing.write_text(LIST)
    assert find_place(str(listing), '"nowhere"') == f"{listing}:1"
