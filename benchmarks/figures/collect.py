"""Collects the figures on this machine: appends one line per process or pair of every case to a file.

    python benchmarks/figures/collect.py --out figures.jsonl --only processes --processes 14
    python benchmarks/figures/collect.py --out figures.jsonl --only pairs --pairs 14

Processes and pairs come from the plugin itself (--attnperf-calibrate, --attnperf-interleave=all), on the suite beside
this file; other tools are measured by `gate_quality.py`. The injected slowdowns are sized once by `size_injections.py`
and kept in the file of --injections. `report.py` prints what the file says. Where a pass is too long for one command,
several with the same --run, each of fewer processes or pairs of every case, make one run.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from figures_records import (
    Pair,
    Pass,
    Process,
    Record,
    TrueSize,
    append,
    pairs_of,
    pass_of,
    processes_of,
    read,
)
from figures_trees import ROOT, SUITE, Trees, make_trees, plugin_options

from pytest_attnperf.reports.files.json_results import decode

KINDS = ("processes", "pairs")
LABELS_OF = {"processes": "plain,slow3,slow5", "pairs": "plain,slow05,slow1"}


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    out: Path
    device: str
    processes: int
    pairs: int
    kinds: tuple[str, ...]
    injections: Path
    labels: dict[str, str]
    select: str
    pytest_options: tuple[str, ...]
    run: str


def plan_of(arguments: Sequence[str] | None = None) -> Plan:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file the lines are appended to")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--processes", type=int, default=14, help="fresh processes of a pass")
    parser.add_argument("--pairs", type=int, default=14, help="fresh pairs of a pass")
    parser.add_argument("--only", choices=KINDS, action="append", help="only this pass; repeatable")
    parser.add_argument("--injections", type=Path, help="file of the sized injections; measured when absent")
    parser.add_argument("--process-labels", default=LABELS_OF["processes"], help="labels of the pass over processes")
    parser.add_argument("--pair-labels", default=LABELS_OF["pairs"], help="labels of the pass over pairs")
    parser.add_argument("--select", default="", help="as pytest's -k, beside the labels")
    parser.add_argument("--pytest-options", default="", help="--pytest-options=... of the plugin's passes")
    parser.add_argument("--run", default="", help="name of the run; units are added to those it has in the file")
    options = parser.parse_args(arguments)
    if options.processes < 1 or options.pairs < 2:
        parser.error(f"--processes={options.processes} --pairs={options.pairs}: at least 1 process and 2 pairs")
    kinds = tuple(options.only or KINDS)
    return Plan(
        out=options.out.resolve(),
        device=options.device,
        processes=options.processes,
        pairs=options.pairs,
        kinds=kinds,
        injections=(options.injections or options.out.with_suffix(".injections.json")).resolve(),
        labels={"processes": options.process_labels, "pairs": options.pair_labels},
        select=options.select,
        pytest_options=tuple(options.pytest_options.split()),
        run=options.run or f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 when a case gave no number."""
    plan = plan_of(arguments)
    injections = sized(plan)
    failed = False
    with tempfile.TemporaryDirectory(prefix="attnperf-figures-") as folder:
        trees = make_trees(Path(folder), plan.device, injections)
        for kind in plan.kinds:
            began = time.perf_counter()
            records = through_the_plugin(plan, trees, kind)
            records = [*records, *true_sizes(plan.run, injections, plan.labels[kind])]
            records = [renumbered(record, units_before(plan, kind)) for record in records]
            append(plan.out, records)
            missing = [line for record in records if isinstance(record, Pass) for line in record.failed]
            print(f"{kind}: {len(records)} lines in {time.perf_counter() - began:.0f} s, run {plan.run}", flush=True)
            print("".join(f"  no number: {line}\n" for line in missing), end="", flush=True)
            failed = failed or bool(missing)
    return 1 if failed else 0


def units_before(plan: Plan, kind: str) -> int:
    """How many units the run has of a pass already."""
    if not plan.out.exists():
        return 0
    return sum(one.units for one in read(plan.out).passes if one.run == plan.run and one.kind == kind)


def renumbered(record: Record, before: int) -> Record:
    """A process or pair counted on from those that the run has; anything else as it is."""
    return replace(record, unit=record.unit + before) if isinstance(record, (Process, Pair)) else record


def sized(plan: Plan) -> dict[str, Any]:
    """The injections: read, or measured in a process of its own and kept. Stops the program when that fails."""
    if not plan.injections.exists() and set(plan.kinds) & {"processes", "pairs"}:
        plan.injections.parent.mkdir(parents=True, exist_ok=True)
        program = Path(__file__).with_name("size_injections.py")
        command = [sys.executable, str(program), "--out", str(plan.injections), "--device", plan.device]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        if subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode != 0:
            sys.exit("sizing the injections failed; see above. --injections FILE takes sizes that were measured before")
    if not plan.injections.exists():
        return {}
    loaded: dict[str, Any] = json.loads(plan.injections.read_text())
    return loaded


def command_of(plan: Plan, trees: Trees, kind: str, results: Path) -> list[str]:
    """The plugin's command line of a pass."""
    measured = (
        [f"--attnperf-calibrate={plan.processes}"]
        if kind == "processes"
        else [f"--attnperf-against=dir:{trees.base}", "--attnperf-interleave=all", f"--attnperf-pairs={plan.pairs}"]
    )
    # A label is followed by '_' in a test's name, so that slow05 is not slow5.
    chosen = " or ".join(f"test_{label}_" for label in plan.labels[kind].split(","))
    chosen = f"({chosen}) and ({plan.select})" if plan.select else chosen
    return [
        sys.executable, "-m", "pytest", *plugin_options(), "-p", "no:randomly", "-p", "no:cacheprovider", "-q",
        "--attnperf", *measured, f"--attnperf-results={results}", f"--attnperf-device={plan.device}",
        "--no-attnperf-strict", *plan.pytest_options, "-k", chosen, SUITE,
    ]  # fmt: skip


def through_the_plugin(plan: Plan, trees: Trees, kind: str) -> list[Record]:
    """One pass of the suite; its lines from results.json. Stops the program where there is none."""
    results = trees.candidate / f"{kind}.json"
    began = time.perf_counter()
    command = command_of(plan, trees, kind, results)
    status = subprocess.run(command, cwd=trees.candidate, env=trees.environment(os.environ), check=False).returncode
    wall_s = time.perf_counter() - began
    # 1 is what slowed cases and missing baselines are meant to end with.
    if status not in (0, 1) or not results.exists():
        sys.exit(f"{' '.join(command)}\nended with {status} and left no results; see above")
    decoded = decode(results.read_bytes(), str(results))
    if kind == "processes":
        return [pass_of(plan.run, kind, decoded, plan.processes, wall_s), *processes_of(plan.run, decoded)]
    return [pass_of(plan.run, kind, decoded, plan.pairs, wall_s), *pairs_of(plan.run, decoded)]


def true_sizes(run: str, injections: dict[str, Any], labels: str) -> list[Record]:
    """How large the injections of a pass are."""
    from figures_injection import Injection

    wanted = labels.split(",")
    return [
        TrueSize(run, case, label, one["nominal"], one["true"], one["true_sd"], Injection(**one).describe())
        for case, by_label in injections.items()
        for label, one in by_label.items()
        if label in wanted
    ]


if __name__ == "__main__":
    raise SystemExit(main())
