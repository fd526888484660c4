"""Shows how far fresh processes agree, by what is done to the last-level cache before every measured block.

    python benchmarks/l2_draws.py --processes 16 --out draws.jsonl        # appends: run it on several cards
    python benchmarks/l2_draws.py --report draws.jsonl
    python benchmarks/l2_draws.py --report draws.jsonl --clock "256 MiB, long"    # how far times follow the clock

A hot kernel whose inputs fit the cache runs at one of a few levels, by which of their lines lie in which half of it.
Any kernel that writes memory draws that anew; a process that disturbs nothing repeats its first draw for ever. Each way
of measuring here writes something else, or nothing, and gives as many blocks, places in memory and calls. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

MIB = 1 << 20
REST_SECONDS = 0.1
PLACES_MOST = 10
"""In memory, of short calls."""
INPUTS = -1.0

CASES = (
    ("native.sdpa_flash", "prefill-b4-s512-h8-d256-f16-causal"),
    ("native.sdpa_flash", "prefill-b4-s1024-h8-d64-f16-causal"),
    ("native.sdpa_flash", "prefill-b1-s1024-h32-hk8-d128-bf16-causal"),
    ("native.sdpa_cudnn", "prefill-b4-s512-h8-d256-f16-causal"),
    ("native.sdpa_cudnn", "prefill-b4-s1024-h8-d64-f16-causal"),
    ("native.sdpa_efficient", "prefill-b4-s1024-h8-d64-f16-causal"),
    ("triton.flash", "prefill-b4-s512-h8-d256-f16-causal"),
    ("triton.flash", "prefill-b4-s1024-h8-d64-f16-causal"),
    ("triton.flash_persistent", "prefill-b4-s512-h8-d256-f16-causal"),
    ("native.staged", "weighted_values-b1-s2048-h32-hk8-d128-bf16-causal"),
    ("triton.gemm", "gemm-m1000-n1111-k777-f16"),
    ("triton.gemm_stream_k", "gemm-m1792-n2432-k8192-bf16-nt"),
    ("native.sdpa_flash", "prefill-b4-s4096-h8-d256-f16-causal"),
    ("triton.flash", "prefill-b4-s4096-h8-d256-f16-causal"),
    ("native.staged", "row_softmax-b1-s512-h8-f16-causal"),
    ("native.sdpa_flash", "prefill-b1-s16-h4-d32-f16-causal"),
)


@dataclass(frozen=True)
class Way:
    """One way of measuring a case in a process.

    fill_mib  what is written before every unmeasured block: so many MiB of zeros, 0 for nothing, INPUTS for the case's
              own inputs, copied there from elsewhere
    block_us  length of a block
    blocks    measured blocks at a place
    places    in memory; None for as many as the plugin takes
    gap_us    how long the device idles before every unmeasured block
    loaded    whether the device comes from replays of the case, and not from a rest
    """

    name: str
    fill_mib: float
    block_us: float
    blocks: int
    places: int | None = None
    gap_us: float = 0.0
    loaded: bool = False


WAYS = {
    "fill": (
        Way("version 1", 0.0, 600.0, 3),
        Way("2 MiB", 2.0, 300.0, 6),
        Way("32 MiB", 32.0, 300.0, 6),
        Way("256 MiB", 256.0, 300.0, 6),
        Way("256 MiB, long", 256.0, 600.0, 3),
        Way("256 MiB, one place", 256.0, 300.0, 60, 1),
        Way("inputs", INPUTS, 300.0, 6),
    ),
    "gap": (
        Way("long", 256.0, 600.0, 3),
        Way("long, 1 ms", 256.0, 600.0, 3, gap_us=1000.0),
        Way("long, 3 ms", 256.0, 600.0, 3, gap_us=3000.0),
        Way("1 ms", 256.0, 300.0, 6, gap_us=1000.0),
        Way("3 ms", 256.0, 300.0, 6, gap_us=3000.0),
        Way("32 MiB, 1 ms", 32.0, 300.0, 6, gap_us=1000.0),
        Way("twice, 1 ms", 256.0, 300.0, 12, gap_us=1000.0),
        Way("under load", 256.0, 300.0, 6, loaded=True),
    ),
}
"""What is compared in one run, by `--ways`; the first is what the others are compared with."""

LOAD_SECONDS = 0.06


class Fill:
    """Writes memory, as a way asks."""

    def __init__(self, way: Way, prepared: Any, spare: Any) -> None:
        import torch

        self._write: Callable[[], object] | None = None
        if way.fill_mib > 0:
            self._write = torch.empty(int(way.fill_mib * MIB), dtype=torch.uint8, device="cuda").zero_
        elif way.fill_mib == INPUTS:
            from pytest_attnperf.measure.copies import copy_inputs

            self._write = lambda: copy_inputs(spare, prepared)

    def run(self) -> None:
        """Queue the writing."""
        if self._write is not None:
            self._write()


def measure_way(way: Way, places: Sequence[tuple[Any, Any]], spare: Any) -> dict[str, Any]:
    """Microseconds per call of each block, place after place, and the mean clock of each pair of blocks.

    places   (prepared case, its timer) each
    """
    from pytest_attnperf.measure.timers.stream import idle_stream

    found, mhz = [], []
    time.sleep(REST_SECONDS)
    if way.loaded:
        for _ in range(int(LOAD_SECONDS * 1e6 / way.block_us)):
            places[0][1].measure(1)
    for prepared, timer in places:
        fill = Fill(way, prepared, spare)

        def before(fill: Fill = fill) -> None:
            if way.gap_us:
                idle_stream(way.gap_us)
            fill.run()

        timer.before_pair = before
        found.append([round(us, 4) for us in timer.measure(way.blocks)])
        mhz += timer.clock_mhz
    return {"us": found, "mhz": round(statistics.mean(mhz), 1) if mhz else None}


def measure_case(backend: Any, workload: Any, stamps: Any, ways: Sequence[Way]) -> dict[str, Any]:
    """Every way of one case in this process, in an order of its own."""
    from pytest_attnperf.measure.copies import copy_prepared
    from pytest_attnperf.measure.placements import make_placement_plan
    from pytest_attnperf.measure.timers.graph import GraphTimer
    from pytest_attnperf.measure.warm_up import warm_up

    prepared = backend.prepare(workload, workload.make_inputs(1, "cuda", planted=False))
    warm_up(prepared.run, "cuda")
    sets: dict[float, list[tuple[Any, Any]]] = {}
    kept = [prepared]
    for block_us in sorted({way.block_us for way in ways}):
        own = GraphTimer(stamps)
        own.prepare(prepared.run, block_us)
        places = min(PLACES_MOST, make_placement_plan(own.call_us, 30).places)
        kept += [copy_prepared(prepared) for _ in range(places - len(kept))]
        sets[block_us] = [(prepared, own), *((other, own.make_twin(other.run)) for other in kept[1:places])]
    spare = copy_prepared(prepared)
    shuffled = random.sample(ways, len(ways))
    found = {way.name: measure_way(way, sets[way.block_us][: way.places], spare) for way in shuffled}
    for timers in sets.values():
        for _, timer in timers:
            timer.close()
    return found


def measure_process(how: str, number: int, out: Path, ways: str) -> None:
    """All cases, in this process, which has not touched the device before; a line of `out` each."""
    import torch

    import kernels
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.measure.timers import stamps_of
    from pytest_attnperf.measure.warm_up import warm_device
    from pytest_attnperf.workloads.families import Families

    registry, families = Registry(), Families()
    kernels.register(registry)
    stamps = stamps_of("cuda")
    warm_device("cuda")
    card = str(torch.cuda.get_device_properties(0).uuid)
    for name, identity in CASES:
        try:
            found = measure_case(registry.get(name), families.parse_workload(identity), stamps, WAYS[ways])
        except Exception as error:  # one case that does not run here must not cost the others
            print(f"{name}/{identity}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        line = {"card": card, "product": torch.cuda.get_device_name(0), "how": how, "process": number, "ways": found}
        with out.open("a") as file:
            file.write(json.dumps({"case": f"{name}/{identity}", **line}) + "\n")


def measure(processes: int, out: Path, ways: str) -> None:
    """Processes one after the other, in turn forked from this one, which never touches the device, and fresh."""
    import torch  # noqa: F401 - what a forked process finds imported

    import kernels  # noqa: F401
    import pytest_attnperf.measure.timing
    import pytest_attnperf.workloads.families  # noqa: F401

    for number in range(processes):
        began = time.monotonic()
        if number % 4 == 3:
            command = [sys.executable, __file__, "--child", str(number), "--out", str(out), "--ways", ways]
            subprocess.run(command, check=True)
        elif (child := os.fork()) == 0:
            status = 1
            try:
                measure_process("forked", number, out, ways)
                status = 0
            finally:
                os._exit(status)
        else:
            os.waitpid(child, 0)
        print(f"process {number}: {time.monotonic() - began:.1f} s", flush=True)


def time_of(way: dict[str, Any]) -> float:
    """What a process reports: the mean over places of the mean of each place's blocks."""
    return statistics.mean(statistics.mean(blocks) for blocks in way["us"])


def report_clock(lines: Iterable[dict[str, Any]], way: str) -> str:
    """A row for each case and card: how a process's time follows its mean clock, by one way, and what is left."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for line in lines:
        measured = line["ways"][way]
        if measured["mhz"]:
            groups[(line["case"], line["card"])].append((measured["mhz"], time_of(measured)))
    rows = []
    for (case, card), pairs in sorted(groups.items()):
        mhz, us = zip(*pairs, strict=True)
        slope, _ = statistics.linear_regression(mhz, us)
        middle = statistics.mean(mhz)
        left = [time - slope * (clock - middle) for clock, time in pairs]
        rows.append([case, card[-4:], len(us), spread(mhz), statistics.correlation(mhz, us), spread(us), spread(left)])
    heads = ["case", "card", "n", "sd of clock", "correlation", "sd of time", "sd without clock"]
    return tabulate(rows, heads, floatfmt=("", "", "", ".2f", ".2f", ".2f", ".2f"))


def spread(values: Sequence[float]) -> float:
    """Standard deviation in per cent of the mean."""
    return 100 * statistics.stdev(values) / statistics.mean(values)


def report(lines: Iterable[dict[str, Any]]) -> str:
    """A row for each case: its time, and the spread of processes within a card by each way."""
    groups: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        for name, way in line["ways"].items():
            groups[(line["case"], line["card"])][name].append(time_of(way))
    measured = {name for ways in groups.values() for name in ways}
    names = next([way.name for way in ways] for ways in WAYS.values() if {way.name for way in ways} == measured)
    rows = []
    for (case, card), ways in sorted(groups.items()):
        middle = statistics.mean(ways[names[0]])
        shifts = [100 * (statistics.mean(ways[name]) / middle - 1) for name in names[1:]]
        rows.append([case, card[-4:], len(ways[names[0]]), middle, *(spread(ways[name]) for name in names), *shifts])
    return tabulate(
        rows,
        ["case", "card", "n", "us", *(f"sd {name}" for name in names), *(f"shift {name}" for name in names[1:])],
        floatfmt=("", "", "", ".5g", *[".2f"] * (2 * len(names) - 1)),
    )


def main() -> int:
    """Measure, or report what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("draws.jsonl"))
    parser.add_argument("--ways", choices=WAYS, default="fill")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--clock", metavar="WAY", help="with --report: how times by this way follow the clock")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.report:
        lines = [json.loads(line) for line in options.report.read_text().splitlines()]
        print(report_clock(lines, options.clock) if options.clock else report(lines))
    elif options.child is not None:
        measure_process("fresh", options.child, options.out, options.ways)
    else:
        measure(options.processes, options.out, options.ways)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
