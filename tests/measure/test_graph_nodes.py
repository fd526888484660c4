"""What a captured graph holds; the driver is NVIDIA's, so that most of it needs a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.measure import graph_nodes
from pytest_attnperf.measure.graph_nodes import GraphContent, UnreadableGraphError
from pytest_attnperf.measure.timers.capture import capture_graph


def captured(call: Callable[[], Any], calls: int = 1) -> GraphContent:
    """The content of a graph of so many calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph, _ = capture_graph(call, calls, stream)
    return graph_nodes.read_graph_content(graph)


def test_an_older_torch_is_named() -> None:
    """A graph that torch keeps to itself is unreadable, which is said with the version that changed it."""
    with pytest.raises(UnreadableGraphError, match=r"torch \S+ does not expose its graphs; 2.8 and later do"):
        graph_nodes.read_graph_content(object())  # type: ignore[arg-type]


def test_rocm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's driver cannot read HIP's graphs."""
    monkeypatch.setattr(torch.version, "hip", "7.0")
    with pytest.raises(UnreadableGraphError, match="this torch is ROCm's"):
        graph_nodes.read_graph_content(object())  # type: ignore[arg-type]


@pytest.mark.gpu
def test_kernels_are_read_with_their_launch() -> None:
    """Names are readable, grids and blocks are the launch's, and a block of calls holds each of them."""
    q = torch.randn(64, 64, device="cuda")
    content = captured(lambda: q + 1.5, calls=3)
    assert len(content.launches) == 3
    assert len(set(content.launches)) == 1
    assert "at::native::vectorized_elementwise_kernel" in content.launches[0].name
    assert content.launches[0].block == (128, 1, 1)
    assert not content.branches
    assert len(content.functions) == 3
    assert len(set(content.functions)) == 1
    assert content.functions[0]


@pytest.mark.gpu
def test_copies_and_sets_are_read() -> None:
    """Copies on the device are told from those that cross to the host, in either direction."""
    q, pinned = torch.randn(64, device="cuda"), torch.ones(64).pin_memory()
    on_device = torch.empty(64, device="cuda")
    names = [
        captured(call).launches[0].name
        for call in (
            lambda: on_device.copy_(q),
            lambda: on_device.copy_(pinned, non_blocking=True),
            lambda: pinned.copy_(q, non_blocking=True),
        )
    ]
    assert names == ["Memcpy DtoD", "Memcpy HtoD", "Memcpy DtoH"]
    assert captured(lambda: on_device.copy_(q)).functions == (0,)
    (cleared,) = captured(on_device.zero_).launches
    assert cleared.kind in ("set", "kernel")


@pytest.mark.gpu
def test_a_fork_is_seen() -> None:
    """Work on a second stream, properly joined, is captured as a branch."""
    q, side = torch.randn(64, 64, device="cuda"), torch.cuda.Stream()

    def forked() -> torch.Tensor:
        current = torch.cuda.current_stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            product = q @ q
        total = q + 1
        current.wait_stream(side)
        return product + total

    assert captured(forked).branches
    assert not captured(lambda: (q @ q) + (q + 1)).branches
