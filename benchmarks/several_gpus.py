"""How much sooner several GPUs are done than one, and whether they say the same.

    python benchmarks/several_gpus.py run OUT one -- --attnperf suites/ --attnperf-pin-gpu=0
    python benchmarks/several_gpus.py run OUT two -- --attnperf suites/ -n auto
    python benchmarks/several_gpus.py show OUT one two

`run` types pytest and keeps its results and its wall time in OUT; `show` needs no GPU. Start-up is what a run takes
beyond the seconds that its busiest GPU spends on cases: interpreters, imports, collection, and the end. Two runs in a
row differ in clocks and temperature, too: times are compared case by case, as new / old.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.records import CaseKey
from pytest_attnperf.reports.files.json_results import decode
from pytest_attnperf.results import CaseResult, RunResult

SETTLED = ("SAME", "FASTER", "SLOWER", "RIGHT", "RECORDED", "UNSUPPORTED", "INCORRECT", "ERROR", "SUSPICIOUS")
SHOWN = 12


@dataclass(frozen=True)
class Timed:
    """A run, its wall time from the first to the last moment of its process, and pytest's exit status."""

    name: str
    wall_s: float
    status: int
    run: RunResult

    @property
    def busy_s(self) -> dict[str, float]:
        """Seconds spent on cases, by GPU; a case that started no process counts for none."""
        found: defaultdict[str, float] = defaultdict(float)
        for case in self.run.cases:
            if card := card_of(case):
                found[card] += case.seconds
        return dict(found)

    @property
    def judging_s(self) -> float:
        """Seconds that the cases took on the busiest GPU, those of no GPU shared by all."""
        known = self.busy_s
        rest = sum(case.seconds for case in self.run.cases if not card_of(case))
        count = max(1, len(known))
        return max(known.values(), default=0.0) + rest / count


def card_of(case: CaseResult) -> str:
    """The GPU of a case's first process; '' where it has none."""
    return case.first[0].device_id if case.first else ""


def run(out: Path, name: str, arguments: list[str]) -> int:
    """Type pytest, and keep what it leaves; its exit status, which is 1 where a case failed, is kept, too."""
    out.mkdir(parents=True, exist_ok=True)
    results = (out / f"{name}.json").resolve()
    command = [sys.executable, "-m", "pytest", *arguments, f"--attnperf-results={results}"]
    started = time.monotonic()
    status = subprocess.run(command, check=False).returncode
    wall_s = time.monotonic() - started
    (out / f"{name}.wall").write_text(json.dumps({"wall_s": wall_s, "status": status}))
    print(f"{name}: {wall_s:.1f} s, exit status {status}")
    return 0 if results.is_file() else 2


def read(out: Path, name: str) -> Timed:
    """What `run` kept."""
    kept = json.loads((out / f"{name}.wall").read_text())
    path = out / f"{name}.json"
    return Timed(name, float(kept["wall_s"]), int(kept["status"]), decode(path.read_bytes(), str(path)))


def show(one: Timed, several: Timed) -> int:
    """Print the comparison; 1 where a case that both settled has another verdict."""
    for timed in (one, several):
        startup_s = timed.wall_s - timed.judging_s
        print(
            f"{timed.name}: {timed.wall_s:.1f} s in all, {timed.judging_s:.1f} s of cases on the busiest GPU, "
            f"{startup_s:.1f} s beside them; {len(timed.run.cases)} cases, exit status {timed.status}"
        )
        for card, seconds in sorted(timed.busy_s.items()):
            count = sum(card_of(case) == card for case in timed.run.cases)
            print(f"  {card}: {count} cases, {seconds:.1f} s")
    print(f"whole runs: {one.wall_s / several.wall_s:.2f}x sooner")
    print(f"cases alone: {one.judging_s / several.judging_s:.2f}x sooner")
    different = _verdicts(one.run, several.run)
    _times(one.run, several.run)
    return 1 if different else 0


def _verdicts(one: RunResult, several: RunResult) -> int:
    first, second = _by_key(one), _by_key(several)
    if first.keys() != second.keys():
        print(f"cases of one run only: {len(first.keys() ^ second.keys())}")
    both = sorted(first.keys() & second.keys())
    changed = [key for key in both if first[key].verdict is not second[key].verdict]
    print(f"verdicts: {len(both) - len(changed)} of {len(both)} cases alike")
    for timed, cases in (("first", first), ("second", second)):
        print(f"  {timed}: {dict(sorted(Counter(case.verdict.value for case in cases.values()).items()))}")
    for key in changed[:SHOWN]:
        print(f"  {key}: {first[key].verdict.value} -> {second[key].verdict.value}")
    settled = [key for key in changed if {first[key].verdict.value, second[key].verdict.value} <= set(SETTLED)]
    return len(settled)


def _times(one: RunResult, several: RunResult) -> None:
    """How the times of both runs compare, each with the error that its processes give it."""
    first, second = _by_key(one), _by_key(several)
    logs, far = [], 0
    for key in sorted(first.keys() & second.keys()):
        before, after = first[key], second[key]
        if not before.median_us or not after.median_us:
            continue
        log = math.log(after.median_us / before.median_us)
        logs.append(log)
        error = math.hypot(_error(before), _error(after))
        far += bool(error and abs(log) > max(4 * error, 0.02))
    if len(logs) < 2:
        return
    print(
        f"times: {len(logs)} cases, second / first in the geometric mean {math.exp(statistics.fmean(logs)):.4f}, "
        f"median {math.exp(statistics.median(logs)):.4f}, sd {statistics.stdev(logs) * 100:.2f} %; "
        f"{sum(abs(log) > 0.02 for log in logs)} differ by more than 2 %"
    )
    if any(len(case.first) > 1 for case in first.values()):
        print(f"  of several processes each, {far} differ by more than 2 % and four standard errors")


def _error(case: CaseResult) -> float:
    """Relative standard error of the median of a case's processes (that of a mean, times 1.25)."""
    medians = [process.median_us for process in case.first]
    if len(medians) < 2:
        return 0.0
    return 1.25 * statistics.stdev(medians) / statistics.fmean(medians) / math.sqrt(len(medians))


def _by_key(run: RunResult) -> dict[CaseKey, CaseResult]:
    return {case.key: case for case in run.cases}


def main() -> int:
    """Run or show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    typed = commands.add_parser("run", help="type pytest and keep its results")
    typed.add_argument("out", type=Path)
    typed.add_argument("name")
    typed.add_argument("arguments", nargs="*", help="of pytest, behind --")
    shown = commands.add_parser("show", help="compare two runs that were kept")
    shown.add_argument("out", type=Path)
    shown.add_argument("one")
    shown.add_argument("several")
    options = parser.parse_args()
    if options.command == "run":
        return run(options.out, options.name, options.arguments)
    return show(read(options.out, options.one), read(options.out, options.several))


if __name__ == "__main__":
    sys.exit(main())
