"""Asks whether pytest, as a user types it, finds real slowdowns: edits of our kernels, and the verdicts on them.

    python benchmarks/gate_power.py --json FILE [--minutes 5] [--edits flash_rescale,decode_sum] [--record]
    python benchmarks/gate_power.py --json FILE --runs results.json [results.json ...]
    python benchmarks/gate_power.py --report FILE

Edits (`slowdowns.py`) are made as strong as each level asks for; their true sizes are measured apart, A B B A in
processes of their own. Then `pytest --attnperf` runs in a tree of edited kernels, on one case of each edit, against the
baselines that are stored, and for the levels of --paired with `--attnperf-against` a clean tree. Unchanged kernels run,
too. Edits of tiles have the sizes that they have. Needs a GPU; --dry prints what would run.

--runs adds the decisions of whole runs of unchanged code, from their results (`pytest --attnperf suites`).
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "figures")]

from figures_bounds import lower_bound, upper_bound  # noqa: E402
from figures_records import Collection, Outcome, TrueSize, append, read  # noqa: E402
from figures_trees import plugin_options  # noqa: E402
from tabulate import tabulate  # noqa: E402

from benchmarks.quality.forks import preload  # noqa: E402
from benchmarks.quality.processes import Case  # noqa: E402
from benchmarks.quality.sizing import Trees, choose_strengths, sized  # noqa: E402
from benchmarks.slowdowns import EDITS, environment, make_tree  # noqa: E402
from pytest_attnperf.records import Verdict  # noqa: E402
from pytest_attnperf.reports.files import json_results  # noqa: E402

PLAIN = "plain"
DEFAULT = "gemm_result,decode_sum,rmsnorm_scale,flash_maximum"
STORED, PAIRED, SUITES = "stored", "pairs", "suites"
CASES_SHOWN = 20
"""More cases of one way and label have no lines of their own."""
STORED_LEVELS, PAIRED_LEVELS = "3,5", "1"
THRESHOLD_PERCENT = 0.3
"""Of pairs: at the default of 2 % a slowdown of 1 % is tolerated, and must be."""

Runner = Callable[[Sequence[str], Path, "dict[str, str]"], int]


@dataclass(frozen=True)
class Plan:
    """What was asked for: levels are in per cent, `repeats` how often pytest runs at each."""

    json: Path
    cases: tuple[Case, ...]
    stored: tuple[float, ...]
    paired: tuple[float, ...]
    repeats: int
    record: bool
    dry: bool
    ends: float
    folder: Path
    run: str
    options: tuple[str, ...]

    @property
    def levels(self) -> dict[str, float]:
        """Label -> level as a fraction."""
        return {label_of(level): level / 100 for level in dict.fromkeys((*self.stored, *self.paired))}


def label_of(level: float) -> str:
    """'slow3' of 3 per cent."""
    return f"slow{level:g}"


def main(arguments: Sequence[str] | None = None, runner: Runner | None = None) -> int:
    """Measure or report; 1 where a run of pytest left no results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="measure, and add a line per verdict to FILE")
    parser.add_argument("--report", type=Path, metavar="FILE", help="print what FILE says")
    parser.add_argument("--runs", type=Path, nargs="+", metavar="RESULTS", help="add whole runs of unchanged code")
    parser.add_argument("--edits", default=DEFAULT, help=f"some of {', '.join(EDITS)}; one of each case")
    parser.add_argument("--stored", default=STORED_LEVELS, help="per cent, against stored baselines: %(default)s")
    parser.add_argument("--paired", default=PAIRED_LEVELS, help="per cent, against a clean tree: %(default)s")
    parser.add_argument("--repeats", type=int, default=5, help="runs of pytest at each level")
    parser.add_argument("--record", action="store_true", help="record baselines here first, instead of stored ones")
    parser.add_argument("--minutes", type=float, default=5.0, help="begin no run after that")
    parser.add_argument("--pytest-options", default="", help="--pytest-options=... of every run")
    parser.add_argument("--dry", action="store_true", help="print the commands, at strengths that are not measured")
    given = parser.parse_args(arguments)
    if given.report is not None:
        print(render(read(given.report)))
        return 0
    if given.json is None:
        parser.error("needs --json FILE to measure, or --report FILE to print what was measured")
    if given.runs:
        append(given.json, [one for path in given.runs for one in decisions_of(path)])
        return 0
    names = given.edits.split(",")
    if unknown := [name for name in names if name not in EDITS]:
        parser.error(f"--edits has {', '.join(unknown)}; there are {', '.join(EDITS)}")
    cases = tuple(Case(EDITS[name].backend, EDITS[name].workload, name) for name in names)
    if len({case.name for case in cases}) < len(cases):
        parser.error(f"--edits={given.edits}: two edits slow the same case, whose verdict would say nothing of either")
    with tempfile.TemporaryDirectory(prefix="attnperf-power-") as folder:
        plan = Plan(
            given.json.resolve(), cases, _numbers(given.stored), _numbers(given.paired), given.repeats, given.record,
            given.dry, time.monotonic() + 60 * given.minutes, Path(folder).resolve(),
            f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}", tuple(given.pytest_options.split()),
        )  # fmt: skip
        return Power(plan, runner or run_pytest).measure()


def decisions_of(path: Path) -> list[Outcome]:
    """The decisions of a run of unchanged code, from its results; cases that were compared with nothing are left out.

    A run is named after its card and start.
    """
    run = json_results.read(path)
    card = run.device.device_id if run.device else ""
    return [
        Outcome(f"{card} {run.started}", SUITES, str(case.key), PLAIN, 0, case.verdict.value, case.ratio)
        for case in run.cases
        if case.ratio is not None
    ]


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(",") if part)


def run_pytest(command: Sequence[str], tree: Path, environ: dict[str, str]) -> int:
    """Run it in a tree; its exit status. What it prints is shown only where it did not end with verdicts."""
    ran = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1):
        print(f"{' '.join(command)}\nended with {ran.returncode}:\n{ran.stdout[-4000:]}{ran.stderr[-2000:]}")
    return ran.returncode


class Power:
    """One measurement of a plan."""

    def __init__(self, plan: Plan, runner: Runner) -> None:
        self._plan, self._runner = plan, runner
        self._trees: dict[str, Path] = {}
        self._base = plan.folder

    def measure(self) -> int:
        """Sizes, then runs of pytest in turn over labels, until each has enough or the time is over."""
        plan = self._plan
        strengths = self._strengths()
        self._trees = {PLAIN: make_tree(plan.folder / "clean")}
        self._base = make_tree(plan.folder / "base")
        self._trees |= {label: make_tree(plan.folder / label, by_edit) for label, by_edit in strengths.items()}
        if plan.record and not self._recorded():
            return 1
        missing = 0
        turns = [(STORED, label) for label in (PLAIN, *map(label_of, plan.stored))] if plan.stored else []
        turns += [(PAIRED, label) for label in (PLAIN, *map(label_of, plan.paired))] if plan.paired else []
        for unit in range(plan.repeats):
            for how, label in turns:
                if time.monotonic() > plan.ends:
                    print(f"the time is over after {unit} repeats", flush=True)
                    return int(missing > 0)
                missing += not self._judged(how, label, unit)
        return int(missing > 0)

    def _strengths(self) -> dict[str, dict[str, int]]:
        """Label -> edit -> strength, measured sizes added to the file; the weakest probe in a dry run."""
        plan = self._plan
        if plan.dry:
            return {label: {case.edit: EDITS[case.edit].strengths[0] for case in plan.cases} for label in plan.levels}
        preload("gpu")
        trees = Trees(plan.folder / "sizing", "gpu")
        chosen = choose_strengths(trees, plan.cases, plan.levels)
        sizes = sized(trees, plan.cases, chosen, plan.levels, plan.run)
        for size in sizes:
            print(f"  {size.case} {size.label}: {100 * size.size:+.2f} % ({size.how})", flush=True)
        append(plan.json, sizes)
        return chosen

    def _recorded(self) -> bool:
        """Record baselines in the clean tree, and give them to all others."""
        if self._pytest(PLAIN, ["--update-baselines"]) not in (0, 1):
            return False
        for label, tree in self._trees.items():
            if label != PLAIN and not self._plan.dry:
                shutil.rmtree(tree / "baselines")
                shutil.copytree(self._trees[PLAIN] / "baselines", tree / "baselines")
        return True

    def _judged(self, how: str, label: str, unit: int) -> bool:
        """One run of pytest; its verdicts are added to the file. False where it left none."""
        plan = self._plan
        results = plan.folder / f"{how}-{label}-{unit}.json"
        options = ["--attnperf", f"--attnperf-results={results}", "--no-attnperf-strict"]
        if how == PAIRED:
            options += [f"--attnperf-against=dir:{self._base}", "--attnperf-interleave=all"]
            options += [f"--attnperf-override=threshold={THRESHOLD_PERCENT:g}", "--attnperf-override=floor_us=0"]
        began = time.monotonic()
        self._pytest(label, options)
        if not results.exists():
            return plan.dry
        found = [
            Outcome(
                plan.run, how, f"{case.key.backend}/{case.key.workload}", label, unit, case.verdict.value, case.ratio
            )
            for case in json_results.read(results).cases
        ]
        append(plan.json, found)
        said = ", ".join(f"{one.verdict} {100 * ((one.ratio or 1) - 1):+.1f} %" for one in found)
        print(f"  {how} {label} {unit + 1}: {time.monotonic() - began:.0f} s ({said})", flush=True)
        return bool(found)

    def _pytest(self, label: str, options: Sequence[str]) -> int:
        plan = self._plan
        command = [
            sys.executable, "-m", "pytest", *plugin_options(), "-p", "no:randomly", "-p", "no:cacheprovider",
            "-p", "no:benchmark", "-q", *options, *plan.options, *map(node_of, plan.cases),
        ]  # fmt: skip
        if plan.dry:
            print(f"{self._trees[label].name}: {' '.join(command)}")
        return self._runner(command, self._trees[label], environment(plan.folder, os.environ)) if not plan.dry else 0


def node_of(case: Case) -> str:
    """What pytest calls the case's item."""
    suite = EDITS[case.edit].suite
    return f"{suite}::{Path(suite).stem}[{case.backend}-{case.workload}]"


def render(collected: Collection) -> str:
    """A line for each way and label: how many verdicts were SLOWER, with a 95 % interval, and what the others were.

    Slowdowns are those that were measured: the least and the largest of the cases'.
    """
    rows = []
    keys = dict.fromkeys((one.how, one.label) for one in collected.outcomes)
    for how, label in sorted(keys):
        outcomes = [one for one in collected.outcomes if (one.how, one.label) == (how, label)]
        rows.append(_row(how, label, outcomes, [size for size in collected.sizes if size.label == label]))
        cases = sorted({one.case for one in outcomes})
        for case in cases if len(cases) <= CASES_SHOWN else ():
            sizes = [size for size in collected.sizes if (size.label, size.case) == (label, case)]
            rows.append(_row("", f"  {case}", [one for one in outcomes if one.case == case], sizes))
    head = ["against", "case", "true %", "SLOWER", "95 % interval", "SAME", "UNDECIDED", "other"]
    return tabulate(rows, head, disable_numparse=True)


def _row(how: str, label: str, outcomes: Sequence[Outcome], sizes: Sequence[TrueSize]) -> list[str]:
    by_case: dict[str, list[float]] = {}
    for size in sizes:
        by_case.setdefault(size.case, []).append(100 * size.size)
    true = sorted(statistics.fmean(found) for found in by_case.values())
    verdicts = [one.verdict for one in outcomes]
    slower = verdicts.count(Verdict.SLOWER.value)
    same = sum(verdicts.count(verdict.value) for verdict in (Verdict.SAME, Verdict.FASTER))
    undecided = verdicts.count(Verdict.UNDECIDED.value)
    low, high = (bound(slower, len(verdicts), 0.975) for bound in (lower_bound, upper_bound))
    others = sorted(set(verdicts) - {one.value for one in (*_COUNTED,)})
    return [
        how,
        label,
        f"{true[0]:.2f} to {true[-1]:.2f}" if len(true) > 1 else f"{true[0]:.2f}" if true else "0",
        f"{slower} of {len(verdicts)}",
        f"{100 * low:.0f} to {100 * high:.0f} %",
        str(same),
        str(undecided),
        ", ".join(f"{verdicts.count(name)} {name}" for name in others),
    ]


_COUNTED = (Verdict.SLOWER, Verdict.SAME, Verdict.FASTER, Verdict.UNDECIDED)


if __name__ == "__main__":
    raise SystemExit(main())
