"""CUDA's and ROCm's libraries of functions for kernels, computed on the CPU where Triton interprets.

In `triton.language.extra.libdevice` a function is an empty one, which the compiler replaces; interpreted it would give
None without a word.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pytest_attnperf.measure.interpreter_driver import NeedsGpuError

NUMPY_NAMES = {
    **{
        name: name
        for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "floor", "ceil")
    },
    **{
        name: name
        for name in ("trunc", "rint", "sin", "cos", "tan", "sinh", "cosh", "tanh", "copysign", "fmod", "hypot")
    },
    "abs": "abs",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "atan2": "arctan2",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "pow": "power",
    "div_rn": "divide",
    "fast_dividef": "divide",
    "fast_expf": "exp",
    "fast_logf": "log",
    "fast_log2f": "log2",
    "fast_sinf": "sin",
    "fast_cosf": "cos",
    "fast_tanhf": "tanh",
    "fast_powf": "power",
    "sqrt_rn": "sqrt",
}
"""libdevice's name -> numpy's, of the functions that both have for float32 and float64."""

FLOATS = ("fp32", "fp64")
"""Types that libdevice has these functions for."""


def interpreted(stub: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a stub of libdevice stands for, on the tensors of Triton's interpreter."""
    name = stub.__name__

    @functools.wraps(stub)
    def call(*args: Any, **kwargs: Any) -> Any:
        if name != "rsqrt" and name not in NUMPY_NAMES:
            raise NeedsGpuError(f"libdevice.{name}")
        return _computed(name, (*args, *kwargs.values()))

    return call


def _computed(name: str, args: tuple[Any, ...]) -> Any:
    """The value of the function; its first tensor decides the type. Raises TypeError for other types than `FLOATS`."""
    import triton.language as tl
    from triton.runtime import interpreter

    tensors = [arg for arg in args if isinstance(arg, tl.tensor)]
    for tensor in tensors:
        if str(tensor.dtype) not in FLOATS:
            raise TypeError(f"libdevice.{name} takes {' or '.join(FLOATS)}, got {tensor.dtype}; convert it with .to()")
    if not tensors:
        raise TypeError(f"libdevice.{name} takes a tensor of {' or '.join(FLOATS)}, got {args}")
    values = [_value(arg, tl, tensors[0].handle.data.dtype) for arg in args]
    numpy: Any = interpreter.np  # whichever it computes with itself
    with numpy.errstate(all="ignore"):
        data = 1 / numpy.sqrt(values[0]) if name == "rsqrt" else getattr(numpy, NUMPY_NAMES[name])(*values)
    dtype = tensors[0].dtype
    shape = list(data.shape) if any(tensor.type.is_block() for tensor in tensors) else []
    return tl.tensor(interpreter.TensorHandle(data, dtype), tl.block_type(dtype, shape) if shape else dtype)


def _value(arg: Any, tl: Any, dtype: Any) -> Any:
    if isinstance(arg, tl.tensor):
        return arg.handle.data
    return dtype.type(arg.value if isinstance(arg, tl.constexpr) else arg)
