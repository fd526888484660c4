"""Running a reference as it is in another floating-point width, whatever widths it names itself.

References are written for one width: they upcast inside (`x.float()`), sum in fp32 and round at the end. Given fp64
inputs such a function would still round to fp32, and given bf16 inputs it shows no error of bf16 arithmetic. So every
width that it names is replaced: by the widest for the truth, by that of its inputs for the plain computation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors


@contextlib.contextmanager
def widened(dtype: torch.dtype, *, unrounded: bool = False) -> Iterator[None]:
    """Replace every floating-point type by the wider `dtype` (fp32 or fp64) meanwhile.

    unrounded   leave out rounding to integers, too: `torch.round` and casts to int8 and uint8. A quantising function
                then gives the values before it quantises them
    """
    import torch

    narrow = [*_fp8(), torch.float16, torch.bfloat16, torch.float32]
    replaced = {each: dtype for each in narrow if each != dtype}
    if unrounded:
        replaced |= {torch.int8: dtype, torch.uint8: dtype}
    with _default_dtype(dtype), _width_mode(replaced, unrounded):
        yield


@contextlib.contextmanager
def lowered(dtype: torch.dtype) -> Iterator[None]:
    """Replace fp32 and fp64 by the narrower `dtype` (f16 or bf16) meanwhile."""
    import torch

    with _width_mode({torch.float32: dtype, torch.float64: dtype}, unrounded=False):
        yield


def working_dtype(tensors: Tensors) -> torch.dtype | None:
    """f16 or bf16, where that is the narrowest type among the floating-point inputs; None where none of both is."""
    import torch

    floats = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    narrow = [dtype for dtype in floats if dtype in (torch.float16, torch.bfloat16)]
    return narrow[0] if narrow and all(dtype.itemsize >= narrow[0].itemsize for dtype in floats) else None


def _fp8() -> list[torch.dtype]:
    import torch

    names = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    return [getattr(torch, name) for name in names if hasattr(torch, name)]


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """What `torch.zeros(n)` makes meanwhile."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _width_mode(replaced: dict[torch.dtype, torch.dtype], unrounded: bool) -> Any:
    """A mode of torch in which every type among `replaced` that a call names is another."""
    import torch
    from torch.overrides import TorchFunctionMode

    casts = {
        torch.Tensor.float: torch.float32,
        torch.Tensor.double: torch.float64,
        torch.Tensor.half: torch.float16,
        torch.Tensor.bfloat16: torch.bfloat16,
    }
    rounding = (torch.round, torch.Tensor.round) if unrounded else ()

    def other(value: Any) -> Any:
        return replaced.get(value, value) if isinstance(value, torch.dtype) else value

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            if func in casts and args:
                return args[0].to(other(casts[func]))
            if func in rounding:
                return args[0]
            named = {name: other(value) for name, value in (kwargs or {}).items()}
            return func(*map(other, args), **named)

    return Mode()
