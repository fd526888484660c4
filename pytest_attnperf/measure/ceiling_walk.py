"""Measures one ceiling: times work at growing sizes until its rate stops growing, and proves each size right first."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_attnperf.correctness import poison
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.canary import BLOCK_US, REST_SECONDS
from pytest_attnperf.measure.ceiling_work import READERS, Reader, Work
from pytest_attnperf.measure.out_of_memory import run_guarded
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.sampling import sample_blocks
from pytest_attnperf.measure.stopping import MIN_BLOCKS, StoppingRule
from pytest_attnperf.measure.timers import choose_timer
from pytest_attnperf.measure.timers.timer import Timer
from pytest_attnperf.measure.warm_up import warm_up
from pytest_attnperf.records import DeviceInfo, Samples

FLOPS, BYTES, US = "FLOP/s", "B/s", "us"
US_PER_S = 1e6

GROWTH = 0.02
"""A rate has stopped growing if the best of the last two sizes is less than this above the best before them."""

CALLS_PER_SIZE = 40
"""Approximate calls to prepare, prove and time one size if a call is longer than a block."""


@dataclass(frozen=True)
class CeilingPlan:
    """How much is measured on a kind of device.

    dtypes           in this order; f8 stands for the fp8 format of the device
    cache_times      a copy's source is at least this many times the last-level cache; a cache that evicts at random
                     still serves 1 / (2 * cache_times) of the bytes
    figure_seconds   no larger size of a figure is begun later than this, and no further figure later than `seconds`
    readers          these compete at the smallest size; the fastest reads the others
    """

    dtypes: tuple[str, ...]
    gemm_sizes: tuple[int, ...]
    cache_times: int
    copy_bytes_max: int
    figure_seconds: float
    seconds: float
    blocks: int = 20
    budget_us: float = 60_000.0
    rest_seconds: float = REST_SECONDS
    readers: tuple[Reader, ...] = READERS[:1]


PLANS = {
    "cuda": CeilingPlan(
        ("f16", "bf16", "f32", "tf32", "f8"),
        (2048, 3072, 4096, 6144, 8192, 12288, 16384),
        cache_times=8,
        copy_bytes_max=8 << 30,
        figure_seconds=2.0,
        seconds=18.0,
        readers=READERS,
    ),
    "cpu": CeilingPlan(
        ("f32", "bf16", "f16"),
        (128, 256, 512),
        cache_times=4,
        copy_bytes_max=256 << 20,
        figure_seconds=0.4,
        seconds=4.0,
        blocks=10,
        rest_seconds=0.0,
    ),
}
"""By torch's device. The CPU's figures only serve to try the command: small sizes, a few seconds."""


@dataclass(frozen=True)
class CeilingPoint:
    """One size: the rate that it reached, and the median microseconds of a call."""

    size: str
    rate: float
    us: float
    timer: str
    clock_mhz: float | None = None
    note: str = ""


@dataclass(frozen=True)
class CeilingFigure:
    """One ceiling: a rate or microseconds (see `unit`), the size that reached it, and every size that was tried."""

    value: float
    unit: str
    size: str
    clock_mhz: float | None = None
    note: str = ""
    tried: tuple[CeilingPoint, ...] = ()


@dataclass
class CeilingBench:
    """The device that a process measures, and its plan."""

    device: DeviceInfo
    plan: CeilingPlan

    @property
    def torch_device(self) -> str:
        """'cuda' (both vendors) or 'cpu'."""
        return self.device.torch_device


def has_stopped_growing(rates: Sequence[float]) -> bool:
    """Tells whether the best of the last two rates is less than GROWTH (2 %) above the best before them.
    With fewer than three rates it returns False."""
    return len(rates) >= 3 and max(rates[-2:]) < (1 + GROWTH) * max(rates[:-2])


def walk_sizes(bench: CeilingBench, unit: str, sizes: Sequence[tuple[float, Callable[[], Work]]]) -> CeilingFigure:
    """Times growing sizes until the rate stops growing or memory or time runs out; returns the fastest size's figure.

    sizes   (FLOPs or bytes of a call, function that makes the work) of each, the smallest first
    Raises CaseFailedError if even the smallest cannot be measured, and for a wrong result of any size.
    """
    began, note = time.monotonic(), "no plateau up to the largest size"
    points: list[CeilingPoint] = []
    for amount, make in sizes:
        left_s = bench.plan.figure_seconds - (time.monotonic() - began)
        if points and CALLS_PER_SIZE * amount / points[-1].rate > left_s:
            note = f"no plateau: larger sizes would take longer than {bench.plan.figure_seconds:g} s"
            break
        try:
            points.append(time_size(bench, make))
        except CaseFailedError as error:
            if not (error.out_of_memory and points):
                raise
            note = "no plateau: larger sizes do not fit into memory"
            break
        if has_stopped_growing([point.rate for point in points]):
            note = ""
            break
    return choose_fastest(points, unit, note)


def choose_fastest(points: Sequence[CeilingPoint], unit: str, note: str = "") -> CeilingFigure:
    """Returns the figure of the point with the highest rate, with all `points` as `tried` and `note` added."""
    best = max(points, key=lambda point: point.rate)
    notes = "; ".join(part for part in (best.note, note) if part)
    return CeilingFigure(best.rate, unit, best.size, best.clock_mhz, notes, tuple(points))


def add_note(figure: CeilingFigure, note: str) -> CeilingFigure:
    """Returns the figure with one more note; '' adds nothing."""
    notes = "; ".join(part for part in (figure.note, note) if part)
    return CeilingFigure(figure.value, figure.unit, figure.size, figure.clock_mhz, notes, figure.tried)


def time_size(bench: CeilingBench, make: Callable[[], Work]) -> CeilingPoint:
    """Proves and times the work that `make` returns; the point's rate is per second, its time the median of blocks.
    Raises CaseFailedError if memory does not suffice (out_of_memory) or the result is wrong."""
    samples, size, amount = time_work(bench, make)
    us = statistics.median(samples.block_us)
    return CeilingPoint(size, amount / us * US_PER_S, us, samples.timer, find_median_clock(samples), samples.note)


def time_work(bench: CeilingBench, make: Callable[[], Work]) -> tuple[Samples, str, float]:
    """Proves and times the work that `make` returns, then frees its memory.

    Returns (timed blocks, the work's size in words, its FLOPs or bytes per call). Raises CaseFailedError if memory does
    not suffice (out_of_memory) or the result is wrong.
    """

    def make_and_time() -> tuple[Samples, str, float]:
        work = make()
        return _time_blocks(bench, work), work.size, work.amount

    return run_guarded(make_and_time, "a size of the calibration", lambda: None)


def _time_blocks(bench: CeilingBench, work: Work) -> Samples:
    warm_up(work.call, bench.torch_device)
    timer = choose_timer(bench.torch_device, work.call, BLOCK_US)
    try:
        prove_work(timer, work)
        time.sleep(bench.plan.rest_seconds)
        rule = StoppingRule(min(MIN_BLOCKS, bench.plan.blocks), bench.plan.blocks, bench.plan.budget_us)
        with CompileWatch() as watch:
            return sample_blocks(timer, rule, watch)
    finally:
        timer.close()


def prove_work(timer: Timer, work: Work) -> None:
    """Fills the work's result with NaN and runs once what `timer` times.
    Raises CaseFailedError if the result is wrong afterwards."""
    poison.fill(work.result)
    timer.run_once()
    if fault := work.fault():
        raise CaseFailedError(f"its result is wrong, so its time does not count: {work.size}: {fault}")


def find_median_clock(samples: Samples) -> float | None:
    """Returns the median compute clock in MHz while the blocks of `samples` ran; None if unknown."""
    return statistics.median(samples.clock_mhz) if samples.clock_mhz else None
