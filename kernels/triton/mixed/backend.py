"""Backend `triton.unified`: one launch for the prompts, chunks and single tokens of a step over a paged cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.configured import Configured
from kernels.triton.mixed.space import SPACE
from kernels.triton.triton_backend import INTERPRETER_FLOPS_MAX, arch_of, compile_ahead, missing_triton
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.mixed import Mixed
from pytest_attnperf.workloads.paged_cache import require_block_table

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo

HEAD_DIM_MAX = 256
"""Above it the accumulator of only 16 rows does not fit the registers of one program."""

GROUP_MAX = 64
"""Most query heads per K/V head, which are rows of one program."""


@dataclass(frozen=True)
class TritonUnified(Configured, Backend[Mixed]):
    """Every feature of the family, head dimensions to 256, up to 64 query heads per K/V head.

    One program reads all keys of a block of rows, so a step of few sequences with one token and very many keys leaves
    most of a GPU idle. The grid and the configuration follow from the numbers of tokens and sequences and the longest
    query; the device reads the lengths.
    """

    families = ("mixed",)
    spaces = (SPACE,)

    def unsupported_reasons(self, workload: Mixed, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: too large a head dimension or group of query heads, or no Triton
        (without a GPU, no interpreter). Empty if it can."""
        found = missing_triton(device)
        if workload.head_dim > HEAD_DIM_MAX:
            found.append(f"head_dim {workload.head_dim} is above {HEAD_DIM_MAX}, the largest this kernel takes")
        if (group := workload.heads // workload.kv_heads) > GROUP_MAX:
            found.append(f"{group} query heads per K/V head are more than {GROUP_MAX}, the most this kernel takes")
        return found

    def prepare(self, workload: Mixed, inputs: Tensors) -> Prepared:
        """Copies the inputs, picks this architecture's configuration from the data files, or the pinned one, and
        compiles. Raises UsageError for a block table or lengths out of range."""
        from kernels.triton.mixed.kernel import mixed_attention

        tensors = tuple(tensor.clone() for tensor in inputs)
        k_cache, table, seq_lens = tensors[1], tensors[3], tensors[5]
        require_block_table(table, seq_lens, k_cache.shape[0], k_cache.shape[1])
        problem = {
            "head_dim": workload.head_dim,
            "group": workload.heads // workload.kv_heads,
            "longest_query": max(workload.seqs_q),
            "cache_bits": k_cache.element_size() * 8,
        }
        choice = self.choose(SPACE, arch_of(tensors[0].device), problem)

        def launch_kernel(
            q: torch.Tensor,
            k: torch.Tensor,
            v: torch.Tensor,
            table: torch.Tensor,
            cu_seqlens_q: torch.Tensor,
            seq_lens: torch.Tensor,
            *extras: torch.Tensor,
        ) -> torch.Tensor:
            k_scale, v_scale = extras[-2:] if workload.cache else (None, None)
            return mixed_attention(
                q, k, v, table, cu_seqlens_q, seq_lens,
                window=workload.window, cap=workload.cap, sinks=extras[0] if workload.sinks else None,
                k_scale=k_scale, v_scale=v_scale, config=choice.config,
            )  # fmt: skip

        compile_ahead(launch_kernel, tensors, SPACE, choice)
        return Prepared(
            call=launch_kernel,
            tensors=tensors,
            convert=lambda new: new,
            outputs=lambda out: {"out": out},
            config=self.config_entries({SPACE.kernel: choice}),
            declares=Declares(kernels=("mixed_kernel",), never=("scaled_dot_product",), matrix=True),
        )


BACKENDS = (TritonUnified("triton.unified", INTERPRETER_FLOPS_MAX, times_on_cpu=False),)
