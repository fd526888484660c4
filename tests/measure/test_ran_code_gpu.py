"""On a device: the launches of a captured graph are those of the objects that were seen when they were made."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from pytest_attnperf.measure import graph_nodes
from pytest_attnperf.measure.ran_code import RanCode, record_code
from pytest_attnperf.measure.timers.capture import capture_graph


@pytest.mark.gpu
def test_kernels_of_a_graph_have_their_objects() -> None:
    """On a device, the handles of a captured graph are those of the kernels that Triton loaded."""
    spec = importlib.util.spec_from_file_location("autotuned_copy", Path(__file__).with_name("autotuned_copy.py"))
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    source = torch.randn(1 << 16, device="cuda")
    ran, stream = RanCode(), torch.cuda.Stream()
    with torch.cuda.stream(stream), record_code(ran):
        kernels.copied(source)
    torch.cuda.synchronize()
    graph, _ = capture_graph(lambda: kernels.copied(source), 1, stream)
    content = graph_nodes.read_graph_content(graph)
    assert all(content.functions)
    (launch,) = ran.identify_launches(content.launches, content.functions)
    assert (launch.name, bool(launch.object_id)) == ("copy_kernel", True)
    assert ran.encode_objects([launch])[launch.object_id]


@pytest.mark.gpu
def test_kernels_that_inductor_wrote_have_their_objects() -> None:
    """On a device, every Triton kernel of a compiled function is known in its graph, whoever launches it."""
    x, ran, stream = torch.randn(515, 1030, device="cuda"), RanCode(), torch.cuda.Stream()
    compiled = torch.compile(lambda x: torch.softmax(x.transpose(0, 1) * 2, dim=-1), dynamic=False)
    with torch.cuda.stream(stream), record_code(ran):
        compiled(x)
    torch.cuda.synchronize()
    graph, _ = capture_graph(lambda: compiled(x), 1, stream)
    content = graph_nodes.read_graph_content(graph)
    launches = ran.identify_launches(content.launches, content.functions)
    written = [launch for launch in launches if launch.name.startswith("triton_")]
    assert written
    assert all(launch.object_id for launch in written), ran.build_unknown_entry(launches)
