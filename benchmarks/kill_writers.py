"""What kill -9 and concurrent writers do to baselines, results, ceilings, journals and cached objects.

    python benchmarks/kill_writers.py [--kills 1000] [--writers 8] [--updates 200] [--seed 1]

--kills: a process writes one version after the other and is killed at a random moment. Then the file must be, to the
last byte, the version that was there or the one that was being written; a journal must hold every line that was
written, and no damaged one but the last. The next writer must get the lock at once and clear away what is left.
--writers x --updates: processes that merge into the same baseline files, each entries of its own and now and then one
that all of them write. Exit status 1 where anything is lost or torn.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import filelock

from pytest_attnperf.baselines import writing
from pytest_attnperf.baselines.ceilings_store import CeilingsStore, compute_median_ceilings
from pytest_attnperf.baselines.schema import decode_baseline as decode_baselines
from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.baselines.writing import NewEntry, Replacement, entry_from, merge_entries, replace_entries
from pytest_attnperf.codeobject.object_cache import ObjectCache
from pytest_attnperf.measure.ceiling_walk import BYTES, FLOPS, CeilingFigure
from pytest_attnperf.measure.ceilings import ProcessCeilings
from pytest_attnperf.plugin.features.journal.journaling import JournalWriter, list_unfinished
from pytest_attnperf.records import CheckReport, DeviceInfo, ErrorFigures, Fingerprint, Measurement, ProcessSummary
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.files.journal import (
    JOURNAL_SCHEMA,
    JournalEntry,
    JournalHeader,
    case_line,
    header_line,
    read_content,
)
from pytest_attnperf.testing.sample_runs import sample_run

PLACE = ("sm_90", "h200", "prefill")
VERSIONS = 6
WRITES_TO_LIVE = 3.0
"""A child is killed at a moment drawn from the time in which it writes so often."""

UPDATES_OF_A_FILE = 10
"""All writers go on to the next file after so many: every merge reads and checks the whole file, and takes as long."""

SHARED_EVERY = 10
SHARED = "all/shared"


@dataclass(frozen=True)
class Target:
    """A file that is written in versions.

    write      put version n there
    path       the file
    expected   the bytes of each version
    lock       what a writer holds; None where writers take no turns
    write_s    how long a write takes
    """

    name: str
    write: Callable[[int], object]
    path: Path
    expected: tuple[bytes, ...]
    lock: Path | None = None
    write_s: float = 0.005


@dataclass
class Tally:
    """What was seen. `problems`: what was torn, lost or blocked, in words."""

    kills: int = 0
    old: int = 0
    new: int = 0
    left_over: int = 0
    problems: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


class Progress:
    """Numbers of the version that a child begins and has written, seen by its parent at any moment."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 16)

    def begin(self, version: int) -> None:
        """Before a write."""
        self._shared[:8] = struct.pack("q", version)

    def done(self, version: int) -> None:
        """After it."""
        self._shared[8:] = struct.pack("q", version)

    def read(self) -> tuple[int, int]:
        """(begun, done)."""
        begun, done = struct.unpack("qq", self._shared[:])
        return begun, done


def new_entry(median_us: float) -> NewEntry:
    """A right case of this median."""
    process = ProcessSummary(median_us, median_us, median_us, (median_us,) * 9, 20, "graph")
    proof = (CheckReport(figures=(ErrorFigures("fresh", "out", 0.01, 0.02, 0.001, 0.01),)),) * 7
    measurement = Measurement((process,) * 7, proof, 4096)
    here = Fingerprint({"product": "h200"}, {"torch": "2.11"})
    return NewEntry(measurement, {"shape": (1, 2)}, here, {"threshold_percent": 2.0}, "2026-01-02", "0.1.0")


def made(folder: Path, name: str) -> Target:
    """A target with the bytes of all its versions, taken from writing each of them without a kill."""
    target = MAKERS[name](folder)
    expected, began = [], time.monotonic()
    for version in (*range(VERSIONS), *range(VERSIONS)):  # an anchor stays at the fastest: the second round's hold
        target.write(version)
        expected.append(target.path.read_bytes())
    target.write(0)
    took = (time.monotonic() - began) / (2 * VERSIONS + 1)
    return replace(target, expected=tuple(expected[VERSIONS:]), write_s=took)


def _merging(folder: Path) -> Target:
    store = BaselineStore(folder)
    records = [{f"ck/{n}": new_entry(100.0 + version) for n in range(20)} for version in range(VERSIONS)]
    path = folder.joinpath(*PLACE[:2], "prefill.json")
    return Target("merge", lambda n: merge_entries(store, folder, *PLACE, records[n]), path, (), _lock_of(path))


def _accepting(folder: Path) -> Target:
    store = BaselineStore(folder)
    records = [new_entry(100.0 + version) for version in range(VERSIONS)]
    merge_entries(store, folder, *PLACE, {"ck/a": records[0], "ck/b": records[0]})
    path = folder.joinpath(*PLACE[:2], "prefill.json")

    def write(version: int) -> None:
        found, record = store.find(*PLACE, "ck/a"), records[version]
        assert found is not None
        new = Replacement(found.entry, entry_from(record), record.fingerprint, record.policy)
        replace_entries(store, folder, *PLACE, {"ck/a": new})

    return Target("accept", write, path, (), _lock_of(path))


def _results(folder: Path) -> Target:
    runs, path = [sample_run(40, seed=version) for version in range(VERSIONS)], folder / "results.json"
    return Target("results", lambda n: json_results.write(path, runs[n]), path, ())


def _ceilings(folder: Path) -> Target:
    device, store = DeviceInfo("cuda", "sm_90", "h200", compute_units=132), CeilingsStore(folder)
    here = Fingerprint({"power_cap_w": "700"}, {"torch": "2.11"})
    stored = []
    for version in range(VERSIONS):
        figures = {
            "f16": CeilingFigure(7e14 + version * 1e12, FLOPS, "8192"),
            "copy": CeilingFigure(4.2e12, BYTES, "2048 MiB"),
        }
        stored.append(compute_median_ceilings([ProcessCeilings(device, here, figures, {})] * 3, "2026-01-02"))
    path = store.write(folder, stored[0])
    return Target("ceilings", lambda n: store.write(folder, stored[n]), path, (), _lock_of(path))


def _objects(folder: Path) -> Target:
    cache, contents = ObjectCache(folder), [bytes([65 + version]) * 100_000 for version in range(VERSIONS)]
    return Target("object", lambda n: cache.store("one", contents[n]), folder / "one.object", ())


MAKERS = {"merge": _merging, "accept": _accepting, "results": _results, "ceilings": _ceilings, "object": _objects}


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def killed(work: Callable[[Progress], None], dice: random.Random, write_s: float) -> tuple[int, int]:
    """(begun, done) of a child that does this until it is killed at a random moment after its first write began."""
    progress = Progress()
    child = os.fork()
    if child == 0:
        try:
            work(progress)
        finally:
            os._exit(1)
    deadline = time.monotonic() + 10
    while progress.read()[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.0005)
    time.sleep(dice.uniform(0, WRITES_TO_LIVE * write_s))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise RuntimeError(f"a writer ended by itself, with wait status {status}")
    return progress.read()


def kill_target(target: Target, dice: random.Random, tally: Tally) -> None:
    """One kill of a process that writes the target's versions in turn, and what it left."""
    first = next(n for n, data in enumerate(target.expected) if data == target.path.read_bytes())

    def work(progress: Progress) -> None:
        for count in range(1, 1 << 30):
            progress.begin(count)
            target.write((first + count) % VERSIONS)
            progress.done(count)

    begun, done = killed(work, dice, target.write_s)
    data = target.path.read_bytes()
    old, new = (target.expected[(first + count) % VERSIONS] for count in (done, begun))
    tally.kills += 1
    tally.old += data == old
    tally.new += data == new != old
    if data not in (old, new):
        tally.problems.append(f"{target.name}: {len(data)} bytes that nobody had just written")
    if target.lock is not None:
        try:
            with filelock.FileLock(target.lock, timeout=1):
                pass
        except filelock.Timeout:
            tally.problems.append(f"{target.name}: the lock is still held")
    left = {path.name for path in target.path.parent.glob(".*.tmp")}
    tally.left_over += len(left - tally.seen)
    tally.seen = left


def kill_journal(folder: Path, lines: Sequence[bytes], dice: random.Random, tally: Tally) -> None:
    """One kill of a process that appends to a journal; every line that it had written must be there."""
    header = JournalHeader(JOURNAL_SCHEMA, "0.1.0", 1, "", "gate", {}, len(lines), len(lines), "pytest", "", "", 1)

    def work(progress: Progress) -> None:
        writer = JournalWriter(folder, [header_line(header)])
        for count in range(1, 1 << 30):
            progress.begin(count)
            writer.append(lines[(count - 1) % len(lines)])
            progress.done(count)

    begun, done = killed(work, dice, 0.01)
    tally.kills += 1
    (path,) = list_unfinished(folder)
    whole = path.read_bytes().count(b"\n") - 1
    tally.old += whole == done
    tally.new += whole == begun != done
    if not done <= whole <= begun:
        tally.problems.append(f"journal: {whole} lines of {done} written and {begun} begun")
    if len(read_content(path).cases) != min(whole, len(lines)):
        tally.problems.append("journal: what was written is not what is read")
    path.unlink()


def kill_all(folder: Path, kills: int, seed: int) -> dict[str, Tally]:
    """So many kills, in turn over all kinds of files; what one more writer finds and leaves at the end.

    These writers are alone: they do not wait out of courtesy, or most kills would come while nothing is written.
    """
    with mock.patch.object(writing, "COURTESY_S", 0.0):
        return _kill_all(folder, kills, seed)


def _kill_all(folder: Path, kills: int, seed: int) -> dict[str, Tally]:
    dice = random.Random(seed)
    targets = []
    for name in MAKERS:
        (folder / name).mkdir()
        targets.append(made(folder / name, name))
    journal, cases = folder / "journal", sample_run(60).cases
    journal.mkdir()
    lines = [case_line(JournalEntry(case, {})) for case in cases]
    tallies = {name: Tally() for name in (*MAKERS, "journal")}
    for number in range(kills):
        name = list(tallies)[number % len(tallies)]
        if name == "journal":
            kill_journal(journal, lines, dice, tallies[name])
        else:
            kill_target(targets[list(MAKERS).index(name)], dice, tallies[name])
    for target in targets:
        target.write(1)
        left = [path.name for path in target.path.parent.glob(".*.tmp")]
        if target.path.read_bytes() != target.expected[1] or left:
            tallies[target.name].problems.append(f"the next writer left {left or 'another version'}")
    return tallies


def _suite_of(count: int) -> str:
    return f"prefill{count // UPDATES_OF_A_FILE}"


def update(root: Path, number: int, updates: int) -> None:
    """One of several writers: an entry of its own each time, and now and then the one that all of them write."""
    store = BaselineStore(root)
    for count in range(updates):
        records = {f"writer{number}/{count}": new_entry(100.0 + count)}
        if (count + 1) % SHARED_EVERY == 0:
            records[SHARED] = new_entry(1000.0 * (number + 1) + count)
        merge_entries(store, root, *PLACE[:2], _suite_of(count), records)


def lost_updates(root: Path, writers: int, updates: int) -> list[str]:
    """What concurrent writers of one file lost, in words; empty where every update is there."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=update, args=(root, number, updates)) for number in range(writers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    problems = [f"writer {n} ended with {p.exitcode}" for n, p in enumerate(processes) if p.exitcode]
    for first in range(0, updates, UPDATES_OF_A_FILE):
        path, counts = (
            root.joinpath(*PLACE[:2], f"{_suite_of(first)}.json"),
            range(first, min(first + UPDATES_OF_A_FILE, updates)),
        )
        found = decode_baselines(path.read_bytes(), "the file").entries
        expected = {f"writer{n}/{count}": 100.0 + count for n in range(writers) for count in counts}
        times = {name: entry.processes[0].median_us for name, entry in found.items()}
        problems += [f"{name} is lost" for name, us in expected.items() if times.get(name) != us]
        last = [count for count in counts if (count + 1) % SHARED_EVERY == 0][-1:]
        if last and times.get(SHARED) not in [1000.0 * (n + 1) + last[0] for n in range(writers)]:
            problems.append(f"the shared entry is {times.get(SHARED)}, which is nobody's last update")
    return problems


def main(arguments: Sequence[str] | None = None) -> int:
    """Do both, and say what was seen; 1 where something was torn or lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="attnperf-kills-") as name:
        folder = Path(name)
        began = time.monotonic()
        for kind, tally in kill_all(folder, asked.kills, asked.seed).items():
            problems += tally.problems
            print(
                f"{kind:9s} {tally.kills:4d} kills: {tally.old} left the old version, {tally.new} the new one, "
                f"{len(tally.problems)} torn or lost; {tally.left_over} temporary files left"
            )
        print(f"{asked.kills} kills in {time.monotonic() - began:.1f} s")
        began = time.monotonic()
        lost = lost_updates(folder / "together", asked.writers, asked.updates)
        problems += lost
        told = f"{asked.writers} writers x {asked.updates} updates in {time.monotonic() - began:.1f} s"
        print(f"{told}: {len(lost)} lost")
    for problem in problems[:20]:
        print(problem)
    print(f"torn or lost: {len(problems)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
