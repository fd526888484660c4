"""Matrix multiplication: out = a b, in floats, in int8 with exact int32 sums, and in fp8 with one scale per matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import DTYPE_BYTES, OUT_DTYPES, TORCH_DTYPES
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar
from pytest_attnperf.workloads.precision import full_fp32_matmul, reference_dtype
from pytest_attnperf.workloads.quantisation import PER_TENSOR, quantise

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

FP8 = ("f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz")
DTYPES = ("f32", "f16", "bf16", "i8", *FP8)
"""Dtypes of a and b."""
LAYOUTS = ("nn", "nt")
INT8_LARGEST = 127
INT8_SIZE_K_MAX = (2**31 - 1) // INT8_LARGEST**2
"""Above this K, a sum of products of int8 can exceed int32."""
PLANTED_FACTOR = 8.0
_INT32_BYTES = 4
_SCALES_BYTES = 2 * 4
_ROWS_AT_ONCE = 2048


@dataclass(frozen=True)
class Gemm(FamilyWorkload):
    """One matrix multiplication; id e.g. `gemm-m16-n4096-k4096-i8`, `gemm-m2048-n14336-k4096-bf16-nt`.

    size_m   M, rows of a and of out
    size_n   N, columns of out
    size_k   K, the length of every sum; at most 133,144 for i8, so that no sum leaves int32
    dtype    one of DTYPES: dtype of a and b. 'out' has the same, but bf16 for fp8 and int32 for i8
    layout   'nn': b is stored (K, N). 'nt': b is stored (N, K), like the weight of torch.nn.Linear, and as fp8 tensor
             cores read it. Both are contiguous
    cold     timed with inputs that are in no cache; hot otherwise

    Inputs are (a, b), a (M, K), contiguous; those in fp8 are (a, b, a_scale, b_scale), scales fp32 (1,), value = stored
    * scale. f32 is multiplied and summed as fp32, not as TF32. i8 is exact: integers are compared exactly. The one
    output is 'out' (M, N).

    Raises WorkloadError naming the field for sizes that are not positive integers, another dtype or layout, and a
    size_k that is too large for i8.
    """

    grammar = Grammar(
        family="gemm",
        numbers={"m": "size_m", "n": "size_n", "k": "size_k"},
        required=("m", "n", "k"),
        flags=("cold",),
        dtypes=DTYPES,
        id_required=(),
        choices={"layout": LAYOUTS},
        unsaid=("cold",),
    )

    size_m: int
    size_n: int
    size_k: int
    dtype: str = "f16"
    layout: str = "nn"
    cold: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout not in LAYOUTS:
            raise WorkloadError(f"gemm workload: layout {self.layout!r} is not one of {', '.join(LAYOUTS)}")
        if self.dtype == "i8" and self.size_k > INT8_SIZE_K_MAX:
            raise WorkloadError(
                f"gemm workload: size_k must be at most {INT8_SIZE_K_MAX} for i8, got {self.size_k}: a longer sum of "
                "products can exceed int32"
            )

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
        out_bytes = _INT32_BYTES if self.dtype == "i8" else DTYPE_BYTES[OUT_DTYPES[self.dtype]]
        return float(read + self.size_m * self.size_n * out_bytes + (_SCALES_BYTES if self.is_scaled else 0))

    @property
    def planted_positions(self) -> tuple[int, ...]:
        """Positions along K that planted inputs make large: both sides of each edge where a kernel may cut K. These are
        the ends, the start of an incomplete last tile of 16 to 256, and the middle, where K is split in two."""
        edges = {0, self.size_k, self.size_k // 2} | {self.size_k // tile * tile for tile in (16, 32, 64, 128, 256)}
        sides = {position for edge in edges for position in (edge - 1, edge)}
        return tuple(sorted(position for position in sides if 0 <= position < self.size_k))

    def _conventions(self) -> dict[str, Any]:
        integer = self.dtype == "i8"
        said = {"formula": "out = a b", "sums": "int32" if integer else "fp32"}
        said["out_dtype"] = "i32" if integer else OUT_DTYPES[self.dtype]
        return {**said, "quantisation": PER_TENSOR} if self.is_scaled else said

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Draws (a, b) from N(0, 1) on `device`, for fp8 quantised with their scales; for i8 integers from -127 to 127.

        With `planted`, the columns of a at `planted_positions` are PLANTED_FACTOR times larger, so that one product
        that is lost, or added twice, exceeds the rounding of every sum. Integers are not planted: nothing is rounded.
        """
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        b_shape = (self.size_k, self.size_n) if self.layout == "nn" else (self.size_n, self.size_k)
        shapes = ((self.size_m, self.size_k), b_shape)
        if self.dtype == "i8":
            ends = (-INT8_LARGEST, INT8_LARGEST + 1)
            return tuple(
                torch.randint(*ends, shape, generator=generator, device=device, dtype=torch.int8) for shape in shapes
            )
        a, b = (torch.randn(shape, generator=generator, device=device) for shape in shapes)
        if planted:
            a[:, list(self.planted_positions)] *= PLANTED_FACTOR
        if self.is_scaled:
            (a, a_scale), (b, b_scale) = quantise(a, self.dtype), quantise(b, self.dtype)
            return a, b, a_scale, b_scale
        return a.to(self.stored_as), b.to(self.stored_as)

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'out' in fp64 on a CPU and for f32; on a GPU for narrower floats in fp32 without TF32. i8: int32,
        exact. Rows of a are processed in chunks; b is widened whole."""
        import torch

        if self.dtype == "i8":
            # fp64 holds every integer up to 2^53, and torch multiplies no wide integers on a GPU.
            return {"out": self._multiply_matrices(inputs, torch.float64, torch.int32)}
        wide = reference_dtype(inputs[:2])
        return {"out": self._multiply_matrices(inputs, wide, wide)}

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'out' with sums in fp32, rounded once, the least that a kernel rounds; i8 as `reference`."""
        import torch

        if self.dtype == "i8":
            return self.reference(inputs)
        return {
            "out": self._multiply_matrices(inputs, torch.float32, getattr(torch, TORCH_DTYPES[OUT_DTYPES[self.dtype]]))
        }

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
