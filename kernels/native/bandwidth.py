"""Copy, read, write and triad with torch's operators, each writing to memory that the call allocates.

copy   Tensor.copy_, a device-to-device copy
read   Tensor.sum over rows of int32
write  Tensor.copy_ from a row that is broadcast; Tensor.fill_ takes a single value, and a constant proves nothing
triad  torch.add with alpha
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.layouts import own_copies
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.bandwidth import PATTERN, SCALAR, WORDS, Bandwidth, canonical_outputs

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors

CPU_FLOPS_MAX = 2e7
"""CPU limit that keeps a check and a timing on two cores within seconds: 64 MiB of f32."""

OPERATORS = {"copy": "aten::copy_", "read": "aten::sum", "write": "aten::copy_", "triad": "aten::add"}


@dataclass(frozen=True)
class NativeBandwidth(Backend[Bandwidth]):
    """Copy, read, write and triad, each by one operator of torch."""

    families = ("bandwidth",)

    def prepare(self, workload: Bandwidth, inputs: Tensors) -> Prepared:
        """Copies the inputs and binds torch's operator for the workload's kind: copy, read, write or triad."""
        operator = OPERATORS[workload.kind]
        return Prepared(
            call=_choose_operator(workload),
            tensors=own_copies(inputs),
            convert=lambda new: new,
            outputs=canonical_outputs(workload.kind),
            config={"operator": operator},
            declares=Declares(operators=(operator,)),
        )


def _choose_operator(workload: Bandwidth) -> Callable[..., torch.Tensor]:
    """Returns a function of the workload's inputs that allocates and returns its kind's result, e.g. a copy."""
    import torch

    def run_copy(b: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(b).copy_(b)

    def run_read(b: torch.Tensor) -> torch.Tensor:
        return b.view(torch.int32).view(-1, WORDS).sum(dim=1, dtype=torch.int32)

    def run_write(p: torch.Tensor) -> torch.Tensor:
        a = torch.empty(workload.elements, dtype=p.dtype, device=p.device)
        a.view(-1, PATTERN).copy_(p)
        return a

    def run_triad(b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.add(b, c, alpha=SCALAR)

    calls: dict[str, Callable[..., torch.Tensor]] = {
        "copy": run_copy,
        "read": run_read,
        "write": run_write,
        "triad": run_triad,
    }
    return calls[workload.kind]


BACKENDS = (NativeBandwidth("native.copy_", CPU_FLOPS_MAX),)
