"""What ran, from events written by hand, from torch on a CPU, and from a GPU where there is one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from pytest_attnperf.measure import trace
from pytest_attnperf.records import Launch


def kernel(name: str, ts: float, stream: int = 7, **args: Any) -> dict[str, Any]:
    """A kernel as Kineto exports it."""
    shape = {"grid": [8, 4, 1], "block": [128, 1, 1], "shared memory": 1024}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "args": {**shape, "stream": stream, **args}}


MARKER = kernel("fill", 1.0)


def test_kernels_carry_their_launch() -> None:
    """Grid, block and shared memory come with the name; the marker's own launch is left out."""
    seen = trace.make_trace([kernel("flash", 2.0), MARKER, {"cat": "cpu_op", "name": "aten::bmm", "ts": 0.5}])
    assert seen.launches == (Launch("flash", "kernel", (8, 4, 1), (128, 1, 1), 1024),)
    assert (seen.operators, seen.other_streams, seen.on_gpu) == (frozenset({"aten::bmm"}), (), True)


def test_the_marker_tells_the_stream() -> None:
    """The earliest kernel is ours: whatever runs on another stream than it is somebody else's."""
    seen = trace.make_trace([kernel("ours", 3.0), kernel("theirs", 2.0, stream=21), MARKER])
    assert [launch.name for launch in seen.other_streams] == ["theirs"]
    assert [launch.name for launch in seen.launches] == ["ours", "theirs"]


def test_copies_and_sets_carry_their_bytes() -> None:
    """A copy's size is its grid."""
    copy = {
        "cat": "gpu_memcpy",
        "name": "Memcpy DtoH (Device -> Pageable)",
        "ts": 2,
        "args": {"bytes": 64, "stream": 7},
    }
    fill = {"cat": "gpu_memset", "name": "Memset (Device)", "ts": 3, "args": {"bytes": 4, "stream": 7}}
    assert [(one.kind, one.grid) for one in trace.make_trace([MARKER, copy, fill]).launches] == [
        ("copy", (64,)),
        ("set", (4,)),
    ]


def test_a_call_that_runs_nothing_has_an_empty_trace() -> None:
    """Neither is an empty list of events an error."""
    assert trace.make_trace([MARKER]).launches == ()
    assert trace.make_trace([]).launches == ()


@pytest.mark.parametrize(
    ("backend", "operator"),
    [
        (SDPBackend.MATH, "aten::_scaled_dot_product_attention_math"),
        (SDPBackend.FLASH_ATTENTION, "aten::_scaled_dot_product_flash_attention_for_cpu"),
    ],
)
def test_operators_tell_torchs_backends_apart(backend: SDPBackend, operator: str) -> None:
    """Which implementation of attention torch chose is among its operators."""
    q = torch.randn(1, 2, 16, 8)

    def call() -> torch.Tensor:
        with sdpa_kernel([backend]):
            return scaled_dot_product_attention(q, q, q)

    seen = trace.record_operators(call)
    assert seen.operators is not None
    assert operator in seen.operators
    assert operator in {launch.name for launch in seen.launches}
    assert not seen.on_gpu


def test_views_and_allocations_are_not_work() -> None:
    """They differ between torch versions without anything running differently."""
    q = torch.randn(4, 6)
    seen = trace.record_operators(lambda: (q.view(6, 4).t().neg(), torch.empty(3)))
    assert [(launch.name, launch.kind, launch.calls) for launch in seen.launches] == [("aten::neg", "operator", 1.0)]
    assert seen.operators is not None
    assert {"aten::view", "aten::t", "aten::empty"} <= seen.operators


def test_looking_at_operators_spends_nothing() -> None:
    """Only the profiler that leaves its library behind forbids timing."""
    before = trace.was_profiler_used()
    trace.record_operators(lambda: torch.ones(2) + 1)
    assert trace.was_profiler_used() == before


@pytest.mark.parametrize("field", ["self_device_time_total", "self_cuda_time_total"])
def test_the_profiler_s_own_total_of_a_gpu(field: str) -> None:
    """Of device events, as this release or an older one names it; stretches that someone named are not work."""
    rows = [
        SimpleNamespace(device_type="DeviceType.CUDA", self_cpu_time_total=0.0, **{field: 12.345}),
        SimpleNamespace(device_type="DeviceType.CUDA", self_cpu_time_total=0.0, **{field: 2}),
        SimpleNamespace(device_type="DeviceType.CPU", self_cpu_time_total=7.5, **{field: 14.345}),
        SimpleNamespace(
            device_type="DeviceType.CUDA", is_user_annotation=True, self_cpu_time_total=1.0, **{field: 99.0}
        ),
    ]
    profiler = SimpleNamespace(key_averages=lambda: rows)
    assert trace.own_total_ns(profiler, "cuda") == 14_345
    assert trace.own_total_ns(profiler, "cpu") == 7_500


@pytest.mark.gpu
def test_a_gpu_shows_kernels_copies_and_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product, a round trip over the host and a side stream are told apart; the process is spent."""
    monkeypatch.setattr(trace, "_used", [])
    q, side = torch.randn(64, 64, device="cuda"), torch.cuda.Stream()

    def on_side() -> torch.Tensor:
        with torch.cuda.stream(side):
            return q @ q

    plain, aside = trace.record_gpu_work(lambda: q @ q), trace.record_gpu_work(on_side)
    assert trace.was_profiler_used()
    assert [one.kind for one in plain.launches] == ["kernel"]
    assert plain.launches[0].grid
    assert plain.other_streams == ()
    assert aside.other_streams == aside.launches
    crossed = trace.record_gpu_work(lambda: q.cpu().cuda())
    assert {one.kind for one in crossed.launches} == {"copy"}
    assert sum(one.grid[0] for one in crossed.launches) == 2 * 64 * 64 * 4
