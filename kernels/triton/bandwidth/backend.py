"""Backend `triton.bandwidth`: this repository's own copy, read, write and triad."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.configs import Problem
from kernels.configured import Configured
from kernels.layouts import own_copies
from kernels.triton.bandwidth.space import SPACE
from kernels.triton.triton_backend import INTERPRETER_ROWS_FLOPS_MAX, arch_of, compile_ahead, missing_triton
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.bandwidth import SCALAR, Bandwidth, canonical_outputs

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo


@dataclass(frozen=True)
class TritonBandwidth(Configured, Backend[Bandwidth]):
    """Copy, read, write and triad, each by one kernel; every call allocates its output."""

    families = ("bandwidth",)
    spaces = (SPACE,)

    def unsupported_reasons(self, workload: Bandwidth, device: DeviceInfo) -> list[str]:
        """Returns why Triton or, without a GPU, its interpreter is missing; empty if it can run."""
        return missing_triton(device)

    def prepare(self, workload: Bandwidth, inputs: Tensors) -> Prepared:
        """Copies the inputs, takes the configuration (pinned, else from this architecture's file), and compiles."""
        tensors = own_copies(inputs)
        problem: Problem = {"kind": workload.kind, "element_bits": tensors[0].element_size() * 8}
        choice = self.choose(SPACE, arch_of(tensors[0].device), problem)
        call = _choose_launcher(workload, choice.config)
        compile_ahead(call, tensors, SPACE, choice)
        return Prepared(
            call=call,
            tensors=tensors,
            convert=lambda new: new,
            outputs=canonical_outputs(workload.kind),
            config=self.config_entries({SPACE.kernel: choice}),
            declares=Declares(kernels=(f"bandwidth_{workload.kind}_kernel",), never=("Memcpy DtoD", "Memset")),
        )


def _choose_launcher(workload: Bandwidth, config: dict[str, int | bool]) -> Callable[..., torch.Tensor]:
    """Returns a function of the workload's inputs that launches the kernel of its kind and returns the new output."""
    from kernels.triton.bandwidth import kernel

    def run_copy(b: torch.Tensor) -> torch.Tensor:
        return kernel.copy(b, config=config)

    def run_read(b: torch.Tensor) -> torch.Tensor:
        return kernel.read_sums(b, config=config)

    def run_write(p: torch.Tensor) -> torch.Tensor:
        return kernel.write_pattern(p, workload.elements, config=config)

    def run_triad(b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return kernel.triad(b, c, SCALAR, config=config)

    calls: dict[str, Callable[..., torch.Tensor]] = {
        "copy": run_copy,
        "read": run_read,
        "write": run_write,
        "triad": run_triad,
    }
    return calls[workload.kind]


BACKENDS = (TritonBandwidth("triton.bandwidth", INTERPRETER_ROWS_FLOPS_MAX, times_on_cpu=False),)
