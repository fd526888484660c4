"""Prepares a process to interpret Triton's kernels, and notes whether a case ran interpreted kernels.

Autotuners run their first configuration, because timing an interpreter says nothing about speed. Triton's driver is an
interpreter, torch's CUDA device of a CPU tensor does nothing, and libdevice is computed on the CPU.

The functions in `triton.language.extra.libdevice` are empty, because the compiler replaces them. Interpreted, they
would return None without an error. So CUDA's and ROCm's device functions are computed with numpy here.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from pytest_attnperf.measure import interpreter_driver
from pytest_attnperf.measure.autotuners import TRITON
from pytest_attnperf.measure.interpreter_driver import NeedsGpuError
from pytest_attnperf.measure.patching import EVERY_FUNCTION, Patch, Patches

INTERPRETER = "triton.runtime.interpreter"
LIBDEVICE = "triton.language.extra.libdevice"

NOT_TIMED = "interpreted: Triton runs without compiling here; its time says nothing"
"""Reason why a case of interpreted kernels has no time."""

NO_DEVICE = -1
"""Index with which torch's `torch.cuda.device(...)` does nothing."""

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
"""libdevice's name -> numpy's, for functions that both have for float32 and float64."""

FLOATS = ("fp32", "fp64")
"""Types for which libdevice has these functions."""


class Interpreted:
    """Records whether a case's calls ran an interpreted kernel."""

    def __init__(self) -> None:
        self.seen = False


class _ProcessState:
    """This process's patches; None while Triton is unchanged."""

    patches: Patches | None = None


def is_interpreting() -> bool:
    """Tells whether TRITON_INTERPRET=1 makes Triton interpret kernels in this process."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def start_interpreting() -> None:
    """Patches Triton and torch.cuda for interpreted kernels until `stop_interpreting`, if TRITON_INTERPRET=1.
    It imports nothing; modules are patched when they are imported. A second call does nothing."""
    if _ProcessState.patches is None and is_interpreting():
        _ProcessState.patches = Patches(_make_patches())
        _ProcessState.patches.__enter__()


def stop_interpreting() -> None:
    """Undoes the patches of `start_interpreting`, except Triton's active driver and libdevice functions that other
    modules imported in between."""
    if _ProcessState.patches is not None:
        _ProcessState.patches.__exit__(None, None, None)
        _ProcessState.patches = None


@contextlib.contextmanager
def watch_kernels(interpreted: Interpreted) -> Iterator[None]:
    """Sets `interpreted.seen` as soon as a kernel runs interpreted before the context ends, also in a backward pass."""
    with Patches([Patch(INTERPRETER, "GridExecutor", "__call__", functools.partial(_wrap_executor, interpreted))]):
        yield


def _make_patches() -> list[Patch]:
    return [
        Patch("triton.runtime.driver", "", "driver", interpreter_driver.activate_interpreter),
        Patch(*TRITON, "prune_configs", first_config_only),
        Patch(*TRITON, "_bench", lambda previous: not_benchmarked),
        Patch(INTERPRETER, "InterpretedFunction", "run", _saying_what_was_warmed),
        Patch(INTERPRETER, "", "_implicit_cvt", _floats_as_tensors),
        Patch(LIBDEVICE, "", EVERY_FUNCTION, interpret_stub),
        Patch("torch.cuda", "device", "__init__", without_device),
    ]


def _wrap_executor(interpreted: Interpreted, previous: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(previous)
    def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
        interpreted.seen = True
        return previous(executor, *args, **kwargs)

    return call


def first_config_only(previous: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps an autotuner's `prune_configs` so that it keeps its first configuration, and asks no model of a GPU."""

    @functools.wraps(previous)
    def prune_configs(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
        model, autotuner.perf_model = autotuner.perf_model, None  # it models a GPU, and requires one
        try:
            return list(previous(autotuner, *args, **kwargs))[:1]
        finally:
            autotuner.perf_model = model

    return prune_configs


def not_benchmarked(autotuner: Any, *args: Any, **kwargs: Any) -> list[float]:
    """Returns three zeros where Triton expects a benchmark's times; up to 3.8 it times even a single configuration."""
    return [0.0, 0.0, 0.0]


def _floats_as_tensors(previous: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps Triton's conversion of arguments so that a Python float becomes a float32 tensor, as in compiled kernels.
    The interpreter alone leaves it a float, which has no `.to()`."""

    @functools.wraps(previous)
    def implicit_cvt(arg: Any) -> Any:
        return _make_scalar(arg) if isinstance(arg, float) else previous(arg)

    return implicit_cvt


def _make_scalar(value: float) -> Any:
    """Converts a number to a float32 of Triton's interpreter."""
    import triton.language as tl
    from triton.runtime import interpreter

    numpy: Any = interpreter.np
    return tl.tensor(interpreter.TensorHandle(numpy.array([value], dtype=numpy.float32), tl.float32), tl.float32)


def _saying_what_was_warmed(previous: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(previous)
    def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        result = previous(function, *args, **kwargs)
        return interpreter_driver.NotCompiled(function.__name__) if kwargs.get("warmup") else result

    return run


def without_device(previous: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the constructor of `torch.cuda.device` so that the context does nothing for a CPU."""

    @functools.wraps(previous)
    def init(context: Any, device: Any) -> None:
        import torch

        on_cpu = isinstance(device, (str, torch.device)) and torch.device(device).type == "cpu"
        previous(context, NO_DEVICE if on_cpu or device is None else device)

    return init


def interpret_stub(stub: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that computes with numpy what an empty libdevice function (`stub`) would compute on a GPU.
    It takes the tensors of Triton's interpreter, and raises NeedsGpuError for a function that numpy lacks."""
    name = stub.__name__

    @functools.wraps(stub)
    def call(*args: Any, **kwargs: Any) -> Any:
        if name != "rsqrt" and name not in NUMPY_NAMES:
            raise NeedsGpuError(f"libdevice.{name}")
        return _compute_function(name, (*args, *kwargs.values()))

    return call


def _compute_function(name: str, args: tuple[Any, ...]) -> Any:
    """Computes libdevice's function `name` with numpy; the result has the type of the first tensor in `args`.
    Raises TypeError for tensors of other types than fp32 and fp64, and if there is no tensor."""
    import triton.language as tl
    from triton.runtime import interpreter

    tensors = [arg for arg in args if isinstance(arg, tl.tensor)]
    for tensor in tensors:
        if str(tensor.dtype) not in FLOATS:
            raise TypeError(f"libdevice.{name} takes {' or '.join(FLOATS)}, got {tensor.dtype}; convert it with .to()")
    if not tensors:
        raise TypeError(f"libdevice.{name} takes a tensor of {' or '.join(FLOATS)}, got {args}")
    values = [_unwrap_value(arg, tl, tensors[0].handle.data.dtype) for arg in args]
    numpy: Any = interpreter.np  # the module that the interpreter itself computes with
    with numpy.errstate(all="ignore"):
        data = 1 / numpy.sqrt(values[0]) if name == "rsqrt" else getattr(numpy, NUMPY_NAMES[name])(*values)
    dtype = tensors[0].dtype
    shape = list(data.shape) if any(tensor.type.is_block() for tensor in tensors) else []
    return tl.tensor(interpreter.TensorHandle(data, dtype), tl.block_type(dtype, shape) if shape else dtype)


def _unwrap_value(arg: Any, tl: Any, dtype: Any) -> Any:
    if isinstance(arg, tl.tensor):
        return arg.handle.data
    return dtype.type(arg.value if isinstance(arg, tl.constexpr) else arg)
