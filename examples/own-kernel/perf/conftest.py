"""What perf/test_compare.py and perf/test_code_objects.py are about; perf/test_perf.py needs none of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from own_kernel.launch import settings

from pytest_attnperf.backends import Backend, Prepared, Registry
from pytest_attnperf.kernel_builds import KernelBuild, KernelRegistry, TritonSource
from pytest_attnperf.records import DeviceInfo, Tolerance

POINTERS = ("x_ptr", "weight_ptr", "out_ptr")


@dataclass(frozen=True)
class RmsNormBackend:
    """One function of (x, weight) as a backend of the built-in family 'rmsnorm'."""

    name: str
    function: str
    times_on_cpu: bool
    cpu_flops_max: float
    families: frozenset[str] = frozenset({"rmsnorm"})
    tolerance: Tolerance = field(default_factory=Tolerance)

    def unsupported_reasons(self, workload: Any, device: DeviceInfo) -> list[str]:
        return ["no residual"] if workload.residual else []

    def prepare(self, workload: Any, inputs: Any) -> Prepared:
        import own_kernel

        call: Callable[..., Any] = getattr(own_kernel, self.function)
        tensors = tuple(tensor.clone() for tensor in inputs)
        return Prepared(call, tensors, convert=lambda new: new, outputs=lambda out: {"out": out})


def pytest_attnperf_register_backends(registry: Registry) -> None:
    backends: list[Backend] = [
        RmsNormBackend("own.triton", "rms_norm_triton", times_on_cpu=False, cpu_flops_max=1e6),
        RmsNormBackend("own.plain", "plain_rms_norm", times_on_cpu=True, cpu_flops_max=1e6),
    ]
    registry.add(*backends)


@dataclass(frozen=True)
class RmsNormKernel:
    """rms_norm_kernel for bf16 rows of 1,024 and 4,096, launched as `rms_norm_triton` launches it."""

    name: str = "own.rms_norm"
    backends: Sequence[str] = ("own.triton",)

    def unsupported_reasons(self, arch: str) -> list[str]:
        return []

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
