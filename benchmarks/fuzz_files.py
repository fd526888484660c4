"""Damages files of every kind that is read, and lets the commands read them: only clean errors may come of it.

    python benchmarks/fuzz_files.py --files 100000 --processes 2
    python benchmarks/fuzz_files.py --reader claims --seed 7 --files 5000
    python benchmarks/fuzz_files.py --again FINDING.json        one that was found, with its traceback

A file may be accepted or refused (AttnperfError, OSError, or a command's exit status 0, 1, 2 without a letter that a
terminal would obey). Everything else is a finding: another exception, more than a second of processor time, memory, a
file written outside of the folder given, a process, a socket, code evaluated, a name unpickled. Findings are shortened
and kept in --findings, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tabulate import tabulate

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from benchmarks.fuzz.guard import Guard, Outcome  # noqa: E402
from benchmarks.fuzz.readers import all_readers  # noqa: E402
from benchmarks.fuzz.reading import Read, Reader, damaged  # noqa: E402
from pytest_attnperf.errors import AttnperfError  # noqa: E402

EXTRA_BYTES = 3 << 30
SHORTENED = 60
"""Attempts at making a finding's file shorter."""
KEPT_OF_A_KIND = 3
CHUNK = 100
FEW = 5_000
"""Up to so many files, one sound file of each reader is enough to begin with, and rare readers are left out: what
draws a page loads a second of libraries."""
RARE = 0.25


@dataclass
class Tally:
    """Of one reader. slowest_s: processor time of the slowest file."""

    files: int = 0
    accepted: int = 0
    refused: int = 0
    findings: int = 0
    slowest_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count one."""
        self.files += 1
        self.accepted += outcome.kind == "accepted"
        self.refused += outcome.kind == "refused"
        self.findings += outcome.is_finding
        self.slowest_s = max(self.slowest_s, outcome.seconds)

    def join(self, other: Tally) -> None:
        """Of the same reader in another process."""
        for name in ("files", "accepted", "refused", "findings"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest_s = max(self.slowest_s, other.slowest_s)


@dataclass(frozen=True)
class Finding:
    """A file that did what it must not; `number` is the one of the reader's functions that read it."""

    reader: str
    number: int
    kind: str
    text: str
    data: bytes

    def record(self) -> dict[str, object]:
        """As JSON."""
        return {"reader": self.reader, "number": self.number, "kind": self.kind, "text": self.text,
                "data": base64.b64encode(self.data).decode()}  # fmt: skip


@dataclass
class Fuzzer:
    """Reads damaged files in this process, in a folder of its own, which becomes the current one.

    few: so few files will be read that rare readers are left out
    """

    scratch: Path
    few: bool = False
    guard: Guard = field(init=False)
    readers: list[Reader] = field(init=False)
    tallies: dict[str, Tally] = field(init=False)

    def __post_init__(self) -> None:
        self.scratch.mkdir(parents=True, exist_ok=True)
        os.chdir(self.scratch)
        tempfile.tempdir = str(self.scratch)
        self.guard = Guard(self.scratch)
        self.readers = [one for one in all_readers(self.scratch) if not self.few or one.share > RARE]
        self.tallies = {reader.name: Tally() for reader in self.readers}

    def warm_up(self) -> list[str]:
        """Read every sound file once, unwatched, so that what a first call imports is there; what of them fails.

        Where few files follow, one sound file of each reader.
        """
        failed = []
        for reader in self.readers:
            for number, read in enumerate(reader.reads):
                for data in reader.sound[: 1 if self.few else None]:
                    failed += self._sound(f"{reader.name} [{number}]", read, self.places(reader, data))
        return failed

    @staticmethod
    def _sound(name: str, read: Read, places: tuple[Path, Path]) -> list[str]:
        try:
            read(*places)
        except (AttnperfError, OSError):
            return []
        except Exception as error:
            return [f"{name}, a sound file: {type(error).__name__} {error}"]
        return []

    def places(self, reader: Reader, data: bytes) -> tuple[Path, Path]:
        """A file of these bytes, and an empty folder."""
        given, folder = self.scratch / "given", self.scratch / "folder"
        for place in (given, folder):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
        (given / reader.file).write_bytes(data)
        return given / reader.file, folder

    def once(self, reader: Reader, number: int, data: bytes) -> Outcome:
        """Let one of a reader's functions read these bytes."""
        file, folder = self.places(reader, data)
        return self.guard.watch(lambda: reader.reads[number](file, folder))

    def run(self, seed: str, files: int, wanted: str = "") -> Iterator[Finding]:
        """Read so many damaged files, spread over the readers by their shares."""
        rng = random.Random(seed)
        readers = [reader for reader in self.readers if wanted in reader.name]
        shares = [reader.share for reader in readers]
        for reader in rng.choices(readers, shares, k=files):
            data, number = damaged(reader, rng), rng.randrange(len(reader.reads))
            outcome = self.once(reader, number, data)
            self.tallies[reader.name].add(outcome)
            if outcome.is_finding:
                yield Finding(reader.name, number, outcome.kind, outcome.text, data)

    def shorter(self, found: Finding) -> Finding:
        """The same with a file that was cut as far as a few attempts get."""
        reader = next(one for one in self.readers if one.name == found.reader)
        data, part = found.data, max(1, len(found.data) // 2)
        attempts = SHORTENED if found.kind != "hang" else 0
        at = 0
        while attempts > 0 and part:
            trial = data[:at] + data[at + part :]
            outcome = self.once(reader, found.number, trial) if trial != data else None
            attempts -= 1
            if outcome is not None and outcome.kind == found.kind:
                data = trial
            else:
                at += part
            if at >= len(data):
                at, part = 0, part // 2
        return Finding(found.reader, found.number, found.kind, found.text, data)


def work(options: argparse.Namespace, number: int, scratch: Path) -> None:
    """One process's part; writes what came of it to scratch/answer.json."""
    kept = options.findings.absolute()
    fuzzer = Fuzzer(scratch / "read", few=options.files <= FEW and not options.reader)
    failed = fuzzer.warm_up()
    fuzzer.guard.install()
    fuzzer.guard.limit_memory(EXTRA_BYTES)
    kinds: Counter[str] = Counter()
    ends = time.monotonic() + 60 * options.minutes if options.minutes else math.inf
    for part in range(0, options.files, CHUNK):
        if time.monotonic() > ends:
            break
        for found in fuzzer.run(f"{options.seed}-{number}-{part}", min(CHUNK, options.files - part), options.reader):
            name = f"{found.reader}: {found.kind} {found.text[:160]}"
            kinds[name] += 1
            if kinds[name] <= KEPT_OF_A_KIND:
                keep(fuzzer.shorter(found), kept, f"{number}-{len(kinds)}-{kinds[name]}")
    findings = [*failed, *(f"{count} x {name}" for name, count in kinds.most_common())]
    tallies = {name: asdict(tally) for name, tally in fuzzer.tallies.items()}
    (scratch / "answer.json").write_text(json.dumps({"tallies": tallies, "findings": findings}))


def parts(options: argparse.Namespace, scratch: Path) -> tuple[dict[str, Tally], list[str]]:
    """What came of all processes. One that dies is a finding, with the file that it was reading."""
    each = -(-options.files // options.processes)
    running = []
    for number in range(options.processes):
        own = scratch / f"process{number}"
        own.mkdir()
        words = ["--files", str(each), "--seed", options.seed, "--reader", options.reader, "--findings",
                 str(options.findings.absolute()), "--minutes", str(options.minutes),
                 "--work", str(number), str(own)]  # fmt: skip
        running.append((own, subprocess.Popen([sys.executable, str(Path(__file__).resolve()), *words])))
    tallies: dict[str, Tally] = {}
    findings: list[str] = []
    for own, process in running:
        status = process.wait()
        if status:
            kept = shutil.copytree(own / "read" / "given", options.findings / f"died-{own.name}", dirs_exist_ok=True)
            findings.append(f"a process ended with {status} while it read what is in {kept}")
            continue
        answer = json.loads((own / "answer.json").read_bytes())
        findings += answer["findings"]
        for name, tally in answer["tallies"].items():
            tallies.setdefault(name, Tally()).join(Tally(**tally))
    return tallies, findings


def keep(found: Finding, folder: Path, name: str) -> None:
    """Write a finding to be looked at."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(found.record(), indent=1))


def again(path: Path) -> int:
    """Read the file of a finding unguarded, with its traceback."""
    held = json.loads(path.read_text())
    with tempfile.TemporaryDirectory(prefix="attnperf-fuzz-") as scratch:
        fuzzer = Fuzzer(Path(scratch))
        reader = next(one for one in fuzzer.readers if one.name == held["reader"])
        (fuzzer.scratch / "folder").mkdir()
        file = fuzzer.scratch / reader.file
        file.write_bytes(base64.b64decode(held["data"]))
        print(f"{held['reader']} [{held['number']}]: {held['kind']} {held['text']}\n{file.read_bytes()[:2000]!r}")
        reader.reads[held["number"]](file, fuzzer.scratch / "folder")
    return 0


def table(tallies: dict[str, Tally]) -> str:
    """A line for each reader, and one for all."""
    total = Tally()
    rows = []
    for name, tally in tallies.items():
        if tally.files:
            total.join(tally)
            rows.append(
                [name, tally.files, tally.refused, tally.accepted, f"{1000 * tally.slowest_s:.0f}", tally.findings]
            )
    rows.append(["all", total.files, total.refused, total.accepted, f"{1000 * total.slowest_s:.0f}", total.findings])
    return tabulate(rows, ["reader", "files", "refused", "accepted", "slowest, ms", "findings"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Read damaged files in several processes, print what came of it; 1 where there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=0.0, metavar="M", help="stop after so long (default: never)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--reader", default="", help="only readers whose name has this in it")
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz"), metavar="DIR")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--again", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if options.again:
        return again(options.again)
    if options.work:
        work(options, int(options.work[0]), Path(options.work[1]))
        return 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="attnperf-fuzz-") as scratch:
        tallies, findings = parts(options, Path(scratch))
    print(table(tallies))
    print(f"{time.monotonic() - started:.0f} s in {options.processes} processes, seed {options.seed}")
    print("\n".join(findings) or "no finding")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
