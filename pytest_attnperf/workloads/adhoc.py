"""A workload and a backend made of plain callables: what `attnperf.gate("my_kernel", fn, ...)` proves and measures."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_attnperf.backends import Prepared
from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.records import DeviceInfo, Tolerance
from pytest_attnperf.workloads.precision import full_fp32_matmul, reference_dtype

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.base import Workload

CACHE_STATES = ("hot", "cold")


@dataclass(frozen=True)
class AdHoc:
    """One problem given by functions instead of shapes.

    name             what makes it this problem and no other, e.g. the test's name
    make_inputs_fn   `f(seed)` or `f()` -> a tensor or a tuple of tensors on the device, the same for the same seed;
                     torch is seeded before the call, so a function without a parameter may use torch's generator
    reference_fn     `f(*inputs)` -> a tensor, a tuple or a dict of tensors, computed in the dtype of its inputs: run on
                     upcast inputs for the truth, and on the inputs as they are for the budget; gradients are enabled,
                     and its inputs are leaves, so that it may set `requires_grad_` on them and differentiate
    flops            useful floating-point operations of one call, if known
    bytes_min        unique bytes one call must move, if known
    dtype            one of DTYPE_BYTES, or '' where unknown: then no compute floor can be given
    cache_state      'hot', or 'cold' for a call that is timed with inputs that are in no cache
    non_finite_outputs    names of outputs whose reference may hold NaN or Inf, to be matched exactly

    Raises WorkloadError for another cache state.
    """

    name: str
    make_inputs_fn: Callable[..., Any]
    reference_fn: Callable[..., Any]
    flops: float | None = None
    bytes_min: float | None = None
    dtype: str = ""
    cache_state: str = "hot"
    non_finite_outputs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.cache_state not in CACHE_STATES:
            raise WorkloadError(
                f"cache_state of {self.name!r} must be one of {', '.join(CACHE_STATES)}, got {self.cache_state!r}"
            )

    @property
    def family(self) -> str:
        """'adhoc'; its ids cannot be parsed back, because they do not hold the functions."""
        return "adhoc"

    @property
    def id(self) -> str:
        """`adhoc-` and the name, with everything but letters, digits, '_' and '.' replaced by '_'."""
        return f"adhoc-{re.sub(r'[^A-Za-z0-9_.]', '_', self.name)}"

    def definition(self) -> dict[str, Any]:
        """Name, figures and where the functions are defined, as builtins; what is not at its default only where it is.

        That is so for `non_finite_outputs` and a cold `cache_state`, because baselines store this.
        """
        unusual: dict[str, Any] = {}
        if self.non_finite_outputs:
            unusual["non_finite_outputs"] = sorted(self.non_finite_outputs)
        if self.cache_state != "hot":
            unusual["cache_state"] = self.cache_state
        return {
            "family": self.family,
            "name": self.name,
            "inputs": _source_name(self.make_inputs_fn),
            "reference": _source_name(self.reference_fn),
            "flops": self.flops,
            "bytes_min": self.bytes_min,
            "dtype": self.dtype,
            **unusual,
        }

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """What `make_inputs_fn` makes for the seed; `planted` changes nothing, for nobody knows where its edges are.

        Raises WorkloadError when it gives anything but tensors on `device`.
        """
        import torch

        with torch.random.fork_rng():
            torch.manual_seed(seed)
            made = _make(self.make_inputs_fn, seed)
        tensors = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        for number, tensor in enumerate(tensors):
            if not isinstance(tensor, torch.Tensor):
                kind = type(tensor).__name__
                raise WorkloadError(
                    f"inputs of {self.name!r} must be a tensor or a tuple of tensors; number {number} is a {kind}"
                )
            if tensor.device.type != torch.device(device).type:
                raise WorkloadError(
                    f"inputs of {self.name!r}: tensor {number} is on {tensor.device}, but this case is measured on "
                    f"{device}; create it with device={device!r}"
                )
        return tuple(tensor.detach() for tensor in tensors)

    def reference(self, inputs: Tensors) -> Outputs:
        """`reference_fn` on floating-point inputs upcast to `reference_dtype`; others are given as they are.

        Raises WorkloadError when it gives anything but tensors, or rounds its result to a narrower dtype than it was
        given.
        """
        floats = tuple(tensor for tensor in inputs if tensor.is_floating_point())
        dtype = reference_dtype(floats)
        outputs = self._computed(inputs, dtype)
        for name, tensor in outputs.items():
            if floats and tensor.is_floating_point() and tensor.dtype.itemsize < dtype.itemsize:
                raise WorkloadError(
                    f"the reference of {self.name!r} returned {name!r} as {tensor.dtype} for inputs in {dtype}: it "
                    "must compute in the dtype of its inputs, or its own rounding would pass for the truth"
                )
        return outputs

    def plain(self, inputs: Tensors) -> Outputs:
        """`reference_fn` on copies of the inputs as they are. Raises WorkloadError when it gives no tensors."""
        return self._computed(inputs, None)

    def _computed(self, inputs: Tensors, dtype: torch.dtype | None) -> Outputs:
        """`reference_fn` on copies of the inputs, floating-point ones in `dtype` unless that is None; detached."""
        import torch

        # Outside inference mode, copies of inference tensors are ordinary ones, that gradients can be asked of.
        with full_fp32_matmul(), torch.inference_mode(False), torch.enable_grad():
            copies = (
                tensor.detach().to(dtype if dtype and tensor.is_floating_point() else tensor.dtype, copy=True)
                for tensor in inputs
            )
            outputs = named_outputs(self.reference_fn(*copies))
        for name, tensor in outputs.items():
            if not isinstance(tensor, torch.Tensor):
                raise WorkloadError(
                    f"the reference of {self.name!r} returned a {type(tensor).__name__} for {name!r}; it must return "
                    "a tensor, or a tuple, list or dict of tensors"
                )
        return {name: tensor.detach() for name, tensor in outputs.items()}


@dataclass(frozen=True)
class CallableBackend:
    """A function of a workload's inputs as a backend; runs wherever its inputs are."""

    name: str
    fn: Callable[..., Any]
    tolerance: Tolerance = field(default_factory=Tolerance)
    families: frozenset[str] = frozenset({"adhoc"})
    cpu_flops_max: float = float("inf")
    times_on_cpu: bool = True

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """None: whoever gates a function says by that that it runs here."""
        return []

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """The function as it is, on copies of the inputs.

        Copies keep the order of the dimensions in memory; those of inputs with gaps or expanded dimensions are dense.
        """
        return Prepared(
            call=self.fn,
            tensors=tuple(tensor.detach().clone() for tensor in inputs),
            convert=lambda inputs: inputs,
            outputs=named_outputs,
        )


def named_outputs(returned: Any) -> Outputs:
    """A tensor -> {'out': it}; a tuple or list -> {'out0': ..., 'out1': ...}; a dict as it is."""
    if isinstance(returned, Mapping):
        return dict(returned)
    if isinstance(returned, (tuple, list)):
        return {f"out{number}": tensor for number, tensor in enumerate(returned)}
    return {"out": returned}


def _make(function: Callable[..., Any], seed: int) -> Any:
    """Call with the seed where a parameter is named so or must be given; `def make(rows=512)` gets no seed as rows."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.name == "seed" for parameter in parameters):
        return function(seed=seed)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in positional and p.default is inspect.Parameter.empty]
    return function(seed) if required else function()


def _source_name(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", None) or "?"
    return f"{module}.{getattr(function, '__qualname__', type(function).__name__)}"
