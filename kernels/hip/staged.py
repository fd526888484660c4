"""Backend `hip.staged`: attention as four kernels that keep whole matrices in global memory, as before fused kernels.

Scores, mask, softmax, weighted values: each kernel stands alone and can be replaced. Torch is imported in `bind` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.hip.compiler import load, missing_hip
from kernels.hip.emulator import EMULATOR_FLOPS_MAX
from kernels.hip.sources import HipKernel
from kernels.hip.steps import problem_defines
from kernels.prefill_backend import HALVES, Limits, PrefillBackend, own_copies
from pytest_attnperf.backends import Declares, Prepared

if TYPE_CHECKING:
    import torch

    from kernels.hip.compiler import LoadedKernel
    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill

THREADS = 256
TILE = 64
"""Rows, keys and dimensions of a tile of both products, as the two files state it."""

SCORE_BYTES, WEIGHT_BYTES = 4, 2
MATRICES_BYTES_MAX = 16 << 30
"""Of scores and weights together, that one call allocates."""

DIM_STEP = 8
"""Dimensions that qk_scores multiplies between two barriers."""


@dataclass(frozen=True)
class HipStaged(PrefillBackend):
    """fp16 and bf16, causal (bottom-right), grouped K/V heads, any lengths, head dimensions that are multiples of 8 (Dv
    may differ), log-sum-exp; fp32 scores, weights rounded to the element type.
    """

    def limits(self, device: DeviceInfo) -> Limits:
        """16-bit floats and plain masks."""
        return Limits(self.name, HALVES, window=False, alibi=False, bias=False)

    def reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Needs a compiler for the device, or the emulator's; whole steps of dimensions; memory for two matrices."""
        found = missing_hip(device)
        for name in ("head_dim", "head_dim_v"):
            if (size := getattr(workload, name)) % DIM_STEP:
                found.append(
                    f"{self.name} takes head dimensions that are multiples of {DIM_STEP}, not a {name} of {size}"
                )
                break
        if (size := matrices_bytes(workload)) > MATRICES_BYTES_MAX:
            found.append(
                f"{self.name} keeps all scores and weights, {size / 2**30:.1f} GiB here, and takes up to "
                f"{MATRICES_BYTES_MAX / 2**30:g} GiB"
            )
        return found

    def bind(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Compile the kernels; the mask's only where it is causal."""
        tensors = own_copies(inputs)
        device = tensors[0].device
        kernels = kernels_of(workload)
        call = launcher({name: load(kernel, device) for name, kernel in kernels.items()}, workload)
        if device.type == "cuda":
            call(*tensors)
        return Prepared(
            call=call,
            tensors=tensors,
            convert=own_copies,
            outputs=_canonical,
            config={"files": " ".join(kernel.file for kernel in kernels.values())},
            declares=Declares(kernels=tuple(kernels), never=("scaled_dot_product",)),
        )


def kernels_of(workload: Prefill) -> dict[str, HipKernel]:
    """What is compiled for a problem, by function, in the order of the launches."""
    defines = problem_defines(workload)

    def kernel(function: str, *macros: str, **further: str) -> HipKernel:
        return HipKernel(f"{function}.hip", function, THREADS, {**{name: defines[name] for name in macros}, **further})

    found = [
        kernel("qk_scores", "HEAD_DIM", "SOFTMAX_SCALE", "ELEMENT_BF16"),
        *([kernel("causal_mask")] if workload.causal else []),
        kernel("row_softmax", "WITH_LSE", "ELEMENT_BF16"),
        kernel("weighted_values", "ELEMENT_BF16", HEAD_DIM=str(workload.head_dim_v)),
    ]
    return {each.function: each for each in found}


def launcher(loaded: Mapping[str, LoadedKernel], workload: Prefill) -> Callable[..., Any]:
    """What is timed: matrices and outputs are allocated, and the kernels launched one after the other."""
    import torch

    batch, heads, kv_heads = workload.batch, workload.heads, workload.kv_heads
    seq_q, seq_kv, dim_v = workload.seq_q, workload.seq_kv, workload.head_dim_v
    matrix, row_tiles = (batch, heads, seq_q, seq_kv), -(-seq_q // TILE)
    rows = (seq_q, heads, batch)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        scores = torch.empty(matrix, dtype=torch.float32, device=q.device)
        weights = torch.empty(matrix, dtype=q.dtype, device=q.device)
        out = torch.empty((batch, seq_q, heads, dim_v), dtype=q.dtype, device=q.device)
        lse = torch.empty(matrix[:3], dtype=torch.float32, device=q.device) if workload.lse else None
        score_tiles = (row_tiles * -(-seq_kv // TILE), heads, batch)
        loaded["qk_scores"](score_tiles, q, k, scores, seq_q, seq_kv, heads, kv_heads)
        if workload.causal:
            loaded["causal_mask"](rows, scores, seq_q, seq_kv, heads)
        # Without a log-sum-exp the kernel is compiled to ignore the pointer.
        loaded["row_softmax"](rows, scores, weights, scores if lse is None else lse, seq_q, seq_kv, heads)
        out_tiles = (row_tiles * -(-dim_v // TILE), heads, batch)
        loaded["weighted_values"](out_tiles, weights, v, out, seq_q, seq_kv, heads, kv_heads)
        return out, lse

    return call


def matrices_bytes(workload: Prefill) -> int:
    """Bytes of the score matrix in fp32 and of the weights."""
    pairs = workload.batch * workload.heads * workload.seq_q * workload.seq_kv
    return pairs * (SCORE_BYTES + WEIGHT_BYTES)


def _canonical(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


BACKENDS = (HipStaged("hip.staged", EMULATOR_FLOPS_MAX, times_on_cpu=False),)
