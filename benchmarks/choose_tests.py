"""Which tests `make test` can do without: those that take long and run no line or branch that others do not.

    (a run of all tests with coverage, as benchmarks/coverage_context.py says)
    python benchmarks/choose_tests.py --junit junit.xml --coverage .coverage --seconds 650

Quick tests stay, and so do those whose names begin as --keep says. Of the others those stay that add the most lines
and branches for their time, until nothing is added or the seconds are spent. What is left over is written, one node id
a line, to tests/soak.txt, which tests/conftest.py marks `soak`. Prints how many lines and branches no other test runs.
What runs outside of any test, as imports do, is not counted. What those take that stay is written by file, for
tests/shares.py, to tests/seconds.txt; `--seconds-only` writes this alone, of tests that tests/soak.txt does not name.
"""

from __future__ import annotations

import argparse
import heapq
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

QUICK_SECONDS = 0.1
OUTSIDE = "none"
"""Context of what runs before the first test."""
LONG_SECONDS = 1.0
"""From here on what a file takes is written."""
SOAK = Path("tests/soak.txt")
SECONDS = Path("tests/seconds.txt")
HEADER = """\
# Tests that `make soak` runs and `make test` does not: they take long, and run hardly a line or branch that others do
# not.
# Written by benchmarks/choose_tests.py from measured times and coverage; a line may be taken out by hand.
"""


SECONDS_HEADER = """\
# Seconds that the tests of a file take in `make test`, where it is one and more.
# Written by benchmarks/choose_tests.py for tests/shares.py. It need not be exact.
"""


@dataclass(frozen=True)
class Timed:
    """A test: its node id, and what it took."""

    nodeid: str
    seconds: float


@dataclass(frozen=True)
class Choice:
    """`kept` and `left` tests, how many arcs only the ones left over run, and how many there are."""

    kept: tuple[Timed, ...]
    left: tuple[Timed, ...]
    lost: int
    all: int


def choose(tests: Iterable[Timed], arcs: Mapping[str, frozenset[int]], seconds: float, keep: tuple[str, ...]) -> Choice:
    """Keep what is quick or named, then greedily what adds most arcs for its time."""
    tests = list(tests)
    kept = [test for test in tests if test.seconds <= QUICK_SECONDS or test.nodeid.startswith(keep)]
    chosen = {test.nodeid for test in kept}
    others = [test for test in tests if test.nodeid not in chosen]
    covered = set().union(*(arcs.get(test.nodeid, frozenset()) for test in kept))
    left_seconds = seconds - sum(test.seconds for test in kept)
    queue = [(-_gain(test, arcs, covered), number, test) for number, test in enumerate(others)]
    heapq.heapify(queue)
    left: list[Timed] = []
    while queue:
        _, number, test = heapq.heappop(queue)
        gain = _gain(test, arcs, covered)
        if queue and gain < -queue[0][0]:
            heapq.heappush(queue, (-gain, number, test))  # others have covered some of it since
            continue
        if gain <= 0 or test.seconds > left_seconds:
            left.append(test)
            continue
        kept.append(test)
        left_seconds -= test.seconds
        covered |= arcs[test.nodeid]
    everything = set().union(*arcs.values()) if arcs else set()
    return Choice(tuple(kept), tuple(left), len(everything - covered), len(everything))


def _gain(test: Timed, arcs: Mapping[str, frozenset[int]], covered: set[int]) -> float:
    return len(arcs.get(test.nodeid, frozenset()) - covered) / test.seconds


def timed_in(junit: Path) -> list[Timed]:
    """The tests of a JUnit file, each once."""
    found: dict[str, float] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        *folders, name = str(case.get("classname")).split(".")
        module, of_class = [*folders, name], ""
        if name[:1].isupper():
            module, of_class = folders, f"{name}::"
        nodeid = f"{'/'.join(module)}.py::{of_class}{case.get('name')}"
        found[nodeid] = found.get(nodeid, 0.0) + float(case.get("time") or 0.0)
    return [Timed(nodeid, max(seconds, 1e-4)) for nodeid, seconds in found.items()]


def arcs_in(coverage: Path) -> dict[str, frozenset[int]]:
    """What each test has run, as numbers of arcs, from a data file of coverage whose contexts are node ids."""
    found: dict[str, set[int]] = defaultdict(set)
    numbers: dict[tuple[int, int, int], int] = {}
    with sqlite3.connect(coverage) as data:
        names = {row[0]: row[1].rpartition("|")[2] for row in data.execute("select id, context from context")}
        for file, context, start, end in data.execute("select file_id, context_id, fromno, tono from arc"):
            number = numbers.setdefault((file, start, end), len(numbers))
            found[names[context]].add(number)
    outside = found.pop(OUTSIDE, set())
    return {name: frozenset(own - outside) for name, own in found.items()}


def seconds_by_file(tests: Iterable[Timed]) -> dict[str, float]:
    """What the tests of a file take together, where that is long."""
    found: dict[str, float] = defaultdict(float)
    for test in tests:
        found[test.nodeid.partition("::")[0]] += test.seconds
    return {file: found[file] for file in sorted(found) if found[file] >= LONG_SECONDS}


def write_seconds(tests: Iterable[Timed]) -> None:
    """Write them for tests/shares.py."""
    lines = (f"{seconds:.1f} {file}\n" for file, seconds in seconds_by_file(tests).items())
    SECONDS.write_text(SECONDS_HEADER + "".join(lines), encoding="utf-8")


def _split(tests: Iterable[Timed], belongs: Callable[[Timed], bool]) -> tuple[list[Timed], list[Timed]]:
    parts: tuple[list[Timed], list[Timed]] = ([], [])
    for test in tests:
        parts[not belongs(test)].append(test)
    return parts


def main() -> None:
    """Write the list, and print what it saves and loses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--junit", type=Path, required=True)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--coverage", type=Path)
    how.add_argument("--seconds-only", action="store_true", help="write tests/seconds.txt and choose nothing")
    parser.add_argument("--seconds", type=float, default=400.0, help="of all tests that stay together")
    parser.add_argument("--keep", nargs="*", default=["tests/judges/"], metavar="PREFIX", help="of node ids that stay")
    parser.add_argument("--leave", nargs="*", default=[], metavar="PREFIX", help="of node ids that are left over")
    options = parser.parse_args()
    if options.seconds_only:
        soak = set(SOAK.read_text(encoding="utf-8").splitlines())
        write_seconds(test for test in timed_in(options.junit) if test.nodeid not in soak)
        return
    leave = tuple(options.leave)
    named, tests = _split(timed_in(options.junit), lambda test: test.nodeid.startswith(leave))
    choice = choose(tests, arcs_in(options.coverage), options.seconds, tuple(options.keep))
    choice = replace(choice, left=(*choice.left, *named))
    SOAK.write_text(HEADER + "".join(f"{name}\n" for name in sorted(test.nodeid for test in choice.left)))
    write_seconds(choice.kept)
    for what, group in (("stay", choice.kept), ("are left to make soak", choice.left)):
        print(f"{len(group)} tests of {sum(test.seconds for test in group):.0f} s {what}")
    print(f"{choice.lost} of {choice.all} lines and branches are run by the latter only")


if __name__ == "__main__":
    main()
