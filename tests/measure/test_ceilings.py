from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import ceiling_walk as walking
from pytest_attnperf.measure import ceiling_work
from pytest_attnperf.measure import ceilings as module
from pytest_attnperf.measure.ceiling_walk import (
    FLOPS,
    PLANS,
    CeilingBench,
    CeilingPlan,
    CeilingPoint,
    has_stopped_growing,
    time_size,
    walk_sizes,
)
from pytest_attnperf.measure.ceiling_work import (
    READERS,
    Reader,
    Work,
    make_copy,
    make_gemm,
    make_kernel_copy,
    make_read,
    make_smallest_kernel,
    probe_fp32_products,
    product_fault,
    product_tolerance,
)
from pytest_attnperf.measure.ceilings import (
    can_multiply_fp8,
    copy_sizes,
    find_fastest_reader,
    fp8_format,
    main,
    measure_ceilings,
)
from pytest_attnperf.measure.cold_cache import ColdSize
from pytest_attnperf.records import DeviceInfo, Samples

MIB = 2**20
TINY = CeilingPlan(
    ("f32", "bf16", "tf32", "f8"), (16, 32), 4, 4 * MIB, 0.05, 5.0, blocks=2, budget_us=1000.0, rest_seconds=0
)
CPU = DeviceInfo("cpu", "cpu-x86_64", "a-cpu", compute_units=1, memory_bytes=64 * MIB)


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU whose last-level cache holds 256 KiB, and that needs no warming."""
    monkeypatch.setattr(module, "cold_size", lambda device: ColdSize(2 * 256 * 1024))
    monkeypatch.setattr(module, "warm_device", lambda torch_device: None)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_a_right_product_has_no_fault(dtype: str) -> None:
    """A product that torch computed is within its tolerance, and counts 2 M K N FLOPs."""
    work = make_gemm(dtype, (48, 64, 40), "cpu")
    work.call()
    assert work.fault() == ""
    assert (work.amount, work.size) == (2 * 48 * 64 * 40, "48 x 64 x 40")


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda result: result[-1].mul_(1.5), "has error"),
        (lambda result: result[:, 0].zero_(), "has error"),
        (lambda result: result[20, 20].fill_(float("nan")), "not finite, or was never written"),
    ],
    ids=["a row", "a column", "one NaN"],
)
def test_a_wrong_product_is_found(spoil: Callable[[torch.Tensor], object], expected: str) -> None:
    """A wrong last row, a wrong first column, and an element that was never written anywhere are faults."""
    work = make_gemm("f32", (48, 64, 40), "cpu")
    work.call()
    spoil(work.result)
    assert expected in work.fault()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "tf32", "f32", "f8e4m3"])
def test_a_product_short_of_its_last_step_is_found(dtype: str) -> None:
    """A product without the last 16 of K = 1024 is off by more than the tolerance of every type."""
    left, right = torch.randn(32, 1024), torch.randn(1024, 32)
    allowed = product_tolerance(dtype, 1024)
    assert product_fault(left, right, left @ right, allowed) == ""
    assert "has error" in product_fault(left, right, left[:, :-16] @ right[:-16], allowed)


@pytest.mark.parametrize("make", [make_copy, make_kernel_copy, make_read])
def test_bytes_are_moved_and_checked(make: Callable[[int, str], Work]) -> None:
    """Copies are held to their source bit by bit and sums to sums; a single wrong word is a fault."""
    work = make(1 * MIB, "cpu")
    work.call()
    assert work.fault() == ""
    assert work.amount == (MIB + MIB // 256 if make is make_read else 2 * MIB)
    work.result[-1] += 1
    assert work.fault()


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_every_reader_reads_everything(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word less than all is a fault, wherever it lies and however the check divides what was read."""
    monkeypatch.setattr(ceiling_work, "CHUNK", 3000)
    work = make_read(1 * MIB, "cpu", reader)
    work.call()
    assert work.fault() == ""
    assert work.amount == MIB + 4 * work.result.numel()
    work.result[-1] += 8 * 90 if reader.operator == "mv" else 1
    assert "what was read are wrong" in work.fault()
    work.result.fill_(float("nan") if reader.operator == "mv" else 2**31 - 1)
    assert "what was read are wrong" in work.fault()


def test_the_fastest_right_reader_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is wrong and one that torch refuses are said, and cost nothing; without any there is no figure."""
    rates: list[Any] = [100.0, 300.0, CaseFailedError("its result is wrong"), RuntimeError("no amax\nat all"), 200.0]
    left = iter(rates)

    def timed(bench: CeilingBench, make: Callable[[], Work]) -> CeilingPoint:
        rate = next(left)
        if isinstance(rate, Exception):
            raise rate
        return CeilingPoint("a size", rate, 1.0, "graph")

    monkeypatch.setattr(module, "time_size", timed)
    bench = CeilingBench(CPU, replace(TINY, readers=READERS))
    reader, raced, note = find_fastest_reader(bench, MIB)
    assert (reader, [point.rate for point in raced]) == (READERS[1], [100.0, 300.0, 200.0])
    assert note == "its result is wrong; torch refuses torch.amax over rows of 8192 here: RuntimeError: no amax"
    left = iter([CaseFailedError("wrong")] * 5)
    with pytest.raises(CaseFailedError, match="wrong; wrong"):
        find_fastest_reader(bench, MIB)


def test_the_fastest_group_of_calls_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is busy during most of the groups does not move the figure, which says whose time it is."""
    us = iter([9e3, 8e3, 6e3, 9e3, 7e3])
    monkeypatch.setattr(module, "sample_blocks", lambda *_: Samples((next(us),) * 7, 1, "host"))
    figure = module._eager_launch(module._CeilingProcess(CPU, TINY, print))
    assert figure.value == 6.0
    assert figure.note.startswith("the time of the host")


def test_the_smallest_kernel_is_seen_to_run() -> None:
    """The addition of one element is right only behind a call."""
    work = make_smallest_kernel("cpu")
    work.result.fill_(float("nan"))
    assert "gave nan" in work.fault()
    work.call()
    assert work.fault() == ""


def test_a_cpu_knows_no_tf32() -> None:
    """On a CPU fp32 matrices are multiplied in fp32, and allowing TF32 changes nothing."""
    assert probe_fp32_products("cpu", 64) == ("f32", False)


@pytest.mark.parametrize(
    ("rates", "ended"),
    [
        ([100, 101], False),
        ([100, 101, 101.5], True),
        ([100, 101, 110], False),
        ([100, 110, 111], False),
        ([100, 90, 91], True),
        ([100, 90, 110, 111, 112], True),
        ([100, 101.9, 103.8], False),
    ],
)
def test_a_plateau_is_two_sizes_that_gain_nothing(rates: list[float], ended: bool) -> None:
    """Two sizes less than 2 % above the best before them end the sizes; neither a dip that recovers, nor small steps
    that add up.
    """
    assert has_stopped_growing(rates) is ended


def walked(monkeypatch: pytest.MonkeyPatch, outcomes: list[Any], amount: float = 1.0, seconds: float = 9.0) -> Any:
    """A walk over sizes whose rates, or errors, are given."""
    left = iter(outcomes)

    def timed(bench: CeilingBench, make: Callable[[], Work]) -> CeilingPoint:
        outcome = next(left)
        if isinstance(outcome, Exception):
            raise outcome
        return CeilingPoint(f"size {outcome}", outcome, 1.0, "graph", 1500.0)

    monkeypatch.setattr(walking, "time_size", timed)
    bench = CeilingBench(CPU, replace(TINY, figure_seconds=seconds))
    return walk_sizes(bench, FLOPS, [(amount, lambda: make_smallest_kernel("cpu"))] * len(outcomes))


def test_the_best_size_is_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk ends at the plateau and gives the best rate with its size and clock, not the last."""
    figure = walked(monkeypatch, [100.0, 120.0, 119.0, 118.0, 500.0])
    assert (figure.value, figure.size, figure.clock_mhz, figure.note) == (120.0, "size 120.0", 1500.0, "")
    assert len(figure.tried) == 4


def test_what_ends_before_a_plateau_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory, out of time and out of sizes keep what was found, and are said."""
    too_large = CaseFailedError("out of memory: a size", out_of_memory=True)
    assert walked(monkeypatch, [100.0, too_large]).note == "no plateau: larger sizes do not fit into memory"
    assert walked(monkeypatch, [100.0, 200.0]).note == "no plateau up to the largest size"
    slow = walked(monkeypatch, [100.0, 200.0], amount=30.0)
    assert (slow.value, slow.note) == (100.0, "no plateau: larger sizes would take longer than 9 s")


@pytest.mark.parametrize("outcomes", [[CaseFailedError("no", out_of_memory=True)], [100.0, CaseFailedError("no")]])
def test_nothing_measured_or_wrong_is_no_figure(monkeypatch: pytest.MonkeyPatch, outcomes: list[Any]) -> None:
    """Where the smallest size does not fit, or any result is wrong, there is no figure."""
    with pytest.raises(CaseFailedError, match="no"):
        walked(monkeypatch, outcomes)


def test_no_time_of_a_wrong_result() -> None:
    """Work whose timed call leaves a wrong result is refused with what is wrong, before a block is measured."""
    right = make_smallest_kernel("cpu")
    lazy = replace(right, call=lambda: right.result)
    with pytest.raises(CaseFailedError, match=r"result is wrong, so its time does not count: torch.add of 1 .* nan"):
        time_size(CeilingBench(CPU, TINY), lambda: lazy)


def test_copies_are_far_beyond_the_cache() -> None:
    """Sources are powers of two of at least so many caches; a cache too large for that gives a reason, not a rate."""
    assert copy_sizes(60 * MIB, 8192 * MIB, 8) == [size * MIB for size in (512, 1024, 2048, 4096, 8192)]
    with pytest.raises(CaseFailedError, match="cache holds 260 MiB, and only up to 256 MiB are copied here"):
        copy_sizes(260 * MIB, 256 * MIB, 4)


def test_fp8_is_the_devices_own_format() -> None:
    """CDNA3 multiplies its own e4m3, others OCP's, and older architectures none."""
    found = {arch: DeviceInfo("rocm" if arch.startswith("gfx") else "cuda", arch, "x") for arch in
             ("sm_80", "sm_89", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")}  # fmt: skip
    assert {arch for arch, device in found.items() if not can_multiply_fp8(device)} == {"sm_80", "gfx90a", "gfx1100"}
    assert fp8_format(found["gfx942"]) == "f8e4m3fnuz"
    assert fp8_format(found["gfx950"]) == fp8_format(found["sm_90"]) == "f8e4m3"


@pytest.mark.usefixtures("small_cache")
def test_a_process_on_a_cpu() -> None:
    """Every figure is measured or left out for a reason, in the order of progress, with sizes."""
    said: list[str] = []
    found = measure_ceilings("cpu", TINY, said.append)
    assert {"copy", "read", "eager launch", "f32", "bf16"} <= found.figures.keys()
    assert found.left_out["launch"] == "a CPU launches no kernels"
    assert "changes no bit" in found.left_out["tf32"]
    assert "multiplies no f8e4m3 in hardware" in found.left_out["f8e4m3"]
    assert all(figure.value > 0 for figure in found.figures.values())
    assert [line.partition(":")[0] for line in said] == ["copy", "read", "cache", "eager launch", "f32", "bf16"]
    assert found.fingerprint.must_match["arch"] == found.device.arch


@pytest.mark.usefixtures("small_cache")
def test_one_figure_that_torch_refuses_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of torch in one figure is its reason; a budget that is spent is that of the rest."""

    def refusing(count: int, torch_device: str, reader: Reader) -> Work:
        raise NotImplementedError("not on this device\nand more")

    monkeypatch.setattr(ceiling_work, "make_read", refusing)
    found = measure_ceilings("cpu", replace(TINY, dtypes=()))
    assert found.left_out["read"] == "torch refuses it here: NotImplementedError: not on this device"
    assert {"copy", "eager launch"} <= found.figures.keys()
    spent = measure_ceilings("cpu", replace(TINY, dtypes=("f32",), seconds=0.0))
    assert spent.figures == {}
    assert "no time was left:" in spent.left_out["f32"]


def test_a_process_writes_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The process's file holds its figures, and its lines begin as those that are shown."""
    monkeypatch.setitem(PLANS, "cpu", replace(TINY, dtypes=("f32",), copy_bytes_max=0))
    monkeypatch.setattr(module, "warm_device", lambda torch_device: None)
    monkeypatch.setattr(module, "CACHE_SHARES", (1e-3,))
    assert main(["cpu", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_bytes())
    assert found["figures"]["f32"]["unit"] == "FLOP/s"
    assert "would not show the memory's rate" in found["left_out"]["copy"]
    assert all(line.startswith("ceilings: ") for line in capsys.readouterr().err.splitlines())


def test_a_process_without_its_gpu_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Where torch sees no GPU the process says so, fails and writes nothing."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["cuda", str(tmp_path / "found.json")]) == 1
    assert "sees no GPU" in capsys.readouterr().err
    assert not (tmp_path / "found.json").exists()


@pytest.mark.gpu
def test_a_process_on_a_gpu() -> None:
    """Within 20 s a GPU gives FLOP/s, bytes per second and launches, replayed from graphs, all positive."""
    found = measure_ceilings("cuda")
    assert {"f16", "bf16", "f32", "copy", "read", "launch", "eager launch"} <= found.figures.keys(), found.left_out
    assert found.seconds < 25
    assert {point.timer for figure in found.figures.values() for point in figure.tried} == {"graph"}
    assert found.figures["launch"].value < found.figures["eager launch"].value
    assert torch.cuda.memory_allocated() < 200 * MIB
