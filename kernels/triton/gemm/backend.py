"""Backends of matrix multiplication: this repository's own kernels. Triton is imported in `prepare` only."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.configs import ConfigChoice, Space
from kernels.configured import Configured
from kernels.layouts import own_copies
from kernels.native.gemm import fp8_format_reasons, fp8_sum_reasons
from kernels.triton.gemm.space import (
    MULTIPLY_REDUCE_SIZE_M_MAX,
    MULTIPLY_REDUCE_SPACE,
    SPACE,
    STREAM_K_ONLY,
    STREAM_K_SPACE,
    problem_of,
)
from kernels.triton.triton_backend import INTERPRETER_FLOPS_MAX, arch_of, compile_ahead, missing_triton
from pytest_attnperf.backends import Backend, Declares, Prepared

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.gemm import Gemm

    Call = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class TritonGemm(Configured, Backend["Gemm"]):
    """One schedule of matrix multiplication; subclasses define its space and `bind_launch`.

    All take every layout of the family, any sizes, and every dtype but i32, which those in stream-K's tiles refuse.
    """

    families = ("gemm",)

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The configuration space of this schedule's kernel, as a tuple of one."""
        return (self.space,)

    @property
    @abc.abstractmethod
    def space(self) -> Space:
        """The configuration space of this schedule's kernel."""

    @abc.abstractmethod
    def bind_launch(
        self, workload: Gemm, tensors: Tensors, choice: ConfigChoice
    ) -> tuple[Call, tuple[str, ...], dict[str, str]]:
        """Returns (the timed function of `tensors`, the names of the kernels it launches, entries to record)."""

    def unsupported_reasons(self, workload: Gemm, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: no Triton (without a GPU, no interpreter), an fp8 format that the device
        does not multiply or whose sums are too short for the result, or i32 in stream-K's tiles. Empty if it can."""
        found = [*missing_triton(device), *fp8_format_reasons(workload, device)]
        if self.space is not MULTIPLY_REDUCE_SPACE:  # which adds in fp32, without matrix instructions
            found += fp8_sum_reasons(workload, device)
        if workload.dtype == "i32" and self.space is STREAM_K_SPACE:
            found.append("stream-K has no tile for i32, each of whose products is ten of int8; use triton.gemm")
        return found

    def prepare(self, workload: Gemm, inputs: Tensors) -> Prepared:
        """Copies the inputs, takes the configuration (pinned, else from this architecture's file), and compiles."""
        tensors = own_copies(inputs)
        choice = self.choose(self.space, arch_of(tensors[0].device), problem_of(workload))
        call, kernels, recorded = self.bind_launch(workload, tensors, choice)
        compile_ahead(call, tensors, self.space, choice)
        return Prepared(
            call=call,
            tensors=tensors,
            convert=lambda new: new,
            outputs=lambda out: {"out": out},
            config=self.config_entries({self.space.kernel: choice}) | recorded,
            declares=Declares(
                kernels=kernels,
                never=("aten::mm", "aten::_int_mm", "aten::_scaled_mm"),
                matrix=workload.dtype != "f32" and "gemm_multiply_reduce_kernel" not in kernels,
            ),
        )


class DataParallel(TritonGemm):
    """Matrix multiplication with one program per tile of the result."""

    @property
    def space(self) -> Space:
        """The configuration space of `gemm_kernel`."""
        return SPACE

    def bind_launch(
        self, workload: Gemm, tensors: Tensors, choice: ConfigChoice
    ) -> tuple[Call, tuple[str, ...], dict[str, str]]:
        """Returns (a function that launches `gemm_kernel`, its name, the entry to record how tiles are read)."""
        from kernels.triton.gemm.kernel import gemm, takes_descriptors

        config = {name: value for name, value in choice.config.items() if name not in STREAM_K_ONLY}
        transposed, out_dtype = workload.layout == "nt", workload.out_stored_as

        def launch_kernel(a: torch.Tensor, b: torch.Tensor, *scales: torch.Tensor) -> torch.Tensor:
            pair = (scales[0], scales[1]) if scales else None
            return gemm(a, b, pair, transposed=transposed, config=config, out_dtype=out_dtype)

        return (
            launch_kernel,
            ("gemm_kernel",),
            _tile_read_entries(described=config["DESCRIPTORS"] and takes_descriptors(*tensors[:2])),
        )


class DataParallelTwin(DataParallel):
    """`gemm_kernel` with the tiles, warps and stages of stream-K, so that only the schedule differs."""

    @property
    def space(self) -> Space:
        """The configuration space of stream-K, so that `gemm_kernel` runs in the same configuration."""
        return STREAM_K_SPACE


class StreamK(TritonGemm):
    """Matrix multiplication by a fixed number of programs that share K tiles evenly. `prepare` allocates the
    workspace."""

    @property
    def space(self) -> Space:
        """The configuration space of `gemm_stream_k_kernel`."""
        return STREAM_K_SPACE

    def bind_launch(
        self, workload: Gemm, tensors: Tensors, choice: ConfigChoice
    ) -> tuple[Call, tuple[str, ...], dict[str, str]]:
        """Returns (a function that launches the kernels, their names, entries to record: how tiles are read, how many
        of them are cut between programs, and the number of programs)."""
        from kernels.triton.gemm.kernel import takes_descriptors
        from kernels.triton.gemm.stream_k import cut_tile_count, gemm_stream_k, new_workspace, program_count

        config, transposed, out_dtype = choice.config, workload.layout == "nt", workload.out_stored_as
        workspace = new_workspace(tensors[0], config)
        programs = program_count(tensors[0].device, config)
        tiles = -(-workload.size_m // config["BLOCK_M"]) * -(-workload.size_n // config["BLOCK_N"])
        cut_tiles = cut_tile_count(tiles, programs)

        def launch_kernels(a: torch.Tensor, b: torch.Tensor, *scales: torch.Tensor) -> torch.Tensor:
            pair = (scales[0], scales[1]) if scales else None
            return gemm_stream_k(
                a, b, pair, transposed=transposed, workspace=workspace, config=config, out_dtype=out_dtype
            )

        names = ("gemm_stream_k_kernel", *(("gemm_fix_up_kernel",) if cut_tiles else ()))
        recorded = _tile_read_entries(described=config["DESCRIPTORS"] and takes_descriptors(*tensors[:2]))
        return launch_kernels, names, {**recorded, "schedule": f"{cut_tiles} of {tiles} tiles cut, {programs} programs"}


class MultiplyReduce(TritonGemm):
    """Matrix multiplication of few rows without matrix instructions."""

    @property
    def space(self) -> Space:
        """The configuration space of `gemm_multiply_reduce_kernel`."""
        return MULTIPLY_REDUCE_SPACE

    def unsupported_reasons(self, workload: Gemm, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: what every schedule refuses, or more than MULTIPLY_REDUCE_SIZE_M_MAX
        rows. Empty if it can."""
        found = super().unsupported_reasons(workload, device)
        if workload.size_m > MULTIPLY_REDUCE_SIZE_M_MAX:
            found.append(
                f"m {workload.size_m} is above {MULTIPLY_REDUCE_SIZE_M_MAX}, the most rows that it takes: past it, "
                "matrix instructions are at least half full"
            )
        return found

    def bind_launch(
        self, workload: Gemm, tensors: Tensors, choice: ConfigChoice
    ) -> tuple[Call, tuple[str, ...], dict[str, str]]:
        """Returns (a function that launches the kernel in the chosen configuration, its name, no entries to record)."""
        from kernels.triton.gemm.multiply_reduce import gemm_multiply_reduce

        config, transposed, out_dtype = choice.config, workload.layout == "nt", workload.out_stored_as

        def launch_kernel(a: torch.Tensor, b: torch.Tensor, *scales: torch.Tensor) -> torch.Tensor:
            pair = (scales[0], scales[1]) if scales else None
            return gemm_multiply_reduce(a, b, pair, transposed=transposed, config=config, out_dtype=out_dtype)

        return launch_kernel, ("gemm_multiply_reduce_kernel",), {}


def _tile_read_entries(*, described: int) -> dict[str, str]:
    """Returns {'reads': 'descriptors'} or {'reads': 'pointers'}: how tiles are read, to record in `Prepared.config`."""
    return {"reads": "descriptors" if described else "pointers"}


BACKENDS = (
    DataParallel("triton.gemm", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
    StreamK("triton.gemm_stream_k", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
    DataParallelTwin("triton.gemm_data_parallel", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
    MultiplyReduce("triton.gemm_multiply_reduce", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
)
