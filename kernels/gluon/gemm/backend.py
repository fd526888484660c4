"""Backend `gluon.gemm`: matrix multiplication in Triton's Gluon dialect, a kernel per architecture.

Triton is imported in `prepare` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.configured import Configured
from kernels.gluon.devices import arch_reasons
from kernels.gluon.gemm.launch import gemm, plan
from kernels.gluon.gemm.space import SINCE, SPACE, operand_reasons, problem_of
from kernels.layouts import own_copies
from kernels.native.gemm import fp8_sum_reasons
from kernels.triton.triton_backend import arch_of, compile_ahead, count_multiprocessors
from pytest_attnperf.backends import Backend, Declares, Prepared

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.gemm import Gemm


@dataclass(frozen=True)
class GluonGemm(Configured, Backend["Gemm"]):
    """Sizes whose rows are a multiple of 16 bytes, fp16 and bf16 in both layouts, OCP's fp8 with b stored (N, K).

    `gluon.gemm` computes whole tiles. `gluon.gemm_cut` cuts those of an incomplete last wave along K
    (`choose_schedule`): it is right on an H200, too, and was not timed.
    """

    families = ("gemm",)
    spaces = (SPACE,)

    def unsupported_reasons(self, workload: Gemm, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: an architecture without a kernel, a Triton that does not compile it, or
        a dtype, layout or length of rows that it does not take."""
        return [
            *arch_reasons(self.name, device, SINCE, "triton.gemm"),
            *operand_reasons(self.name, workload),
            *fp8_sum_reasons(workload, device),
        ]

    def prepare(self, workload: Gemm, inputs: Tensors) -> Prepared:
        """Copies the inputs, picks the configuration from the data files, or the pinned one, and compiles."""
        tensors = own_copies(inputs)
        arch = arch_of(tensors[0].device)
        choice = self.choose(SPACE, arch, problem_of(workload))
        transposed, out_dtype = workload.layout == "nt", workload.out_stored_as
        sizes = (workload.size_m, workload.size_n, workload.size_k)
        schedule = plan(*sizes, count_multiprocessors(tensors[0].device), choice.config)
        kernels = (f"gemm_{arch}_kernel", *(("sum_parts_kernel",) if schedule.cut else ()))

        def launch_kernel(a: torch.Tensor, b: torch.Tensor, *scales: torch.Tensor) -> torch.Tensor:
            pair = (scales[0], scales[1]) if scales else None
            return gemm(a, b, pair, arch=arch, transposed=transposed, config=choice.config, out_dtype=out_dtype)

        compile_ahead(launch_kernel, tensors, SPACE, choice)
        return Prepared(
            call=launch_kernel,
            tensors=tensors,
            convert=lambda new: new,
            outputs=lambda out: {"out": out},
            config=self.config_entries({SPACE.kernel: choice}) | {"schedule": str(schedule)},
            declares=Declares(kernels=kernels, never=("aten::mm", "aten::_scaled_mm"), matrix=True),
        )


BACKENDS = (
    GluonGemm("gluon.gemm", times_on_cpu=False),
    GluonGemm("gluon.gemm_cut", times_on_cpu=False, alternative="cut"),
)
