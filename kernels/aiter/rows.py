"""RMSNorm, LayerNorm and softmax of aiter: Composable Kernel (`ck`), HIP (`aiter.hip`) and Triton (`aiter.triton`).

RMSNorm in Composable Kernel is `rms_norm` until v0.1.9, `rmsnorm2d_fwd_ck` beside a dispatcher in early 2026, and gone
in e4048607a5 (2026-08-22), where HIP kernels took its place; LayerNorm is CK in all of them, and softmax in none.
Written from that source; never run on an AMD GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.aiter.direct import Direct, Function, device_reasons, prepare_direct
from kernels.aiter.importing import import_aiter, without_ck
from kernels.aiter.package import version_entries
from kernels.aiter.signatures import EntryPoint
from kernels.limits import HALVES, join_names
from pytest_attnperf.backends import Backend, Declares
from pytest_attnperf.errors import UnsupportedError
from pytest_attnperf.workloads import layernorm, rmsnorm
from pytest_attnperf.workloads.layernorm import LayerNorm
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.softmax import Softmax

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Prepared, Tensors
    from pytest_attnperf.records import DeviceInfo

RMSNORM, NORM = "aiter.ops.rmsnorm", "aiter.ops.norm"
TRITON_RMSNORM, OLD_TRITON_RMSNORM = "aiter.ops.triton.normalization.rmsnorm", "aiter.ops.triton.rmsnorm"
TRITON_NORM, OLD_TRITON_NORM = "aiter.ops.triton.normalization.norm", "aiter.ops.triton.norm"
TRITON_SOFTMAX = "aiter.ops.triton.softmax"

HIP_COLUMNS_MAX = 8192
"""For longer rows aiter's dispatcher takes another kernel (`rmsnorm2d_fwd`, `_use_hip_common`)."""

WHO = {
    "ck": "Composable Kernel's",
    "hip": "aiter's HIP",
    "triton": "aiter's Triton",
}
ALLOCATED = "outputs"


@dataclass(frozen=True)
class AiterRows(Backend[RmsNorm | LayerNorm | Softmax]):
    """One row kernel of aiter. Outputs are allocated inside the call, as in aiter's functions that return them.

    family    'rmsnorm', 'layernorm' or 'softmax'
    path      'ck', 'hip' or 'triton'
    """

    family: str = "rmsnorm"
    path: str = "ck"

    @property
    def families(self) -> tuple[str, ...]:
        """The op family that this backend implements, as a tuple of one."""
        return (self.family,)

    def unsupported_reasons(self, workload: RmsNorm | LayerNorm | Softmax, device: DeviceInfo) -> list[str]:
        """Returns why aiter cannot run the workload: devices, dtypes and row lengths that its C++ refuses, or that its
        dispatcher passes to another kernel. Empty if it can."""
        who = f"{WHO[self.path]} {self.family}"
        found = device_reasons(device)
        if self.path == "ck":
            found += without_ck()
        if self.path != "triton" and workload.dtype not in HALVES:
            found.append(f"{who} takes {join_names(HALVES)}, not {workload.dtype}")
        if self.path == "hip" and workload.columns > HIP_COLUMNS_MAX:
            found.append(f"{who} takes rows of up to {HIP_COLUMNS_MAX} elements, not {workload.columns}")
        return found

    def prepare(self, workload: RmsNorm | LayerNorm | Softmax, inputs: Tensors) -> Prepared:
        """Imports aiter's function, copies the inputs, and runs the call once."""
        function, call = self._choose_function(workload)
        return prepare_direct(
            Direct(
                function,
                call,
                outputs=_canonical_outputs,
                config={"function": function.name, "allocated_in_call": ALLOCATED},
                declares=Declares(never=("aten::native_layer_norm", "aten::_softmax", "aten::rms_norm")),
            ),
            inputs,
        )

    def _choose_function(self, workload: RmsNorm | LayerNorm | Softmax) -> tuple[Function, Callable[..., Any]]:
        if isinstance(workload, Softmax):
            function = Function.import_named(TRITON_SOFTMAX, "softmax", self.path)
            return function, _wrap_returning(function.bind_tensors(("x",), {}))
        if isinstance(workload, LayerNorm):
            return self._bind_layernorm(workload)
        return self._bind_rmsnorm(workload)

    def _bind_layernorm(self, workload: LayerNorm) -> tuple[Function, Callable[..., Any]]:
        places = (NORM, "") if self.path == "ck" else (TRITON_NORM, OLD_TRITON_NORM)
        if workload.residual:
            function = Function.import_named(places[0], "layernorm2d_fwd_with_add", self.path, old=places[1])
            names = ("out", "input", "residual_in", "residual_out", "weight", "bias")
            return function, _wrap_adding(function.bind_tensors(names, {"epsilon": layernorm.EPS}))
        function = Function.import_named(places[0], "layer_norm", self.path, old=places[1])
        eps = "epsilon" if self.path == "ck" else "eps"
        return function, _wrap_returning(function.bind_tensors(("input", "weight", "bias"), {eps: layernorm.EPS}))

    def _bind_rmsnorm(self, workload: RmsNorm) -> tuple[Function, Callable[..., Any]]:
        function = _RMSNORMS[self.path](workload.residual)
        fixed, optional = {"epsilon": rmsnorm.EPS}, {"use_model_sensitive_rmsnorm": 0, "gemma_norm": False}
        if workload.residual:
            names = ("out", "input", "residual_in", "residual_out", "weight")
            return function, _wrap_adding(function.bind_tensors(names, fixed, optional))
        if self.path == "hip":
            return function, _wrap_filling(function.bind_tensors(("out", "input", "weight"), fixed, optional))
        return function, _wrap_returning(function.bind_tensors(("input", "weight"), fixed, optional))


def _ck_rmsnorm(residual: bool) -> Function:
    """Returns this aiter's RMSNorm function that runs only Composable Kernel. Raises UnsupportedError if it has
    none."""
    module = import_aiter(RMSNORM)
    forced = "rmsnorm2d_fwd_with_add_ck" if residual else "rmsnorm2d_fwd_ck"
    if hasattr(module, forced):
        return Function.import_named(RMSNORM, forced, "ck")
    if hasattr(module, "rms_norm_opus"):
        raise UnsupportedError(
            f"aiter {version_entries()['aiter']} has no Composable Kernel RMSNorm any more: HIP kernels took its place "
            "in 2026; use aiter.hip"
        )
    return Function.import_named(RMSNORM, "rmsnorm2d_fwd_with_add" if residual else "rms_norm", "ck")


def _hip_rmsnorm(residual: bool) -> Function:
    """Returns aiter's HIP RMSNorm of module_rmsnorm_quant, which exists since 2026. The older HIP kernel is not used:
    it adds in place and so changes its inputs."""
    return Function.import_named(RMSNORM, "add_rmsnorm" if residual else "rmsnorm", "hip")


def _triton_rmsnorm(residual: bool) -> Function:
    name = "rmsnorm2d_fwd_with_add" if residual else "rms_norm"
    return Function.import_named(TRITON_RMSNORM, name, "triton", old=OLD_TRITON_RMSNORM)


_RMSNORMS: dict[str, Callable[[bool], Function]] = {
    "ck": _ck_rmsnorm,
    "hip": _hip_rmsnorm,
    "triton": _triton_rmsnorm,
}


def _wrap_returning(call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls `call` with its arguments and returns (its only output, None)."""
    return lambda *tensors: (call(*tensors), None)


def _wrap_filling(call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of (x, ...) that allocates out, lets `call` write into this first argument, and returns (out,
    None)."""

    def fill_output(x: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, None]:
        import torch

        out = torch.empty_like(x)
        call(out, x, *others)
        return out, None

    return fill_output


def _wrap_adding(call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of (x, residual, ...) that allocates out and sum, lets `call` (out, x, residual, sum, ...)
    write into them, and returns (out, sum)."""

    def add_residual(
        x: torch.Tensor, residual: torch.Tensor, *others: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        out, summed = torch.empty_like(x), torch.empty_like(x)
        call(out, x, residual, summed, *others)
        return out, summed

    return add_residual


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, summed = result
    return {"out": out} if summed is None else {"out": out, "residual_out": summed}


_OFFERED = (
    ("ck", "ck", ("rmsnorm", "layernorm")),
    ("aiter.hip", "hip", ("rmsnorm",)),
    ("aiter.triton", "triton", ("rmsnorm", "layernorm", "softmax")),
)
PARTS: tuple[tuple[str, str, Backend], ...] = tuple(
    (name, family, AiterRows(name, family=family, path=path))
    for name, path, families in _OFFERED
    for family in families
)

_ADDED = ("out", "input", "residual_in", "residual_out", "weight")
ENTRY_POINTS = (
    EntryPoint(RMSNORM, "rms_norm", needed=("input", "weight", "epsilon"), offered=("use_model_sensitive_rmsnorm",)),
    EntryPoint(RMSNORM, "rmsnorm2d_fwd_with_add", needed=(*_ADDED, "epsilon")),
    EntryPoint(RMSNORM, "rmsnorm2d_fwd_ck", needed=("input", "weight", "epsilon"), since="v0.1.12", until="v0.1.17"),
    EntryPoint(RMSNORM, "rmsnorm2d_fwd_with_add_ck", needed=(*_ADDED, "epsilon"), since="v0.1.12", until="v0.1.17"),
    EntryPoint(RMSNORM, "rmsnorm", needed=("out", "input", "weight", "epsilon"), since="v0.1.12"),
    EntryPoint(RMSNORM, "add_rmsnorm", needed=(*_ADDED, "epsilon"), since="v0.1.12"),
    EntryPoint(NORM, "layer_norm", needed=("input", "weight", "bias", "epsilon")),
    EntryPoint(NORM, "layernorm2d_fwd_with_add", needed=(*_ADDED, "bias", "epsilon")),
    EntryPoint(TRITON_RMSNORM, "rms_norm", needed=("input", "weight", "epsilon"), old=OLD_TRITON_RMSNORM),
    EntryPoint(TRITON_RMSNORM, "rmsnorm2d_fwd_with_add", needed=(*_ADDED, "epsilon"), old=OLD_TRITON_RMSNORM),
    EntryPoint(TRITON_NORM, "layer_norm", needed=("input", "weight", "bias", "eps"), old=OLD_TRITON_NORM),
    EntryPoint(TRITON_NORM, "layernorm2d_fwd_with_add", needed=(*_ADDED, "bias", "epsilon"), old=OLD_TRITON_NORM),
    EntryPoint(TRITON_SOFTMAX, "softmax", needed=("x",)),
)
