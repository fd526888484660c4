"""Whether what is read of a result follows from the tensors that the call returned, and from nothing else.

Once all of them are NaN, so must be what is read. Otherwise it comes from something that no look at tensors reaches, an
object of the backend's own with numbers in it, and may be computed while it is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness import poison
from pytest_attnperf.workloads.input_memory import each_once
from pytest_attnperf.workloads.returned import detached, fields_of

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors


def unfounded(raw: Any, outputs: Callable[[Any], Outputs], returned: Tensors) -> list[str]:
    """What is wrong where floating-point outputs do not follow from `returned`, which is as it was afterwards.

    Elements of 0 and infinity, and those of one other value, may be padding; a Python number may have been returned as
    it is. Integers change places where NaN alone does not explain an output: they may be indices.
    """
    before = {name: tensor.clone() for name, tensor in _floats(outputs(raw)).items()}
    floats = tuple(tensor for tensor in returned if tensor.is_floating_point() or tensor.is_complex())
    others = tuple(tensor for tensor in returned if not (tensor.is_floating_point() or tensor.is_complex()))
    with _other_values(floats):
        left = _unmoved(before, outputs(raw))
    if left and others:
        with _other_values((*floats, *others)):
            after = _unmoved(before, outputs(raw))
        # Two integers that change places may be equal.
        left = {name: same for name, same in after.items() if len(same) > before[name].count_nonzero() / 2}
    numbers = tuple(_numbers_in(raw))
    for name, same in left.items():
        if len(same) > len(numbers) or not all(_is_among(float(element), numbers) for element in same):
            return [
                f"work is done while the result is read: {len(same)} elements of output {name!r} come from something "
                "else than the tensors that the call returned. Return the tensors that hold the result, which "
                "`Prepared.outputs` may bring into another layout and dtype only"
            ]
    return []


def _unmoved(before: Outputs, outputs: Outputs) -> dict[str, torch.Tensor]:
    """Elements of each output that are what they were, and no padding."""
    found = {}
    now = _floats(outputs)
    for name, first in before.items():
        if name in now and now[name].shape == first.shape:
            same = first[now[name].eq(first)]
            same = same[same.ne(0) & same.isfinite()]
            if same.numel() and (first.numel() == 1 or bool(same.ne(same[0]).any())):
                found[name] = same
    return found


def _is_among(value: float, numbers: tuple[float, ...]) -> bool:
    """Whether it is one of the numbers, rounded as a tensor rounds it."""
    return any(abs(value - number) <= 2**-8 * abs(number) for number in numbers)


def _floats(outputs: Outputs) -> Outputs:
    """Plain floating-point outputs, in a type that can be compared."""
    import torch

    plain = ((name, detached(output)) for name, output in outputs.items())
    return {
        name: tensor.float() if tensor.dtype.itemsize == 1 else tensor
        for name, tensor in plain
        if type(tensor) is torch.Tensor and tensor.is_floating_point()
    }


@contextlib.contextmanager
def _other_values(tensors: Tensors) -> Iterator[None]:
    """NaN in all of them meanwhile, and integers in reverse order; they may share memory."""
    import torch

    held = tuple(each_once(tensor) for tensor in tensors if tensor.numel())
    with torch.inference_mode():
        kept = tuple(tensor.clone() for tensor in held)
        for tensor, copy in zip(held, kept, strict=True):
            whole = not (tensor.is_floating_point() or tensor.is_complex())
            turned = copy.reshape(-1).flip(0).reshape(copy.shape) if whole else copy
            if turned is copy or torch.equal(turned, copy):
                poison.destroy((tensor,))
            else:
                tensor.copy_(turned)
    try:
        yield
    finally:
        with torch.inference_mode():
            for tensor, copy in zip(held, kept, strict=True):
                tensor.copy_(copy)


def _numbers_in(raw: Any) -> Iterator[float]:
    """Python's numbers in what a call returned."""
    parts = fields_of(raw)
    if isinstance(raw, (bool, int, float)):
        yield float(raw)
    elif parts is not None:
        for part in parts.values():
            yield from _numbers_in(part)
    elif isinstance(raw, (tuple, list)):
        for part in raw:
            yield from _numbers_in(part)
