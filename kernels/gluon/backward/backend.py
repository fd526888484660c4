"""Backend `gluon.flash_backward`: the backward pass of attention in Triton's Gluon dialect, for sm_90.

Triton is imported in `prepare` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kernels.configured import Configured
from kernels.gluon.backward.launch import flash_backward
from kernels.gluon.backward.space import SINCE, SPACE, problem_of
from kernels.gluon.devices import arch_reasons
from kernels.gluon.prefill.space import head_dim_reasons
from kernels.layouts import own_copies
from kernels.limits import HALVES, join_names
from kernels.triton.triton_backend import arch_of, compile_ahead
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.varlen_backward import VarlenBackward

if TYPE_CHECKING:
    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

INSTEAD = "triton.flash_backward"


@dataclass(frozen=True)
class GluonFlashBackward(Configured, Backend[Backward | VarlenBackward]):
    """FlashAttention-3's backward pass: dk, dv and dq in one kernel, between two passes over the rows. Dense and packed
    sequences, causal (bottom-right), grouped K/V heads, rows without keys, any lengths, head dimensions to 256, fp16
    and bf16. Atomics sum dq, whose last bits differ from call to call."""

    families: ClassVar[tuple[str, ...]] = ("backward", "varlen_backward")
    spaces = (SPACE,)

    def unsupported_reasons(self, workload: Backward | VarlenBackward, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: an architecture without a kernel, a Triton that does not compile it, or
        a dtype or head dimension that it does not have."""
        found = arch_reasons(self.name, device, SINCE, INSTEAD)
        if workload.dtype not in HALVES:
            found.append(f"{self.name} takes {join_names(HALVES)}, not {workload.dtype}; use {INSTEAD}")
        return found + head_dim_reasons(self.name, workload.head_dim)

    def prepare(self, workload: Backward | VarlenBackward, inputs: Tensors) -> Prepared:
        """Copies the inputs, picks the configuration from the data files, or the pinned one, and compiles."""
        from kernels.triton.backward.launch import Packed

        tensors = own_copies(inputs)
        choice = self.choose(SPACE, arch_of(tensors[0].device), problem_of(workload))

        def launch_kernels(*given: Any) -> Tensors:
            packed = None
            if isinstance(workload, VarlenBackward):
                packed = Packed(given[6], given[7], workload.max_q, workload.max_kv)
            return flash_backward(*given[:6], causal=workload.causal, config=choice.config, packed=packed)

        compile_ahead(launch_kernels, tensors, SPACE, choice)
        return Prepared(
            call=launch_kernels,
            tensors=tensors,
            convert=own_copies,
            outputs=_canonical_outputs,
            config=self.config_entries({SPACE.kernel: choice}),
            declares=Declares(
                kernels=("backward_prepare_kernel", "backward_sm_90_kernel", "backward_round_kernel"),
                never=("scaled_dot_product", "flash_attention"),
                matrix=True,
            ),
        )


def _canonical_outputs(result: Tensors) -> Outputs:
    """Returns the call's (dq, dk, dv) by name."""
    return dict(zip(("dq", "dk", "dv"), result, strict=True))


BACKENDS = (GluonFlashBackward("gluon.flash_backward", times_on_cpu=False),)
