"""What perf/test_compare.py and perf/test_code_objects.py are about; perf/test_perf.py needs none of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from own_kernel.launch import settings

from pytest_attnperf.backends import Backend, Prepared, Registry
from pytest_attnperf.kernel_builds import Kernel, KernelBuild, KernelRegistry, TritonSource
from pytest_attnperf.records import DeviceInfo

POINTERS = ("x_ptr", "weight_ptr", "out_ptr")


@dataclass(frozen=True)
class RmsNormBackend(Backend):
    """One function of (x, weight) as a backend of the built-in family 'rmsnorm'."""

    families = ("rmsnorm",)
    function: str = ""

    def unsupported_reasons(self, workload: Any, device: DeviceInfo) -> list[str]:
        return ["no residual"] if workload.residual else []

    def prepare(self, workload: Any, inputs: Any) -> Prepared:
        import own_kernel

        call: Callable[..., Any] = getattr(own_kernel, self.function)
        tensors = tuple(tensor.clone() for tensor in inputs)
        return Prepared(call, tensors, convert=lambda new: new, outputs=lambda out: {"out": out})


def pytest_attnperf_register_backends(registry: Registry) -> None:
    registry.add(
        RmsNormBackend("own.triton", cpu_flops_max=1e6, times_on_cpu=False, function="rms_norm_triton"),
        RmsNormBackend("own.plain", cpu_flops_max=1e6, function="plain_rms_norm"),
    )


@dataclass(frozen=True)
class RmsNormKernel(Kernel):
    """rms_norm_kernel for bf16 rows of 1,024 and 4,096, launched as `rms_norm_triton` launches it."""

    name: str = "own.rms_norm"
    backends: tuple[str, ...] = ("own.triton",)

    def builds(self, arch: str) -> list[KernelBuild]:
        return [self._build(arch, columns) for columns in (1024, 4096)]

    def _build(self, arch: str, columns: int) -> KernelBuild:
        launch = settings(columns)
        source = TritonSource(
            module="own_kernel.kernel",
            function="rms_norm_kernel",
            signature={**dict.fromkeys(POINTERS, "*bf16"), "columns": "i32", "eps": "fp32"},
            constants={"BLOCK": launch["BLOCK"]},
            divisible_by_16=(*POINTERS, "columns"),
            options={"num_warps": launch["num_warps"]},
        )
        return KernelBuild(self.name, f"c{columns}-bf16", arch, source, settings={"columns": str(columns)})


def pytest_attnperf_register_kernels(kernels: KernelRegistry) -> None:
    kernels.add(RmsNormKernel())
