"""Builds of the Gluon kernel over rows: every rule, at its longest rows and at shorter ones. Names and values only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernels.configs import ConfigChoice, ConfigRule, Space
from kernels.gluon.rows.space import LAYERNORM, RMSNORM, SINCE, SOFTMAX, VECTOR_BYTES
from kernels.triton.builds import ELEMENTS
from pytest_attnperf.kernel_builds import Kernel, KernelBuild, Proof, TritonSource
from pytest_attnperf.workloads.layernorm import LayerNorm
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.softmax import Softmax

_POINTERS = ("x_ptr", "residual_ptr", "weight_ptr", "bias_ptr", "out_ptr", "sum_ptr")
"""Those of the kernel. One that a build does not take is None."""


@dataclass(frozen=True)
class GluonRowsKernel(Kernel):
    """The kernel over rows in the configurations of one space.

    pointers    the tensors that the operation has, of one element type; the others are None
    dtypes      what it is compiled for
    """

    name: str
    backends: tuple[str, ...]
    space: Space
    pointers: tuple[str, ...]
    dtypes: tuple[str, ...]

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns two builds per rule and dtype that it serves; none for an architecture without a kernel."""
        if arch not in SINCE:
            return []
        return [build for rule in self.space.load_rules(arch) for build in self._builds_under(arch, rule)]

    def unsupported_reasons(self, arch: str) -> list[str]:
        """Returns that there is no kernel for `arch`, or nothing."""
        return [] if arch in SINCE else [f"{self.name} has a kernel for {', '.join(SINCE)}, not for {arch}"]

    def _builds_under(self, arch: str, rule: ConfigRule) -> Iterator[KernelBuild]:
        residual = bool(rule.when.get("residual", False))
        for dtype in self.dtypes:
            if rule.when.get("element_bits", ELEMENTS[dtype][1]) == ELEMENTS[dtype][1]:
                yield from (self._make_build(arch, rule, dtype, residual, even) for even in (True, False))

    def _make_build(self, arch: str, rule: ConfigRule, dtype: str, residual: bool, even: bool) -> KernelBuild:
        columns = int(rule.when["columns_max"])
        vector = 8 * VECTOR_BYTES // ELEMENTS[dtype][1]
        taken = ("x_ptr", "out_ptr", *self.pointers, *(("residual_ptr", "sum_ptr") if residual else ()))
        present = dict.fromkeys(taken, ELEMENTS[dtype][0])
        options: dict[str, object] = {"num_ctas": rule.config["SHARE"]}
        if rule.config["maxnreg"]:
            options["maxnreg"] = rule.config["maxnreg"]
        constants = {name: value for name, value in rule.constants.items() if name not in ("TURNS", "maxnreg")}
        pinned = ConfigChoice(self.space.rules_arch(arch), rule).config_entries()
        proof = self._make_proof(columns if even else columns - vector, dtype, residual)
        return KernelBuild(
            kernel=self.name,
            config=f"c{columns}-{dtype}{'-residual' if residual else ''}{'' if even else '-masked'}",
            arch=arch,
            source=TritonSource(
                module=f"kernels.gluon.rows.{arch}",
                function=f"rows_{arch}_kernel",
                signature={**present, "rows": "i32", "vectors": "i32", "eps": "fp32"},
                constants={
                    **dict.fromkeys(name for name in _POINTERS if name not in present),
                    "KIND": self.space.kernel,
                    "VECTOR": vector,
                    "EVEN": even,
                    **constants,
                },
                divisible_by_16=tuple(present),
                options={**rule.options, **options},
            ),
            settings={name: str(value) for name, value in sorted(rule.config.items())},
            where=f"kernels/gluon/configs/{self.space.kernel}/{arch}.json",
            proofs=(Proof(self.backends[0], proof, pinned),),
        )

    def _make_proof(self, columns: int, dtype: str, residual: bool) -> Softmax | RmsNorm | LayerNorm:
        """Returns a problem of a few rows."""
        if self.space is SOFTMAX:
            return Softmax(5, columns, dtype)
        return (RmsNorm if self.space is RMSNORM else LayerNorm)(5, columns, dtype, residual=residual)


KERNELS = (
    GluonRowsKernel("gluon.softmax", ("gluon.softmax",), SOFTMAX, (), ("bf16", "f32")),
    GluonRowsKernel("gluon.rmsnorm", ("gluon.rmsnorm",), RMSNORM, ("weight_ptr",), ("bf16", "f32")),
    GluonRowsKernel("gluon.layernorm", ("gluon.layernorm",), LAYERNORM, ("weight_ptr", "bias_ptr"), ("bf16", "f32")),
)
