"""Matrix multiplication: out = a b, in floats, in integers with exact int32 sums, in fp8 with one scale per matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import DTYPE_BYTES, TORCH_DTYPES
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar
from pytest_attnperf.workloads.precision import full_fp32_matmul, multiply_as_tensor_core, reference_dtype
from pytest_attnperf.workloads.quantisation import PER_TENSOR, quantise

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

FP8 = ("f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz")
OUT_DTYPES = {
    "f32": ("f32",),
    "f16": ("f16", "f32"),
    "bf16": ("bf16", "f32"),
    "i8": ("i32",),
    "i32": ("i32",),
    **dict.fromkeys(FP8, ("bf16", "f16", "f32")),
}
"""Dtype of a and b -> the dtypes that 'out' can have, the default first. Sums of integers are exact in int32 only."""
DTYPES = tuple(OUT_DTYPES)
"""Dtypes of a and b."""
LAYOUTS = ("nn", "nt")
INT32_LARGEST = 2**31 - 1
INT8_LARGEST = 127
INT8_SIZE_K_MAX = INT32_LARGEST // INT8_LARGEST**2
"""Above this K, a sum of products of int8 can exceed int32."""
PLANTED_FACTOR = 8.0
_SCALES_BYTES = 2 * 4
_ROWS_AT_ONCE = 2048


@dataclass(frozen=True)
class Gemm(FamilyWorkload):
    """One matrix multiplication; id e.g. `gemm-m16-n4096-k4096-i8`, `gemm-m2048-n14336-k4096-bf16-nt`.

    size_m   M, rows of a and of out
    size_n   N, columns of out
    size_k   K, the length of every sum; at most 133,144 for i8 and 2^31 - 1 for i32, so that no sum leaves int32
    dtype    one of DTYPES: dtype of a and b
    layout   'nn': b is stored (K, N). 'nt': b is stored (N, K), like the weight of torch.nn.Linear, and as fp8 tensor
             cores read it. Both are contiguous
    cold     timed with inputs that are in no cache; hot otherwise
    out_dtype    dtype of 'out', one of OUT_DTYPES[dtype], as `out=f32`. '' is the default: that of a and b, but bf16
             for fp8 and i32 for i8. f16, bf16 and fp8 may ask for f32, fp8 also for f16

    Inputs are (a, b), a (M, K), contiguous; those in fp8 are (a, b, a_scale, b_scale), scales fp32 (1,), value = stored
    * scale. Floats are summed in fp32 and rounded once, f32 is multiplied as fp32, not as TF32. i8 and i32 are summed
    in int32 and compared exactly. The one output is 'out' (M, N).

    Raises WorkloadError naming the field for sizes that are not positive integers, another dtype or layout, an
    out_dtype that the dtype cannot have, and a size_k that is too large for integers.
    """

    grammar = Grammar(
        family="gemm",
        numbers={"m": "size_m", "n": "size_n", "k": "size_k"},
        required=("m", "n", "k"),
        flags=("cold",),
        dtypes=DTYPES,
        id_required=(),
        choices={"layout": LAYOUTS},
        texts={"out": ("out_dtype", "[a-z0-9]+")},
        unsaid=("cold",),
    )

    row_field, row_inputs = "size_m", 1

    size_m: int
    size_n: int
    size_k: int
    dtype: str = "f16"
    layout: str = "nn"
    cold: bool = False
    out_dtype: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = OUT_DTYPES[self.dtype]
        # Equal problems must be equal and hash equal, however they were written.
        self._set_field("out_dtype", self.out_dtype or allowed[0])
        if self.out_dtype not in allowed:
            raise WorkloadError(
                f"gemm workload: out_dtype (out) must be one of {', '.join(allowed)} for {self.dtype}, got "
                f"{self.out_dtype!r}"
            )
        if self.layout not in LAYOUTS:
            raise WorkloadError(f"gemm workload: layout {self.layout!r} is not one of {', '.join(LAYOUTS)}")
        longest = INT8_SIZE_K_MAX if self.dtype == "i8" else INT32_LARGEST
        if self.is_integer and self.size_k > longest:
            raise WorkloadError(
                f"gemm workload: size_k must be at most {longest} for {self.dtype}, got {self.size_k}: a longer sum of "
                "products can exceed int32"
            )

    def _option_words(self) -> list[str]:
        """Returns the words of the id after its dtype, the last one `out` with a dtype that is not the default."""
        is_default = self.out_dtype == OUT_DTYPES[self.dtype][0]
        return [*super()._option_words(), *(() if is_default else (f"out{self.out_dtype}",))]

    @property
    def is_integer(self) -> bool:
        """True if a and b are int8 or int32, and sums int32."""
        return self.dtype in ("i8", "i32")

    @property
    def integer_largest(self) -> int:
        """Largest magnitude of integers that are drawn: 127 for i8; for i32 the largest v with K v^2 < 2^31."""
        return INT8_LARGEST if self.dtype == "i8" else math.isqrt(INT32_LARGEST // self.size_k)

    @property
    def out_stored_as(self) -> torch.dtype:
        """The torch dtype of 'out'."""
        import torch

        dtype: torch.dtype = getattr(torch, TORCH_DTYPES[self.out_dtype])
        return dtype

    @property
    def is_scaled(self) -> bool:
        """True if a and b are fp8 and come with one scale each."""
        return self.dtype in FP8

    @property
    def flops(self) -> float:
        """FLOPs: 2 M N K: a multiplication and an addition per element of a and column of b."""
        return 2.0 * self.size_m * self.size_n * self.size_k

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: a and b (and two fp32 scales) read once, out written once."""
        read = (self.size_m + self.size_n) * self.size_k * self.element_bytes
        written = self.size_m * self.size_n * DTYPE_BYTES[self.out_dtype]
        return float(read + written + (_SCALES_BYTES if self.is_scaled else 0))

    @property
    def planted_positions(self) -> tuple[int, ...]:
        """Positions along K that planted inputs make large: both sides of each edge where a kernel may cut K. These are
        the ends, the start of an incomplete last tile of 16 to 256, and the middle, where K is split in two."""
        edges = {0, self.size_k, self.size_k // 2} | {self.size_k // tile * tile for tile in (16, 32, 64, 128, 256)}
        sides = {position for edge in edges for position in (edge - 1, edge)}
        return tuple(sorted(position for position in sides if 0 <= position < self.size_k))

    def _conventions(self) -> dict[str, Any]:
        said = {"formula": "out = a b", "sums": "int32" if self.is_integer else "fp32"}
        return {**said, "quantisation": PER_TENSOR} if self.is_scaled else said

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Draws (a, b) from N(0, 1) on `device`, for fp8 quantised with their scales; integers uniformly from -v to v,
        v = `integer_largest`.

        With `planted`, the columns of a at `planted_positions` are PLANTED_FACTOR times larger, so that one product
        that is lost, or added twice, exceeds the rounding of every sum. Of i32, `_plant_integers` says what is planted;
        of i8 nothing, because nothing is rounded.
        """
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        b_shape = (self.size_k, self.size_n) if self.layout == "nn" else (self.size_n, self.size_k)
        shapes = ((self.size_m, self.size_k), b_shape)
        if self.is_integer:
            ends = (-self.integer_largest, self.integer_largest + 1)
            a, b = (
                torch.randint(*ends, shape, generator=generator, device=device, dtype=self.stored_as)
                for shape in shapes
            )
            if planted and self.dtype == "i32":
                self._plant_integers(a, b if self.layout == "nn" else b.t())
            return a, b
        a, b = (torch.randn(shape, generator=generator, device=device) for shape in shapes)
        if planted:
            a[:, list(self.planted_positions)] *= PLANTED_FACTOR
        if self.is_scaled:
            (a, a_scale), (b, b_scale) = quantise(a, self.dtype), quantise(b, self.dtype)
            return a, b, a_scale, b_scale
        return a.to(self.stored_as), b.to(self.stored_as)

    def _plant_integers(self, a: torch.Tensor, b: torch.Tensor) -> None:
        """Changes a (M, K) and b (K, N) in place, keeping each product at most v^2, v = `integer_largest`.

        The first row of a and the first column of b become non-negative, so that the first sum is about 2^29, where
        fp32 has steps of 64. At `planted_positions` a is v times larger and b its sign, so that a has all bits that a
        product below 2^31 / K leaves: an operand that is cut to 16 bits shows.
        """
        a[0].abs_()
        b[:, 0].abs_()
        places = list(self.planted_positions)
        a[:, places] *= self.integer_largest
        b[places] = b[places].sign()

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'out' in fp64 on a CPU and for an f32 result; on a GPU for narrower floats in fp32 without TF32.
        Integers: int32, exact. Rows of a are processed in chunks; b is widened whole."""
        import torch

        if self.is_integer:
            # fp64 holds every integer up to 2^53, and torch multiplies no wide integers on a GPU.
            return {"out": self._multiply_matrices(inputs, torch.float64, torch.int32)}
        wide = torch.float64 if self.out_dtype == "f32" else reference_dtype(inputs[:2])
        return {"out": self._multiply_matrices(inputs, wide, wide)}

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'out' with sums in fp32, rounded once, the least that a kernel rounds; for 16-bit inputs and an f32
        result, which shows how they were added, as `multiply_as_tensor_core`. Integers as `reference`."""
        import torch

        if self.is_integer:
            return self.reference(inputs)
        if self.out_dtype == "f32" and self.element_bytes == 2:
            a, b = inputs
            return {"out": multiply_as_tensor_core(a, b if self.layout == "nn" else b.t())}
        return {"out": self._multiply_matrices(inputs, torch.float32, self.out_stored_as)}

    def _multiply_matrices(self, inputs: Tensors, wide: torch.dtype, narrow: torch.dtype) -> torch.Tensor:
        """Computes a b, times the scales of fp8, in `wide`; returns it (M, N), rounded to `narrow`."""
        import torch

        a, b, *scales = inputs
        b = (b if self.layout == "nn" else b.t()).to(wide)
        out = torch.empty((self.size_m, self.size_n), dtype=narrow, device=a.device)
        with full_fp32_matmul():
            for start in range(0, self.size_m, _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                product = a[rows].to(wide) @ b
                for scale in scales:
                    product *= scale.to(wide)
                out[rows] = product.to(narrow)
        return out
