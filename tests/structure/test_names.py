"""Names say what functions do, and no two classes share one; counted by `benchmarks/names.py`."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from benchmarks.names import count_repeated_lines, list_functions, list_repeated_names

ROOT = Path(__file__).parents[2]
TOPS = ("pytest_attnperf", "kernels")
ONE_WORD_MOST = 0.15
PARTICIPLES_MOST = 0.005


def test_names_say_what_functions_do() -> None:
    """Few functions have one word as their name, and hardly one a bare participle."""
    functions = list_functions(ROOT, TOPS)
    participles = [f"{named.path}:{named.line} {named.name}" for named in functions if named.is_participle]
    assert sum(named.is_one_word for named in functions) <= ONE_WORD_MOST * len(functions)
    assert len(participles) <= PARTICIPLES_MOST * len(functions), participles


def test_no_two_classes_share_a_name() -> None:
    """In the package and the kernels together."""
    files: dict[str, list[str]] = defaultdict(list)
    for top in TOPS:
        for path in (ROOT / top).rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    files[node.name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in files.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    ("source", "one_word", "participle"),
    [
        ("def _told(): pass", True, True),
        ("def listed(): pass", True, True),
        ("def kept_files(): pass", False, False),
        ("def close(): pass", True, False),
        ("class A:\n    @property\n    def chosen(self): pass", True, False),
        ("class A:\n    @functools.cached_property\n    def chosen(self): pass", True, False),
    ],
)
def test_what_counts(tmp_path: Path, source: str, one_word: bool, participle: bool) -> None:
    """A property may be called by a participle, and a name of two words is none."""
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "a.py").write_text(source)
    (named,) = list_functions(tmp_path, ["top"])
    assert (named.is_one_word, named.is_participle) == (one_word, participle)


def test_special_names_do_not_count(tmp_path: Path) -> None:
    """Nobody here has chosen `__init__`, or the name of a hook of pytest."""
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "a.py").write_text("def pytest_configure(): pass\nclass A:\n    def __init__(self): pass")
    assert list_functions(tmp_path, ["top"]) == []


def test_repetition_is_counted(tmp_path: Path) -> None:
    """A name in four files; six equal lines in two files, but not five."""
    (tmp_path / "top").mkdir()
    body = "\n".join(f"    step({at})" for at in range(5))
    for name in "abcd":
        (tmp_path / "top" / f"{name}.py").write_text(f"def work():\n{body}\n    end({name!r})\n")
    assert {name: len(files) for name, files in list_repeated_names(list_functions(tmp_path, ["top"])).items()} == {
        "work": 4
    }
    assert count_repeated_lines(tmp_path, ["top"]) == 18
    for name in "abcd":
        (tmp_path / "top" / f"{name}.py").write_text(f"def {name}():\n{body}\n    end({name!r})\n")
    assert count_repeated_lines(tmp_path, ["top"]) == 0
