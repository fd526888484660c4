"""Builds of the kernels over rows: every shipped rule, in the variants of their launchers.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernels.configs import ConfigRule
from kernels.triton.builds import ELEMENTS, TritonKernel, make_build
from kernels.triton.rows.space import LAYERNORM, RMSNORM, SOFTMAX
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.workloads.layernorm import LayerNorm
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.softmax import Softmax


@dataclass(frozen=True)
class RowsKernel(TritonKernel):
    """One kernel over rows at the longest rows of each rule, of columns that 16 divides; norms with a residual.

    pointers    its tensors, of one element type
    norm        whether it takes eps and a residual
    dtypes      what it is compiled for
    """

    pointers: tuple[str, ...]
    norm: bool
    dtypes: tuple[str, ...]

    def builds_under(self, arch: str, rule: ConfigRule) -> Iterator[KernelBuild]:
        """Yields one build for `arch` per dtype that the rule serves; builds of norms take a residual."""
        longest = rule.when.get("columns_max")
        columns = "long" if longest is None else f"c{longest}"
        one_pass = longest is not None and int(longest) <= rule.constants["BLOCK_C"]
        for dtype in self.dtypes:
            bits = ELEMENTS[dtype][1]
            if rule.when.get("element_bits", bits) != bits:
                continue
            config = f"{columns}-{dtype}" + ("-residual" if self.norm else "")
            yield self.build_under(arch, config, dtype, rule, one_pass=one_pass, residual=self.norm)

    def build_under(
        self,
        arch: str,
        config: str,
        dtype: str,
        rule: ConfigRule,
        *,
        one_pass: bool,
        residual: bool,
        even: Sequence[str] = ("rows", "columns"),
    ) -> KernelBuild:
        """Returns the build for `arch` of a dtype under a rule, which need not be a shipped one. `config` is its id.

        one_pass    whether a program holds whole rows
        even        sizes that 16 divides
        """
        absent = () if residual or not self.norm else ("residual_ptr", "sum_ptr")
        pointers = tuple(name for name in self.pointers if name not in absent)
        return make_build(
            self.name,
            arch,
            config,
            self.space,
            rule,
            module=f"rows.{self.space.kernel}",
            function=f"{self.space.kernel}_kernel",
            signature={
                **dict.fromkeys(pointers, ELEMENTS[dtype][0]),
                **dict.fromkeys(("rows", "columns"), "i32"),
                **({"eps": "fp32"} if self.norm else {}),
            },
            constants={
                **dict.fromkeys(absent),
                "ONE_PASS": one_pass,
                **({"RESIDUAL": residual} if self.norm else {}),
            },
            divisible_by_16=(*pointers, *even),
            proofs=[(self.backends[0], self._make_proof(dtype, rule, one_pass=one_pass, residual=residual, even=even))],
        )

    def _make_proof(
        self, dtype: str, rule: ConfigRule, *, one_pass: bool, residual: bool, even: Sequence[str]
    ) -> Softmax | RmsNorm | LayerNorm:
        """Returns a problem of a few rows that do not fill the last tile of columns: the only one, or the second."""
        block = int(rule.constants["BLOCK_C"])
        columns = block - 16 if one_pass else block + 272
        sizes = {name: size if name in even else size - 3 for name, size in {"rows": 16, "columns": columns}.items()}
        if self.space is SOFTMAX:
            return Softmax(**sizes, dtype=dtype)
        return (RmsNorm if self.space is RMSNORM else LayerNorm)(**sizes, dtype=dtype, residual=residual)


KERNELS = (
    RowsKernel("triton.softmax", ("triton.softmax",), SOFTMAX, ("x_ptr", "out_ptr"), False, ("f16", "f32")),
    RowsKernel(
        "triton.rmsnorm",
        ("triton.rmsnorm",),
        RMSNORM,
        ("x_ptr", "residual_ptr", "weight_ptr", "out_ptr", "sum_ptr"),
        True,
        ("bf16", "f32"),
    ),
    RowsKernel(
        "triton.layernorm",
        ("triton.layernorm",),
        LAYERNORM,
        ("x_ptr", "residual_ptr", "weight_ptr", "bias_ptr", "out_ptr", "sum_ptr"),
        True,
        ("bf16", "f32"),
    ),
)
