"""Incoming gradients that nobody can know before the backward pass: their memory holds other values until then.

Where only a backward pass is timed, its forward pass is not, and what begins the backward pass lies in memory already.
A forward pass that looks for it among its callers could compute the gradients there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytest_attnperf.workloads.input_memory import as_integers

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors


class Withheld:
    """Values of the same size to stand in for incoming gradients, drawn once, so that a captured graph may read them.

    like   incoming gradients of the shapes and sizes that are to be withheld
    """

    def __init__(self, like: Tensors) -> None:
        self._others = tuple(map(_drawn, like))

    @contextlib.contextmanager
    def of(self, tensors: Tensors) -> Iterator[None]:
        """The memory of `tensors` holds the other values meanwhile, and every bit of its own afterwards.

        On a GPU all of it is work in the current stream, so that it may be captured.
        """
        import torch

        with torch.no_grad():
            kept = tuple(tensor.clone() for tensor in tensors)
            for tensor, own, other in zip(tensors, kept, self._others, strict=True):
                _bits(own).bitwise_not_()  # nor do the true values lie anywhere else
                tensor.copy_(other)
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):  # a capture that has failed takes no more work, and has done none
                _put_back(tensors, kept)
            raise
        _put_back(tensors, kept)


def _put_back(tensors: Tensors, kept: Tensors) -> None:
    import torch

    with torch.no_grad():
        for tensor, own in zip(tensors, kept, strict=True):
            _bits(own).bitwise_not_()
            tensor.copy_(own)


def _drawn(like: torch.Tensor) -> torch.Tensor:
    """Normal values with the root mean square of `like`; nobody's generator is drawn from."""
    import torch

    generator = torch.Generator(like.device)
    generator.seed()
    size = like.detach().abs().double().square().mean().sqrt()
    normal = torch.randn(like.shape, generator=generator, dtype=torch.float32, device=like.device)
    return (normal * size).to(like.dtype)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return as_integers(torch.view_as_real(tensor) if tensor.is_complex() else tensor)
