from __future__ import annotations

import sqlite3
from pathlib import Path

from benchmarks.choose_tests import Timed, arcs_in, choose, timed_in

ARCS = {"quick": frozenset({1}), "long": frozenset({1, 2}), "longer": frozenset({2}), "named": frozenset(),
        "rare": frozenset({3})}  # fmt: skip
TESTS = [Timed("quick", 0.1), Timed("long", 2.0), Timed("longer", 3.0), Timed("named", 50.0), Timed("rare", 20.0)]


def test_what_adds_nothing_is_left() -> None:
    """Quick and named tests stay, then what adds most for its time; of two that run the same, the shorter."""
    choice = choose(TESTS, ARCS, 100.0, ("named",))
    assert [test.nodeid for test in choice.kept] == ["quick", "named", "long", "rare"]
    assert ([test.nodeid for test in choice.left], choice.lost, choice.all) == (["longer"], 0, 3)


def test_what_the_time_does_not_allow_is_counted() -> None:
    """Where the seconds are spent, what only tests left over run is lost, and said."""
    choice = choose(TESTS, ARCS, 53.0, ("named",))
    assert (sorted(test.nodeid for test in choice.left), choice.lost) == (["longer", "rare"], 1)


def test_files_are_read_as_they_are_written(tmp_path: Path) -> None:
    """Node ids of functions and methods from JUnit's names, and arcs by the last part of a context."""
    junit = tmp_path / "junit.xml"
    junit.write_text(
        '<testsuite><testcase classname="tests.a.test_b" name="test_c[x.y]" time="1.5"/>'
        '<testcase classname="tests.a.test_b.TestD" name="test_e" time="0.5"/></testsuite>'
    )
    assert timed_in(junit) == [
        Timed("tests/a/test_b.py::test_c[x.y]", 1.5),
        Timed("tests/a/test_b.py::TestD::test_e", 0.5),
    ]
    with sqlite3.connect(tmp_path / "data") as data:
        data.execute("create table context (id, context)")
        data.execute("create table arc (file_id, context_id, fromno, tono)")
        contexts = [(1, "none|tests/a.py::test_b"), (2, "tests/a.py::test_b"), (3, "none")]
        data.executemany("insert into context values (?, ?)", contexts)
        data.executemany(
            "insert into arc values (?, ?, ?, ?)", [(1, 1, 1, 2), (1, 2, 2, 3), (2, 2, 1, 2), (1, 3, 2, 3)]
        )
    # What runs outside of tests, too, is none of theirs.
    assert arcs_in(tmp_path / "data") == {"tests/a.py::test_b": frozenset({0, 2})}
