"""Backend `triton.flash_decode`: this repository's own flash decoding. Triton is imported in `prepare` only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.configured import Configured
from kernels.layouts import own_copies
from kernels.triton.decode.checks import HEAD_DIM_MAX, ROWS_MAX
from kernels.triton.decode.space import REDUCE_SPACE, SPACE, problem_of
from kernels.triton.triton_backend import INTERPRETER_FLOPS_MAX, arch_of, compile_ahead, missing_triton
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.decode import Decode
from pytest_attnperf.workloads.paged_cache import require_block_table

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo


@dataclass(frozen=True)
class TritonFlashDecode(Configured, Backend[Decode]):
    """A kernel split over the keys, and a second kernel that joins the splits; every feature, 64 rows per program."""

    families = ("decode",)
    spaces = (SPACE, REDUCE_SPACE)

    def unsupported_reasons(self, workload: Decode, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: a head dimension, a group of query heads or a cache dtype that the
        kernel does not take, or no Triton (without a GPU, no interpreter). Empty if it can."""
        found = missing_triton(device)
        rows = workload.heads // workload.kv_heads * workload.queries
        if workload.head_dim > HEAD_DIM_MAX:
            found.append(f"head_dim {workload.head_dim} is above {HEAD_DIM_MAX}, the largest this kernel takes")
        if rows > ROWS_MAX:
            found.append(
                f"{rows} rows of one K/V head ({workload.heads // workload.kv_heads} query heads of "
                f"{workload.queries} tokens) are above {ROWS_MAX}, the most that one program of this kernel takes"
            )
        if workload.kv_dtype == "kvf8e4m3fnuz" and device.kind == "cuda":
            found.append("Triton has no f8e4m3fnuz on NVIDIA GPUs")
        return found

    def prepare(self, workload: Decode, inputs: Tensors) -> Prepared:
        """Copies the inputs, picks the configurations for this architecture or the pinned ones, and compiles. Raises
        UsageError for a block table or lengths out of range."""
        from kernels.triton.decode.kernel import flash_decode

        tensors = own_copies(inputs)
        given = workload.split_inputs(tensors)
        if given.table is not None:
            require_block_table(given.table, given.seq_lens, given.k.shape[0], workload.page)
        arch = arch_of(given.q.device)
        choice = self.choose(SPACE, arch, problem_of(workload))
        reduce_choice = self.choose(REDUCE_SPACE, arch, {"head_dim": workload.head_dim})

        def launch_kernels(*own: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            parts = workload.split_inputs(own)
            return flash_decode(
                parts.q,
                parts.k,
                parts.v,
                parts.seq_lens,
                block_table=parts.table,
                sinks=parts.sinks,
                k_scale=parts.k_scale,
                v_scale=parts.v_scale,
                cap=float(workload.cap),
                window=workload.window,
                with_lse=workload.lse,
                config=choice.config,
                reduce_config=reduce_choice.config,
            )

        compile_ahead(launch_kernels, tensors, SPACE, choice)
        return Prepared(
            call=launch_kernels,
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config=self.config_entries({SPACE.kernel: choice, REDUCE_SPACE.kernel: reduce_choice}),
            declares=Declares(
                kernels=("decode_kernel",), never=("scaled_dot_product",), matrix=workload.dtype in ("f16", "bf16")
            ),
        )


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


BACKENDS = (TritonFlashDecode("triton.flash_decode", INTERPRETER_FLOPS_MAX, times_on_cpu=False),)
