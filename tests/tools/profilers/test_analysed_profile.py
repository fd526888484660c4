from __future__ import annotations

import itertools

from pytest_attnperf.records.profiles import KernelShape
from pytest_attnperf.tools.profilers.analysed_profile import format_device, format_lane
from tests.tools.profilers.page.samples import make_analysed, make_network


def test_passes_are_spans_that_do_not_overlap() -> None:
    """Each has its dispatches, and ends where the next begins at the latest."""
    spans = make_network(passes=4).list_passes()
    assert [(one.number, one.begin, one.end) for one in spans] == [(1, 0, 11), (2, 11, 22), (3, 22, 33), (4, 33, 44)]
    assert all(one.end_ns <= other.start_ns for one, other in itertools.pairwise(spans))


def test_unknown_passes_are_none() -> None:
    """Without passes there is no span."""
    assert make_analysed([("k", "1", "s", 0, 5)]).list_passes() == ()


def test_families_are_by_shape() -> None:
    """Each distinct launch has the family of its kernel in the summary."""
    analysed = make_network()
    known = {kernel.name: kernel.family for kernel in analysed.summary.kernels}
    found = zip(analysed.profile.dispatches.shapes, analysed.find_families(), strict=True)
    assert {shape.name: family for shape, family in found} == known


def test_lanes_and_devices_have_names() -> None:
    """A stream by its name, an unknown one by what runs there; a device by its number or name."""
    copy = KernelShape("HtoD", "copy", "8")
    assert format_lane(copy, "", with_device=True) == "GPU 8 copies"
    assert format_lane(KernelShape("k"), "stream 7", with_device=False) == "stream 7"
    assert [format_device(name) for name in ("8", "Agent 4", "")] == ["GPU 8", "Agent 4", "GPU"]
