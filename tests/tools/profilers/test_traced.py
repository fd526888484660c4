from __future__ import annotations

from pytest_attnperf.records.profiles import KernelShape, Spread
from pytest_attnperf.tools.profilers.dispatches import Dispatches, DispatchesBuilder
from pytest_attnperf.tools.profilers.kernel_families import Rules
from pytest_attnperf.tools.profilers.traced import APART, Traced

SMALL = KernelShape("attn_fwd", agent="Agent 4", grid_items=(64, 1, 1))
LARGE = KernelShape("attn_fwd", agent="Agent 4", grid_items=(640, 1, 1))
COPY = KernelShape("HOST_TO_DEVICE", kind="copy", agent="Agent 4", bytes=8)
BLIT = KernelShape("__amd_rocclr_copyBuffer", agent="Agent 4")
BLIT_ELSEWHERE = KernelShape("__amd_rocclr_copyBuffer", agent="Agent 5")
ELSEWHERE = KernelShape("attn_fwd", agent="Agent 5")


def _traced(*rows: tuple[KernelShape, int]) -> Traced:
    """Dispatches one behind the other with these durations."""
    builder, now = DispatchesBuilder(), 0
    for shape, duration in rows:
        builder.add(builder.number_of(shape), now, now + duration)
        now += duration
    return Traced.of(builder.dispatches(), Rules.default())


def test_sizes_of_one_name_are_one_kernel() -> None:
    """Two sizes are one kernel, whose first dispatch is compared with later ones of its own size only."""
    traced = _traced((LARGE, 90), (SMALL, 10), (LARGE, 60), (SMALL, 11))
    (kernel,) = traced.kernels
    assert (kernel.name, kernel.family, len(kernel.shapes), kernel.first_at) == ("attn_fwd", "attention", 2, 0)
    (first,) = traced.firsts
    assert (first.duration_ns, first.others) == (90, Spread(1, 60, 60.0, 60.0, 60.0, 60, 60))


def test_calls_leave_copies_fills_and_other_devices_out() -> None:
    """Passes are looked for on the busiest device, with the places of everything else in the order marked."""
    traced = _traced((COPY, 1), (SMALL, 1), (BLIT, 1), (ELSEWHERE, 1), (LARGE, 1), (BLIT_ELSEWHERE, 1))
    calls = traced.calls()
    assert calls.counts == {"attn_fwd": 2}
    assert calls.apart == {"HOST_TO_DEVICE": 1, "__amd_rocclr_copyBuffer": 2}
    assert list(calls.order or ()) == [APART, 0, APART, APART, 0, APART]
    assert list(calls.attention) == ["attn_fwd"]


def test_what_a_trace_holds() -> None:
    """A trace of copies alone holds no kernels, and one of kernels no copies."""
    copies, kernels = _traced((COPY, 1)), _traced((SMALL, 1), (BLIT, 2))
    assert (copies.holds_kernels, copies.holds_copies, copies.kernel_calls) == (False, True, 0)
    assert (kernels.holds_kernels, kernels.holds_copies, kernels.kernel_calls) == (True, False, 2)


def test_shapes_without_a_dispatch_are_no_kernels() -> None:
    """A size that a reader numbered, but of which every row was unusable, does not appear."""
    assert Traced.of(Dispatches(shapes=(SMALL,)), Rules.default()).kernels == ()
