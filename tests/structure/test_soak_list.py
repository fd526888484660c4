"""The list of tests that are left to `make soak` names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import soak_list

ROOT = Path(__file__).parents[2]


DEFINED = re.compile(r"^(?:class (\w+)|( *)def (\w+))", re.MULTILINE)


def functions(path: Path) -> set[str]:
    """Names of a file's functions and methods, as node ids have them; to parse every file would take longer."""
    found, owner = set(), ""
    for class_name, indented, name in DEFINED.findall(path.read_text(encoding="utf-8")):
        owner = class_name or (owner if indented else "")
        if name:
            found.add(f"{owner}::{name}" if owner else name)
    return found


def test_every_line_names_a_test() -> None:
    """A test that was renamed would run in `make test` again, however long it takes."""
    by_file: dict[str, set[str]] = {}
    for nodeid in soak_list():
        file, _, name = nodeid.partition("::")
        by_file.setdefault(file, set()).add(name.partition("[")[0])
    gone = [file for file in by_file if not (ROOT / file).exists()]
    assert gone == []
    unknown = {file: names - functions(ROOT / file) for file, names in by_file.items()}
    assert {file: names for file, names in unknown.items() if names} == {}
