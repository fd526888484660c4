"""Softmax, RMSNorm and LayerNorm with torch's own operators. Torch is imported in `prepare` only."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.layouts import own_copies
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads import layernorm, rmsnorm
from pytest_attnperf.workloads.layernorm import LayerNorm
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.softmax import Softmax

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

    Summed = tuple[torch.Tensor, torch.Tensor | None]

CPU_FLOPS_MAX = 2e7
"""CPU limit that keeps a check and a timing on two cores within seconds: a few million elements."""

RMS_NORM_SINCE = (2, 4)
"""First torch that has torch.nn.functional.rms_norm, by its release notes."""

HOW_ADDED = {True: "torch.add before the norm, torch has no fused operator", False: "none"}


@dataclass(frozen=True)
class NativeSoftmax(Backend[Softmax]):
    """torch.softmax over the last dimension."""

    families = ("softmax",)

    def prepare(self, workload: Softmax, inputs: Tensors) -> Prepared:
        """Copies the inputs; the timed call is torch.softmax."""
        import torch

        def call_operators(x: torch.Tensor) -> Summed:
            return torch.softmax(x, dim=-1), None

        return _prepare_operators(call_operators, inputs, "aten::_softmax", {})


@dataclass(frozen=True)
class NativeRmsNorm(Backend[RmsNorm]):
    """torch's F.rms_norm; a separate operator adds a residual before it."""

    families = ("rmsnorm",)

    def unsupported_reasons(self, workload: RmsNorm, device: DeviceInfo) -> list[str]:
        """Returns a reason if the installed torch is older than 2.4, the first with F.rms_norm; else an empty list."""
        found = _torch_release()
        if found >= RMS_NORM_SINCE:
            return []
        return [f"torch has F.rms_norm from {_format_release(RMS_NORM_SINCE)} on, not in {_format_release(found)}"]

    def prepare(self, workload: RmsNorm, inputs: Tensors) -> Prepared:
        """Copies the inputs; the timed call adds the residual, if any, and calls F.rms_norm."""
        from torch.nn.functional import rms_norm

        def call_operators(x: torch.Tensor, *others: torch.Tensor) -> Summed:
            *residual, weight = others
            summed = x + residual[0] if residual else None
            normed = rms_norm(x if summed is None else summed, (workload.columns,), weight, rmsnorm.EPS)
            return normed, summed

        return _prepare_operators(call_operators, inputs, "aten::rms_norm", {"residual": HOW_ADDED[workload.residual]})


@dataclass(frozen=True)
class NativeLayerNorm(Backend[LayerNorm]):
    """torch's F.layer_norm; a separate operator adds a residual before it."""

    families = ("layernorm",)

    def prepare(self, workload: LayerNorm, inputs: Tensors) -> Prepared:
        """Copies the inputs; the timed call adds the residual, if any, and calls F.layer_norm."""
        from torch.nn.functional import layer_norm

        def call_operators(x: torch.Tensor, *others: torch.Tensor) -> Summed:
            *residual, weight, bias = others
            summed = x + residual[0] if residual else None
            normed = layer_norm(x if summed is None else summed, (workload.columns,), weight, bias, layernorm.EPS)
            return normed, summed

        return _prepare_operators(
            call_operators, inputs, "aten::native_layer_norm", {"residual": HOW_ADDED[workload.residual]}
        )


BACKENDS = (
    NativeSoftmax("native.softmax", CPU_FLOPS_MAX),
    NativeRmsNorm("native.rms_norm", CPU_FLOPS_MAX),
    NativeLayerNorm("native.layer_norm", CPU_FLOPS_MAX),
)


def _prepare_operators(call: Callable[..., Summed], inputs: Tensors, operator: str, config: dict[str, str]) -> Prepared:
    import torch

    return Prepared(
        call=call,
        tensors=own_copies(inputs),
        convert=lambda new: new,
        outputs=_canonical_outputs,
        config={**config, "torch": torch.__version__},
        declares=Declares(operators=(operator,)),
    )


def _canonical_outputs(result: Summed) -> Outputs:
    out, summed = result
    return {"out": out} if summed is None else {"out": out, "residual_out": summed}


def _torch_release() -> tuple[int, int]:
    """Returns (major, minor) of the installed torch without importing it; (0, 0) if torch is not installed."""
    try:
        found = re.match(r"(\d+)\.(\d+)", importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        found = None
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _format_release(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
