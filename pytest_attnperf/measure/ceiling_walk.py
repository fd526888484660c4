"""One ceiling: a piece of work timed at growing sizes until its rate grows no more, each size proven right before."""

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
from pytest_attnperf.measure.timers.base import Timer
from pytest_attnperf.measure.warm_up import warm_up
from pytest_attnperf.records import DeviceInfo, Samples

FLOPS, BYTES, US = "FLOP/s", "B/s", "us"
US_PER_S = 1e6

GROWTH = 0.02
"""A rate whose best of two more sizes is less than this above the best before them grows no more."""

CALLS_PER_SIZE = 40
"""About how many calls preparing, proving and timing one size take when a call is longer than a block."""


@dataclass(frozen=True)
class CeilingPlan:
    """How much is measured on a kind of device.

    dtypes           in this order; f8 stands for the fp8 format of the device
    cache_times      how many times the last-level cache the source of a copy holds at least; a cache that evicts at
                     random still serves 1 / (2 * cache_times) of the bytes
    figure_seconds   beyond which no larger size of one figure is begun, and `seconds` no further figure
    readers          that compete at the smallest size; the fastest reads the others
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
"""By torch's device. The CPU's figures are for trying the command: small sizes, one after the other, a few seconds."""


@dataclass(frozen=True)
class CeilingPoint:
    """One size: what it reached, and the median time of a call behind it."""

    size: str
    rate: float
    us: float
    timer: str
    clock_mhz: float | None = None
    note: str = ""


@dataclass(frozen=True)
class CeilingFigure:
    """One ceiling: a rate, or microseconds (`unit`), at which size, and every size that was tried."""

    value: float
    unit: str
    size: str
    clock_mhz: float | None = None
    note: str = ""
    tried: tuple[CeilingPoint, ...] = ()


@dataclass
class CeilingBench:
    """Where and how much a process measures."""

    device: DeviceInfo
    plan: CeilingPlan

    @property
    def torch_device(self) -> str:
        """'cuda' (both vendors) or 'cpu'."""
        return self.device.torch_device


def has_stopped_growing(rates: Sequence[float]) -> bool:
    """Whether the last two rates are less than GROWTH above the best before them."""
    return len(rates) >= 3 and max(rates[-2:]) < (1 + GROWTH) * max(rates[:-2])


def walk_sizes(bench: CeilingBench, unit: str, sizes: Sequence[tuple[float, Callable[[], Work]]]) -> CeilingFigure:
    """Growing sizes (amount of work, what makes it) until the rate grows no more, or memory or time end it.

    Raises CaseFailedError when not even the smallest could be measured, and for a wrong result of any.
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
    """The figure of the fastest of some sizes."""
    best = max(points, key=lambda point: point.rate)
    notes = "; ".join(part for part in (best.note, note) if part)
    return CeilingFigure(best.rate, unit, best.size, best.clock_mhz, notes, tuple(points))


def add_note(figure: CeilingFigure, note: str) -> CeilingFigure:
    """The figure with a note more; the same where that is ''."""
    notes = "; ".join(part for part in (figure.note, note) if part)
    return CeilingFigure(figure.value, figure.unit, figure.size, figure.clock_mhz, notes, figure.tried)


def time_size(bench: CeilingBench, make: Callable[[], Work]) -> CeilingPoint:
    """One size. Raises CaseFailedError as `timed` does."""
    samples, size, amount = time_work(bench, make)
    us = statistics.median(samples.block_us)
    return CeilingPoint(size, amount / us * US_PER_S, us, samples.timer, find_median_clock(samples), samples.note)


def time_work(bench: CeilingBench, make: Callable[[], Work]) -> tuple[Samples, str, float]:
    """Blocks, size and amount of a piece of work, whose memory is free again when this returns.

    Raises CaseFailedError when memory does not suffice (out_of_memory) or the result is wrong.
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
    """Run what is timed on a result filled with NaN. Raises CaseFailedError when what it then holds is wrong."""
    poison.fill(work.result)
    timer.run_once()
    if fault := work.fault():
        raise CaseFailedError(f"its result is wrong, so no time of it counts: {work.size}: {fault}")


def find_median_clock(samples: Samples) -> float | None:
    """The median compute clock while these blocks ran, None where it is not known."""
    return statistics.median(samples.clock_mhz) if samples.clock_mhz else None
