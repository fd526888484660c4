"""A suite with types: all that it annotates with and calls is in pytest_attnperf. `mypy --strict` accepts it."""

from __future__ import annotations

import torch

from pytest_attnperf import CaseHandle, TimerFunction, TimerResult, Tolerance, assert_within_budget

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make_inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    x = torch.randn(64, 256, dtype=torch.bfloat16, device=DEVICE, generator=generator)
    return x, torch.randn(256, dtype=torch.bfloat16, device=DEVICE, generator=generator)


def scale(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * weight, x.float().square().mean(-1)


def scale_in_place(x: torch.Tensor, weight: torch.Tensor) -> None:
    x.mul_(weight)


def scale_alone(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * weight


def count_elements(outputs: tuple[torch.Tensor, torch.Tensor]) -> float:
    return sum(one.numel() for one in outputs)


def test_several_outputs(attnperf: CaseHandle) -> None:
    costs = {"peak_bytes": 0, "host_us": 30, "elements": (count_elements, 0)}
    tolerance = Tolerance(multiplier=2.5, source="rounds the mean once more")
    attnperf.gate("scale", scale, reference=scale, inputs=make_inputs, costs=costs, tolerance=tolerance)


def test_in_place(attnperf: CaseHandle) -> None:
    attnperf.gate("scale_in_place", scale_in_place, reference=scale_in_place, inputs=make_inputs, in_place="x")


def test_gradients(attnperf: CaseHandle) -> None:
    attnperf.gate("scale_alone", scale_alone, reference=scale_alone, inputs=make_inputs, backward=True)


def test_right() -> None:
    x, weight = make_inputs(0)
    assert_within_budget(scale_alone(x, weight), x.double() * weight.double(), scale_alone(x, weight))


def test_how_long(gpu_timer: TimerFunction) -> None:
    timed: TimerResult = gpu_timer(scale_alone, *make_inputs(0), blocks=5)
    low, high = timed.interval_us
    assert low <= timed.median_us <= high
