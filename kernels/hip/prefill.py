"""Backends `hip.naive` to `hip.wgmma`: the steps of the HIP ladder, one kernel each. Torch is imported in `prepare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.configs import Space
from kernels.configured import Configured
from kernels.hip.compiler import load, missing_hip
from kernels.hip.emulator import EMULATOR_FLOPS_MAX
from kernels.hip.faces import arch_of, emulated_arch, face_of
from kernels.hip.steps import STEPS, LadderStep, problem_of
from kernels.hip.traffic import count_traffic_bytes
from kernels.layouts import own_copies
from kernels.limits import HALVES, AttentionLimits, refusal_reasons
from pytest_attnperf.backends import TRAFFIC_BYTES, Backend, Declares, Prepared

if TYPE_CHECKING:
    import torch

    from kernels.hip.steps import WorkgroupSize
    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill

SCORES_BYTES_MAX = 16 << 30
"""Largest score matrix, in bytes, that the first steps keep in global memory."""


@dataclass(frozen=True)
class HipStep(Configured, Backend["Prefill"]):
    """fp16 and bf16, causal (bottom-right), grouped K/V heads, any lengths, log-sum-exp, and head dimensions to 256
    that are multiples of 8.

    step    what it compiles and launches
    """

    families = ("prefill",)
    step: LadderStep = STEPS[0]

    @property
    def idea(self) -> str:
        """What is new in this step."""
        return self.step.idea

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The launch configuration space of this step's kernel, as a tuple of one."""
        return (self.step.space,)

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns why the step cannot run the workload; empty if it can. It needs a compiler for the device or the
        emulator, 16-bit floats in rows of whole 16-byte words, and no mask but a causal one."""
        found = [*(missing_hip(device) or self.step.arch_reasons(_running_arch(device)))]
        dim, most = workload.head_dim, self.step.head_dim_max(device.arch)
        if dim > most or dim % 8:
            found.append(
                f"{self.name} takes head dimensions to {most} on {device.arch} that are multiples of 8 "
                f"(rows are read 16 bytes at a time, and registers must hold what a lane owns of them), not {dim}"
            )
        scores = _scores_bytes(workload)
        if self.step.scratch and scores > SCORES_BYTES_MAX:
            found.append(
                f"{self.name} keeps the score matrix, {scores / 2**30:.1f} GiB here, and takes up to "
                f"{SCORES_BYTES_MAX / 2**30:g} GiB"
            )
        limits = AttentionLimits(self.name, HALVES, window=False, head_dim_v=False, alibi=False, bias=False)
        return found + refusal_reasons(workload, limits)

    def prepare(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Copies the inputs, picks the configuration for this architecture, or the pinned one, compiles, and runs once
        on a GPU."""
        import torch

        tensors = own_copies(inputs)
        device = tensors[0].device
        arch, space = arch_of(device), self.step.space
        choice = self.choose(space, arch, problem_of(workload))
        kernel, launch = self.step.make_kernel(workload, arch, choice)
        count = _scores_bytes(workload) // 4 if self.step.scratch else 1
        scores = torch.empty(count, dtype=torch.float32, device=device)
        call = make_launcher(load(kernel, device), workload, launch, scores)
        traffic = count_traffic_bytes(self.step, workload, choice.config, launch.rows, face_of(arch).wave)
        if device.type == "cuda":
            call(*tensors)
        return Prepared(
            call=call,
            tensors=tensors,
            convert=own_copies,
            outputs=_canonical_outputs,
            config={
                **self.config_entries({space.kernel: choice}),
                "file": self.step.file,
                TRAFFIC_BYTES: str(traffic),
            },
            declares=Declares(
                kernels=(self.step.function,),
                never=("scaled_dot_product",),
                matrix=self.step.matrix and face_of(arch).matrix,
            ),
            arguments=lambda new: new,
        )


def _running_arch(device: DeviceInfo) -> str:
    """Returns the architecture whose instructions run: on a CPU that which the emulator imitates."""
    return emulated_arch() if device.kind == "cpu" else device.arch


def make_launcher(loaded: Any, workload: Prefill, launch: WorkgroupSize, scores: torch.Tensor) -> Any:
    """Returns the timed function: it allocates the outputs and launches over (row blocks, heads, batch).

    loaded    result of `compiler.load`
    scores    fp32 scratch, of one element where the step keeps no score matrix
    """
    import torch

    batch, seq_q, heads = workload.batch, workload.seq_q, workload.heads
    grid = (-(-seq_q // launch.rows), heads, batch)

    def launch_kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        out = torch.empty_like(q)
        lse = torch.empty((batch, heads, seq_q), dtype=torch.float32, device=q.device) if workload.lse else None
        unused = scores if lse is None else lse
        loaded(grid, q, k, v, out, unused, scores, seq_q, workload.seq_kv, heads, workload.kv_heads)
        return out, lse

    return launch_kernel


def _scores_bytes(workload: Prefill) -> int:
    return 4 * workload.batch * workload.heads * workload.seq_q * workload.seq_kv


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


BACKENDS = tuple(
    HipStep(step.name, 0.0 if step.archs else EMULATOR_FLOPS_MAX, times_on_cpu=False, step=step) for step in STEPS
)
