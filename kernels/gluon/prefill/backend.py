"""Backend `gluon.flash`: flash attention forward in Triton's Gluon dialect, a kernel per architecture.

Triton is imported in `prepare` only.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.configured import Configured
from kernels.gluon.devices import arch_reasons
from kernels.gluon.prefill.launch import prefill_forward
from kernels.gluon.prefill.space import SINCE, SPACE, head_dim_reasons, problem_of
from kernels.layouts import own_copies
from kernels.limits import HALVES, AttentionLimits, refusal_reasons
from kernels.triton.triton_backend import arch_of, compile_ahead
from pytest_attnperf.backends import Backend, Declares, Prepared

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill


@dataclass(frozen=True)
class GluonFlash(Configured, Backend["Prefill"]):
    """Online softmax, causal (bottom-right), grouped K/V heads, any lengths, head dimensions to 256, fp16 and
    bf16, log-sum-exp. Right on an H200; never run on gfx950."""

    families = ("prefill",)
    spaces = (SPACE,)

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: an architecture without a kernel, a Triton that does not compile it, or
        a feature, dtype or head dimension that it does not have."""
        limits = AttentionLimits(self.name, dtypes=HALVES, window=False, head_dim_v=False, alibi=False, bias=False)
        found = [*arch_reasons(self.name, device, SINCE, "triton.flash"), *refusal_reasons(workload, limits)]
        return found + head_dim_reasons(self.name, workload.head_dim)

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


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


BACKENDS = (GluonFlash("gluon.flash", times_on_cpu=False),)
