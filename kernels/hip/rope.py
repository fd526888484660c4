"""Backend `hip.rope`: the rotary embedding of q and k in one launch. Torch is imported in `prepare` only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.hip.compiler import load, missing_hip
from kernels.hip.emulator import EMULATOR_FLOPS_MAX
from kernels.hip.sources import HipKernel, element_define
from kernels.layouts import own_copies
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.base import DTYPE_BYTES
from pytest_attnperf.workloads.rope import Rope

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

THREADS = 256
HEAD_LANES_MAX = 8
"""Heads of a token rotated at once. A thread reuses its cosines and sines for further heads."""

LOAD_BYTES = 16
ROPE_FLOPS_MAX = EMULATOR_FLOPS_MAX / 10
"""Limit for the emulator, whose time depends on memory accesses: a rotation has more per operation than attention."""


@dataclass(frozen=True)
class HipRope(Backend[Rope]):
    """Rotary embedding for fp32, fp16 and bf16, both kinds of pairs, every even head dimension; rounded once, from
    fp32."""

    families = ("rope",)

    def unsupported_reasons(self, workload: Rope, device: DeviceInfo) -> list[str]:
        """Returns what is missing to compile or emulate the kernel; empty if nothing is."""
        return missing_hip(device)

    def prepare(self, workload: Rope, inputs: Tensors) -> Prepared:
        """Copies the inputs, compiles for the head dimension, dtype and kind of pairs, and runs once on a GPU."""
        import torch

        tensors = own_copies(inputs)
        device = tensors[0].device
        kernel = kernel_of(workload)
        rotate, tokens = load(kernel, device), workload.batch * workload.seq
        grid = (-(-tokens // int(kernel.defines["TOKENS"])), 1, 1)

        def launch_kernel(
            q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            q_out, k_out = torch.empty_like(q), torch.empty_like(k)
            rotate(grid, q, k, cos, sin, q_out, k_out, tokens, workload.seq, workload.heads, workload.kv_heads)
            return q_out, k_out

        if device.type == "cuda":
            launch_kernel(*tensors)
        return Prepared(
            call=launch_kernel,
            tensors=tensors,
            convert=own_copies,
            outputs=_canonical_outputs,
            config={"file": kernel.file, **{name: kernel.defines[name] for name in ("PAIRS", "HEAD_LANES", "TOKENS")}},
            declares=Declares(kernels=(kernel.function,)),
        )


def kernel_of(workload: Rope) -> HipKernel:
    """Returns the kernel with its macros. Threads read 16 bytes if the head dimension allows; a workgroup may hold
    several tokens."""
    half = workload.head_dim // 2
    widest = LOAD_BYTES // DTYPE_BYTES[workload.dtype] // (2 if workload.interleaved else 1)
    pairs = next(count for count in (8, 4, 2, 1) if count <= widest and half % count == 0)
    columns = half // pairs
    head_lanes = min(HEAD_LANES_MAX, THREADS // columns)
    defines = {
        "HEAD_DIM": str(workload.head_dim),
        "INTERLEAVED": str(int(workload.interleaved)),
        "ELEMENT_F32": str(int(workload.dtype == "f32")),
        **element_define(workload.dtype),
        "PAIRS": str(pairs),
        "HEAD_LANES": str(head_lanes),
        "TOKENS": str(THREADS // (columns * head_lanes)),
    }
    return HipKernel("rope.hip", "rope_forward", THREADS, defines)


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor]) -> Outputs:
    return {"q": result[0], "k": result[1]}


BACKENDS = (HipRope("hip.rope", ROPE_FLOPS_MAX, times_on_cpu=False, invariant=True),)
