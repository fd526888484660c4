"""Backend `gluon.flash`: flash attention forward in Triton's Gluon dialect, a kernel per architecture.

Triton is imported in `prepare` only.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from kernels.configured import Configured
from kernels.gluon.prefill.launch import prefill_forward
from kernels.gluon.prefill.space import HEAD_DIMS, SINCE, SPACE, problem_of
from kernels.layouts import own_copies
from kernels.limits import HALVES, AttentionLimits, refusal_reasons
from kernels.triton.triton_backend import arch_of, compile_ahead
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.environment.software import TRITON_DISTRIBUTIONS, version_of

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill


@dataclass(frozen=True)
class GluonFlash(Configured, Backend["Prefill"]):
    """Online softmax, causal (bottom-right), grouped K/V heads, any lengths, head dimensions 64, 128 and 256, fp16 and
    bf16, log-sum-exp. Right on an H200; never run on gfx950."""

    families = ("prefill",)
    spaces = (SPACE,)

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: an architecture without a kernel, a Triton that does not compile it, or
        a feature, dtype or head dimension that it does not have."""
        limits = AttentionLimits(self.name, dtypes=HALVES, window=False, head_dim_v=False, alibi=False, bias=False)
        found = [*arch_reasons(self.name, device), *refusal_reasons(workload, limits)]
        if workload.head_dim not in HEAD_DIMS:
            found.append(f"{self.name} takes head dimensions {', '.join(map(str, HEAD_DIMS))}, not {workload.head_dim}")
        return found

    def prepare(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Copies the inputs, picks the configuration from the data files, or the pinned one, and compiles."""
        tensors = own_copies(inputs)
        arch = arch_of(tensors[0].device)
        choice = self.choose(SPACE, arch, problem_of(workload))
        call = functools.partial(
            prefill_forward, arch=arch, causal=workload.causal, with_lse=workload.lse, config=choice.config
        )
        compile_ahead(call, tensors, SPACE, choice)
        return Prepared(
            call=call,
            tensors=tensors,
            convert=own_copies,
            outputs=_canonical_outputs,
            config=self.config_entries({SPACE.kernel: choice}),
            declares=Declares(kernels=(f"prefill_{arch}_kernel",), never=("scaled_dot_product",), matrix=True),
        )


def arch_reasons(
    who: str,
    device: DeviceInfo,
    since: Mapping[str, tuple[int, int]] = MappingProxyType(SINCE),
    instead: str = "triton.flash",
) -> list[str]:
    """Returns why the device cannot run a Gluon kernel of ours: none is for it, or this Triton does not compile it.

    since      architecture with a kernel -> the oldest Triton, (major, minor), that compiles it
    instead    a backend to use where there is no kernel
    """
    if device.kind == "cpu":
        return [f"{who} is compiled for {' or '.join(since)}; Triton's interpreter does not run Gluon"]
    if device.arch not in since:
        return [f"{who} has a kernel for {' and '.join(since)}, not for {device.arch}; use {instead}"]
    if importlib.util.find_spec("triton") is None:
        return ["triton is not installed"]
    version = next(filter(None, map(version_of, TRITON_DISTRIBUTIONS)), "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    oldest = since[device.arch]
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < oldest:
        return [f"{who} needs Triton {oldest[0]}.{oldest[1]} or newer on {device.arch}; this is {version}; install one"]
    return []


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


BACKENDS = (GluonFlash("gluon.flash", times_on_cpu=False),)
