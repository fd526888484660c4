"""Measures what a device reaches in one process: FLOP/s by type, bytes per second, microseconds per launch.

It times torch's own work at growing sizes until the rate stops growing. Each size is proven right immediately before it
is timed, and timed as cases are: replays of a graph on a GPU, after a rest. The rates were reached, so they are lower
bounds of what the device can do; they do not say whether a rate is good.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from pathlib import Path

import msgspec

from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.environment.device_specs import BYTES_PER_MIB
from pytest_attnperf.environment.fingerprint import take_fingerprint
from pytest_attnperf.errors import AttnperfError, CaseFailedError
from pytest_attnperf.measure import ceiling_work as work_of
from pytest_attnperf.measure.ceiling_walk import (
    BYTES,
    FLOPS,
    PLANS,
    US,
    CeilingBench,
    CeilingFigure,
    CeilingPlan,
    CeilingPoint,
    add_note,
    choose_fastest,
    find_median_clock,
    prove_work,
    time_size,
    time_work,
    walk_sizes,
)
from pytest_attnperf.measure.cold_cache import TIMES_THE_CACHE, cold_size
from pytest_attnperf.measure.out_of_memory import free_cached_memory
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.sampling import sample_blocks
from pytest_attnperf.measure.stopping import StoppingRule
from pytest_attnperf.measure.timers.capture import first_line
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.measure.warm_up import warm_device, warm_up
from pytest_attnperf.records import DeviceInfo, Fingerprint
from pytest_attnperf.workloads.precision import tf32_matmul

COPY, READ, CACHE, LAUNCH, EAGER = "copy", "read", "cache", "launch", "eager launch"
OBLONG = "f16 oblong"

CACHE_SHARES = (1 / 16, 1 / 8, 1 / 4, 3 / 8)
"""Size of a copy's source, relative to the last-level cache: source and target together fill at most 3/4 of it."""

EAGER_CALLS = 1000
EAGER_BLOCKS = 7
EAGER_GROUPS = 5
"""Groups of blocks, each after a rest: other work of the host, or a slow core, lasts longer than one group."""

GRAPH_LAUNCHES_LEAST = 100
MEMORY_SHARE = 8
"""A copy's source takes at most 1/8 of the memory: the target, the check and other processes need some, too."""

PROGRESS = "ceilings: "
"""Start of the standard error lines that are shown to the user."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class ProcessCeilings:
    """What one process measured. `left_out` gives the reason for each figure that it could not measure."""

    device: DeviceInfo
    fingerprint: Fingerprint
    figures: dict[str, CeilingFigure] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class _CeilingProcess(CeilingBench):
    """The process's device and plan, and its figures so far."""

    say: Say
    began: float = field(default_factory=time.monotonic)
    figures: dict[str, CeilingFigure] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def measure_figure(self, name: str, measure: Callable[[], CeilingFigure]) -> None:
        """Stores the figure that `measure` returns, or why it is left out; frees memory and says the outcome in a line.
        A figure is left out if `measure` raises any error, or if the plan's seconds have passed."""
        spent = time.monotonic() - self.began
        try:
            if spent > self.plan.seconds:
                raise CaseFailedError(
                    f"no time was left: {spent:.1f} s of {self.plan.seconds:g} s had passed; run on an idle device"
                )
            self.figures[name] = measure()
        except CaseFailedError as error:
            self.left_out[name] = error.summary
        except Exception as error:  # what this torch lacks, or refuses on this device; the other figures go on
            self.left_out[name] = f"torch refuses it here: {type(error).__name__}: {first_line(error)}"
        free_cached_memory()
        self.say(
            f"{name}: "
            f"{_format_figure(self.figures[name]) if name in self.figures else f'left out: {self.left_out[name]}'}"
        )


def measure_ceilings(
    torch_device: str, plan: CeilingPlan | None = None, say: Say = lambda line: None
) -> ProcessCeilings:
    """Measures every ceiling of 'cuda' (both vendors) or 'cpu' in this process.

    plan   limits sizes and time; default: that of `PLANS` for the device
    say    gets one line for each figure
    Raises UsageError if torch sees no GPU.
    """
    device = identify_device(torch_device)
    process = _CeilingProcess(device, plan or PLANS[torch_device], say)
    warm_device(torch_device)
    _measure_bandwidths(process)
    _measure_launches(process)
    _measure_products(process)
    return ProcessCeilings(
        device, take_fingerprint(device), process.figures, process.left_out, time.monotonic() - process.began
    )


def _measure_products(process: _CeilingProcess) -> None:
    f32_in, tf32_counts = work_of.probe_fp32_products(process.torch_device)
    for dtype in process.plan.dtypes:
        name = fp8_format(process.device) if dtype == "f8" else dtype
        if dtype == "tf32" and not tf32_counts:
            process.left_out[name] = "allowing TF32 changes no bit of a product of f32 on this device"
        elif dtype == "f8" and not can_multiply_fp8(process.device):
            process.left_out[name] = f"{process.device.arch} multiplies no {name} in hardware"
        else:
            process.measure_figure(name, partial(_square_product, process, name, f32_in if dtype == "f32" else name))
    if "f16" in process.figures:
        process.measure_figure(OBLONG, partial(_oblong_product, process))


def _square_product(process: _CeilingProcess, dtype: str, computed_in: str) -> CeilingFigure:
    make = partial(work_of.make_gemm, dtype, torch_device=process.torch_device, computed_in=computed_in)
    sizes = [(2.0 * size**3, partial(make, (size, size, size))) for size in process.plan.gemm_sizes]
    with tf32_matmul() if dtype == "tf32" else contextlib.nullcontext():
        figure = walk_sizes(process, FLOPS, sizes)
    return add_note(figure, "" if computed_in == dtype else "this process multiplies f32 in TF32 by default")


def _oblong_product(process: _CeilingProcess) -> CeilingFigure:
    """Times one f16 product M x K x N: M and N are those of the best square product, K is a quarter of them."""
    square = process.figures["f16"]
    side = int(square.size.partition(" ")[0])
    point = time_size(process, partial(work_of.make_gemm, "f16", (side, max(1, side // 4), side), process.torch_device))
    note = "faster than every square one: the ceiling of f16 is higher" if point.rate > square.value * 1.03 else ""
    return CeilingFigure(point.rate, FLOPS, point.size, point.clock_mhz, note, (point,))


def fp8_format(device: DeviceInfo) -> str:
    """Returns the GPU's e4m3 format: AMD's CDNA3 has its own, all others with fp8 have OCP's."""
    return "f8e4m3fnuz" if device.arch.startswith("gfx94") else "f8e4m3"


def can_multiply_fp8(device: DeviceInfo) -> bool:
    """Tells whether a GPU multiplies fp8 e4m3 numbers in hardware: from sm_89 on, gfx94x, gfx950 and gfx12.

    Sources: CUDA programming guide, and AMD's instruction set guides.
    """
    digits = device.arch.removeprefix("sm_")
    if device.kind == "cuda":
        return digits.isdigit() and int(digits) >= 89
    return device.arch.startswith(("gfx94", "gfx95", "gfx12"))


def _measure_bandwidths(process: _CeilingProcess) -> None:
    cold = cold_size(process.device)
    cache_bytes = cold.round_bytes // TIMES_THE_CACHE
    process.measure_figure(COPY, partial(_far_copy, process, cache_bytes, cold.note))
    process.measure_figure(READ, partial(_far_read, process, cache_bytes, cold.note))
    process.measure_figure(CACHE, partial(_cached_copy, process, cache_bytes))


def copy_sizes(cache_bytes: int, most_bytes: int, cache_times: int) -> list[int]:
    """Returns at most five source sizes in bytes: powers of two from `cache_times` times the cache to `most_bytes`.
    Raises CaseFailedError if even the smallest exceeds `most_bytes`."""
    first = 1 << max(0, cache_times * cache_bytes - 1).bit_length()
    sizes = [size for size in (first << step for step in range(5)) if size <= most_bytes]
    if not sizes:
        raise CaseFailedError(
            f"the last-level cache holds {cache_bytes / BYTES_PER_MIB:g} MiB, and only up to "
            f"{most_bytes / BYTES_PER_MIB:g} MiB are copied here, which would not show the memory's rate"
        )
    return sizes


def _choose_copy_sizes(process: _CeilingProcess, cache_bytes: int) -> list[int]:
    most_bytes = min(process.plan.copy_bytes_max, process.device.memory_bytes // MEMORY_SHARE)
    return copy_sizes(cache_bytes, most_bytes, process.plan.cache_times)


def _far_copy(process: _CeilingProcess, cache_bytes: int, cache_note: str) -> CeilingFigure:
    """Times Tensor.copy_ of sizes far beyond every cache, and a copy by a kernel at the best; returns the fastest."""
    sizes = _choose_copy_sizes(process, cache_bytes)
    walked = walk_sizes(process, BYTES, [(2.0 * n, partial(work_of.make_copy, n, process.torch_device)) for n in sizes])
    at = max(range(len(walked.tried)), key=lambda index: walked.tried[index].rate)
    by_kernel = time_size(process, partial(work_of.make_kernel_copy, sizes[at], process.torch_device))
    return add_note(choose_fastest((*walked.tried, by_kernel), BYTES, walked.note), cache_note)


def _far_read(process: _CeilingProcess, cache_bytes: int, cache_note: str) -> CeilingFigure:
    """Times reads far larger than every cache, with the operator that is fastest at the smallest; returns the best."""
    sizes = _choose_copy_sizes(process, cache_bytes)
    reader, raced, note = find_fastest_reader(process, sizes[0])
    walked = walk_sizes(
        process, BYTES, [(1.0 * n, partial(work_of.make_read, n, process.torch_device, reader)) for n in sizes]
    )
    figure = choose_fastest((*walked.tried, *raced), BYTES, walked.note)
    return add_note(add_note(add_note(figure, note), "a lower bound of what can be read"), cache_note)


def find_fastest_reader(bench: CeilingBench, count_bytes: int) -> tuple[work_of.Reader, list[CeilingPoint], str]:
    """Times each of the plan's readers, the operators that may read memory fastest, on `count_bytes`.

    Returns (the fastest with right results, the rates of all with right results, why others failed or ''). The only
    reader of a plan is returned untimed, without rates. Raises CaseFailedError if no reader is right.
    """
    if len(bench.plan.readers) == 1:
        return bench.plan.readers[0], [], ""
    raced = {reader: _try_reader(bench, count_bytes, reader) for reader in bench.plan.readers}
    found = {reader: point for reader, point in raced.items() if isinstance(point, CeilingPoint)}
    lost = "; ".join(reason for reason in raced.values() if isinstance(reason, str))
    if not found:
        raise CaseFailedError(lost)
    return max(found, key=lambda reader: found[reader].rate), list(found.values()), lost


def _try_reader(bench: CeilingBench, count_bytes: int, reader: work_of.Reader) -> CeilingPoint | str:
    """Times a reader and returns the rate that it reached, or a sentence why it does not count (wrong, or refused)."""
    try:
        return time_size(bench, partial(work_of.make_read, count_bytes, bench.torch_device, reader))
    except CaseFailedError as error:
        return error.summary
    except Exception as error:  # what this torch lacks, or refuses on this device
        return f"torch refuses {reader.name} here: {type(error).__name__}: {first_line(error)}"


def _cached_copy(process: _CeilingProcess, cache_bytes: int) -> CeilingFigure:
    """Times copies that fit the cache; returns the fastest. Raises CaseFailedError if copies from DRAM are as fast."""
    points = [
        time_size(process, partial(make, int(cache_bytes * share), process.torch_device))
        for share in CACHE_SHARES
        for make in (work_of.make_copy, work_of.make_kernel_copy)
    ]
    best, beyond = choose_fastest(points, BYTES), process.figures.get(COPY)
    if beyond is not None and best.value <= beyond.value:
        raise CaseFailedError(
            f"copies within {cache_bytes / BYTES_PER_MIB:g} MiB reached {best.value / 1e9:.4g} GB/s at {best.size}, no "
            f"more than the {beyond.value / 1e9:.4g} GB/s of copies far beyond: no rate of the cache was seen"
        )
    return best


def _measure_launches(process: _CeilingProcess) -> None:
    if process.torch_device == "cpu":
        process.left_out[LAUNCH] = "a CPU launches no kernels"
    else:
        process.measure_figure(LAUNCH, partial(_graph_launch, process))
    process.measure_figure(EAGER, partial(_eager_launch, process))


def _graph_launch(process: _CeilingProcess) -> CeilingFigure:
    samples, size, _ = time_work(process, partial(work_of.make_smallest_kernel, process.torch_device))
    if samples.calls_per_block < GRAPH_LAUNCHES_LEAST or samples.timer != "graph":
        raise CaseFailedError(
            f"{samples.calls_per_block} launches in a block of the {samples.timer} timer are too few to time a launch: "
            f"that needs a graph of at least {GRAPH_LAUNCHES_LEAST}{f' ({samples.note})' if samples.note else ''}"
        )
    size = f"{size}, graph of {samples.calls_per_block}"
    return CeilingFigure(statistics.median(samples.block_us), US, size, find_median_clock(samples))


def _eager_launch(process: _CeilingProcess) -> CeilingFigure:
    """Measures the microseconds per launch of consecutive eager calls of a tiny kernel, with one wait at the end.

    It returns the median of the fastest group of blocks, because other work on the host can only make a group slower.
    """
    import torch

    work = work_of.make_smallest_kernel(process.torch_device)

    def launch_many() -> None:
        for _ in repeat(None, EAGER_CALLS):
            work.call()
        if process.torch_device == "cuda":
            torch.cuda.synchronize()

    warm_up(launch_many, process.torch_device)
    timer = HostTimer()
    timer.prepare(launch_many, 1.0)
    prove_work(timer, work)
    groups = []
    for _ in range(EAGER_GROUPS):
        time.sleep(process.plan.rest_seconds)
        with CompileWatch() as watch:
            samples = sample_blocks(timer, StoppingRule(EAGER_BLOCKS, EAGER_BLOCKS), watch)
        groups.append(statistics.median(samples.block_us))
    size = f"{work.size}, {EAGER_CALLS} calls from Python"
    return CeilingFigure(
        min(groups) / EAGER_CALLS, US, size, note="the time of the host, which differs between processes"
    )


def _format_figure(figure: CeilingFigure) -> str:
    factor, unit = {FLOPS: (1e12, "TFLOP/s"), BYTES: (1e9, "GB/s"), US: (1.0, "us")}[figure.unit]
    return f"{figure.value / factor:.4g} {unit} at {figure.size}"


def main(arguments: Sequence[str]) -> int:
    """Runs one process of `attnperf doctor --calibrate`; the arguments are the torch device and a file.
    Writes the figures to the file as JSON and returns 0; returns 1 if an AttnperfError occurs, and prints it."""
    torch_device, path = arguments

    def say(line: str) -> None:
        sys.stderr.write(f"{PROGRESS}{line}\n")
        sys.stderr.flush()

    try:
        found = measure_ceilings(torch_device, say=say)
    except AttnperfError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    Path(path).write_bytes(msgspec.json.encode(found))
    return 0
