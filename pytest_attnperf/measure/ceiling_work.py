"""The work that measures a device's ceilings: matrix products, copies, reads, and a kernel that does nothing.

Each piece writes its result into its own memory, which is filled with NaN before the check. Its `fault` reports what is
wrong there. Values are normal random numbers: zeros and repeated values switch fewer bits, draw less power, and run at
clocks that real data never reaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.workloads.precision import full_fp32_matmul, tf32_matmul

if TYPE_CHECKING:
    import torch

SEED = 20_240_917
F8 = ("f8e4m3", "f8e4m3fnuz")
TORCH_DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "tf32": "float32",
    "f8e4m3": "float8_e4m3fn",
    "f8e4m3fnuz": "float8_e4m3fnuz",
}

UNIT_ROUNDOFF = {"f16": 2.0**-11, "bf16": 2.0**-8, "tf32": 2.0**-11, "f32": 2.0**-24}
ROUNDOFFS_ALLOWED = 16
"""An element of a product of normal numbers over K is normal with deviation sqrt(K). The largest of many is about 5
deviations, so one rounding of it is 5 unit roundoffs. 16 leave room for partial sums in the output's type, which torch
allows by default. They are still far below a deviation, the size of the error of a wrong element.
"""

CHECKED_LINES = 4
"""Rows and columns of a product that are recomputed in double precision; all other elements must be finite."""

CHUNK = 1 << 25
"""Elements compared or converted at a time, so that a check needs little extra memory."""

_WORD_BYTES = 4


@dataclass(frozen=True)
class Reader:
    """How memory is read: a torch operator ('sum', 'amax' or 'mv') reduces each row to one number.

    words   in a row; 0 for one row of everything
    """

    operator: str
    words: int

    @property
    def name(self) -> str:
        """How the bytes are read, as stored text: 'torch.sum over rows of 256' or 'torch.sum over everything'."""
        return f"torch.{self.operator} over " + (f"rows of {self.words}" if self.words else "everything")


READERS = (Reader("sum", 256), Reader("sum", 8192), Reader("sum", 0), Reader("amax", 8192), Reader("mv", 8192))
"""They write at most 1/256 of what they read."""


@dataclass(frozen=True)
class Work:
    """`call` fills `result`. `amount` is FLOPs or bytes of a call; `fault` returns what is wrong with `result`, or
    ''."""

    call: Callable[[], Any]
    result: torch.Tensor
    amount: float
    size: str
    fault: Callable[[], str]


def probe_fp32_products(torch_device: str, size: int = 512) -> tuple[str, bool]:
    """Returns ('f32' or 'tf32': the process's default for fp32 products; whether allowing TF32 changes any bit).

    It multiplies, because settings of torch, of the libraries below it and of the environment decide together.
    """
    import torch

    left, right = _make_normal((size, size), torch_device), _make_normal((size, size), torch_device, SEED + 1)
    default = left @ right
    error = float((default.to(torch.float64) - left.to(torch.float64) @ right.to(torch.float64)).abs().max())
    with full_fp32_matmul():
        full = left @ right
    with tf32_matmul():
        allowed = left @ right
    return "f32" if error <= product_tolerance("f32", size) else "tf32", not bool((full == allowed).all())


def make_gemm(dtype: str, shape: tuple[int, int, int], torch_device: str, computed_in: str = "") -> Work:
    """Makes the work of multiplying M x K and K x N matrices in row order; `shape` is (M, K, N).

    For fp8 the second is in column order, as torch requires, with unit scales, a bf16 result and without fast
    accumulation, torch's default.

    computed_in   'tf32' if the process's settings make an f32 product use it
    """
    import torch

    rows, inner, columns = shape
    stored: torch.dtype = getattr(torch, TORCH_DTYPES[dtype])
    left = _make_normal((rows, inner), torch_device).to(stored)
    right = _make_normal((columns, inner) if dtype in F8 else (inner, columns), torch_device, SEED + 1).to(stored)
    right = right.t() if dtype in F8 else right
    result = torch.empty((rows, columns), dtype=torch.bfloat16 if dtype in F8 else stored, device=torch_device)
    scale = torch.ones((), device=torch_device)

    def call() -> torch.Tensor:
        if dtype in F8:
            return torch._scaled_mm(left, right, scale, scale, out_dtype=torch.bfloat16, out=result)
        return torch.mm(left, right, out=result)

    allowed = product_tolerance(computed_in or dtype, inner)
    return Work(
        call,
        result,
        2.0 * rows * inner * columns,
        f"{rows} x {inner} x {columns}",
        lambda: product_fault(left, right, result, allowed),
    )


def product_tolerance(computed_in: str, inner: int) -> float:
    """Returns the largest allowed absolute error of a product's element, a sum over `inner` pairs of normal numbers.

    computed_in   type of the multiplication, e.g. 'f16' or 'tf32'
    """
    deviation = math.sqrt(inner)
    of_result = UNIT_ROUNDOFF["bf16" if computed_in in F8 else computed_in]
    # Every step of a sum in fp32 is rounded, so that its error grows as a random walk with the number of steps.
    of_sum = UNIT_ROUNDOFF["f32"] * math.sqrt(inner)
    return ROUNDOFFS_ALLOWED * deviation * max(of_result, of_sum)


def product_fault(left: torch.Tensor, right: torch.Tensor, result: torch.Tensor, allowed: float) -> str:
    """Returns what is wrong with `result`, the product of `left` and `right`, or ''.
    All elements must be finite. 4 rows and 4 columns are recomputed in double precision and may differ by `allowed`."""
    import torch

    step = max(1, CHUNK // max(1, result.shape[1]))
    for begin in range(0, result.shape[0], step):
        if not bool(torch.isfinite(result[begin : begin + step]).all()):
            return "an element of the product is not finite, or was never written"
    errors = (
        _line_error(left, right, result, _choose_lines(result.shape[0])),
        _line_error(right.t(), left.t(), result.t(), _choose_lines(result.shape[1])),
    )
    worst = max(errors)
    return "" if worst <= allowed else f"an element of the product has error {worst:.3g}, allowed is {allowed:.3g}"


def _line_error(left: torch.Tensor, right: torch.Tensor, result: torch.Tensor, rows: list[int]) -> float:
    """Returns the largest difference of these rows of `result` from left @ right in double precision.
    Columns are computed in parts to save memory."""
    import torch

    chosen, got = _take_rows(left, rows), _take_rows(result, rows)
    step = max(1, CHUNK // max(1, right.shape[0]))
    worst = 0.0
    for begin in range(0, right.shape[1], step):
        exact = chosen @ right[:, begin : begin + step].to(torch.float64)
        worst = max(worst, float((got[:, begin : begin + step] - exact).abs().max()))
    return worst


def _take_rows(matrix: torch.Tensor, rows: list[int]) -> torch.Tensor:
    """Copies some rows in double precision; slices, because torch cannot index fp8."""
    import torch

    return torch.cat([matrix[row : row + 1].to(torch.float64) for row in rows])


def _choose_lines(count: int) -> list[int]:
    """Returns at most 4 of the row numbers 0 to count - 1, sorted: the first, the last, and two evenly between."""
    return sorted({round(index * (count - 1) / (CHECKED_LINES - 1)) for index in range(CHECKED_LINES)})


def make_copy(count_bytes: int, torch_device: str) -> Work:
    """Makes the work of a Tensor.copy_ that reads `count_bytes` and writes as many."""
    import torch

    source = _make_words(count_bytes, torch_device)
    target = torch.empty_like(source)
    size = f"{_format_mib(count_bytes)}, Tensor.copy_"
    return Work(
        lambda: target.copy_(source), target, 2.0 * _byte_size(source), size, lambda: _copy_fault(source, target)
    )


def make_kernel_copy(count_bytes: int, torch_device: str) -> Work:
    """Makes the work of copying `count_bytes` by an elementwise kernel, torch.bitwise_or with 0.
    Tensor.copy_ may run on another, slower unit of the device."""
    import torch

    source = _make_words(count_bytes, torch_device)
    target = torch.empty_like(source)
    return Work(
        lambda: torch.bitwise_or(source, 0, out=target),
        target,
        2.0 * _byte_size(source),
        f"{_format_mib(count_bytes)}, torch.bitwise_or with 0",
        lambda: _copy_fault(source, target),
    )


def make_read(count_bytes: int, torch_device: str, reader: Reader = READERS[0]) -> Work:
    """Makes the work of reading `count_bytes` and reducing each row to one number.
    The work's amount is all bytes read and written, without the vector by which 'mv' multiplies."""
    import torch

    words = _make_words(count_bytes, torch_device, reader.words or READERS[0].words)
    source = words.view(-1, reader.words or words.numel())
    product = reader.operator == "mv"
    result = torch.empty(source.shape[0], dtype=torch.float32 if product else torch.int32, device=torch_device)
    matrix, vector = (
        source.view(torch.float32),
        _make_normal((source.shape[1] if product else 1,), torch_device, SEED + 1),
    )
    calls: dict[str, Callable[[], Any]] = {
        "sum": lambda: torch.sum(source, dim=1, dtype=torch.int32, out=result),
        "amax": lambda: torch.amax(source, dim=1, out=result),
        "mv": lambda: torch.mv(matrix, vector, out=result),
    }
    faults = {
        "sum": lambda: _sum_fault(source, result),
        "amax": lambda: _amax_fault(source, result),
        "mv": lambda: _mv_fault(matrix, vector, result),
    }
    amount = float(_byte_size(source) + _byte_size(result))
    return Work(
        calls[reader.operator], result, amount, f"{_format_mib(count_bytes)}, {reader.name}", faults[reader.operator]
    )


def make_smallest_kernel(torch_device: str) -> Work:
    """Makes the work of adding 1 to one element: the smallest torch kernel whose result shows that it ran."""
    import torch

    one = torch.ones(1, device=torch_device)
    result = torch.empty_like(one)
    return Work(
        lambda: torch.add(one, 1.0, out=result),
        result,
        1.0,
        "torch.add of 1 element",
        lambda: "" if float(result) == 2.0 else f"torch.add of 1 and 1 gave {float(result)}",
    )


def _copy_fault(source: torch.Tensor, target: torch.Tensor) -> str:
    import torch

    starts = range(0, source.numel(), CHUNK)
    equal = all(torch.equal(source[start : start + CHUNK], target[start : start + CHUNK]) for start in starts)
    return "" if equal else "the copy differs from its source"


def _sum_fault(source: torch.Tensor, result: torch.Tensor) -> str:
    """Returns a sentence if the int32 sum of any row of `source` is wrong in `result`, else ''.
    The int32 sums may wrap around, so the exact int64 sums are converted to int32 before they are compared."""
    import torch

    exact = torch.zeros(source.shape[0], dtype=torch.int64, device=source.device)
    for rows, words in _split_parts(source):
        exact[rows] += source[rows, words].to(torch.int64).sum(dim=1)
    return "" if torch.equal(exact.to(torch.int32), result) else "the sums of what was read are wrong"


def _amax_fault(source: torch.Tensor, result: torch.Tensor) -> str:
    """Returns '' if each element of `result` is the largest integer of its row of `source`, else a sentence."""
    import torch

    met = torch.zeros_like(result, dtype=torch.bool)
    for rows, words in _split_parts(source):
        limit = result[rows, None]
        if bool((source[rows, words] > limit).any()):
            return "the maxima of what was read are wrong"
        met[rows] |= (source[rows, words] == limit).any(dim=1)
    return "" if bool(met.all()) else "the maxima of what was read are wrong"


def _mv_fault(matrix: torch.Tensor, vector: torch.Tensor, result: torch.Tensor) -> str:
    """Returns a sentence if `result` differs from matrix @ vector by more than TF32's worst error, else ''.
    A row that was read only in part exceeds this error."""
    import torch

    exact = torch.zeros(matrix.shape[0], dtype=torch.float64, device=matrix.device)
    for rows, words in _split_parts(matrix):
        exact[rows] += matrix[rows, words].to(torch.float64) @ vector[words].to(torch.float64)
    right = bool(((result - exact).abs() <= product_tolerance("tf32", matrix.shape[1])).all())
    return "" if right else "the products of what was read are wrong"


def _split_parts(source: torch.Tensor) -> Iterator[tuple[slice, slice]]:
    """Yields (row slice, column slice) of consecutive parts of at most CHUNK elements that cover the matrix."""
    count, words = source.shape
    rows = max(1, CHUNK // words)
    for row in range(0, count, rows):
        for word in range(0, words, CHUNK):
            yield slice(row, row + rows), slice(word, word + CHUNK)


def _make_normal(shape: tuple[int, ...], torch_device: str, seed: int = SEED) -> torch.Tensor:
    import torch

    generator = torch.Generator(torch_device).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=torch_device)


def _make_words(count_bytes: int, torch_device: str, row: int = READERS[0].words) -> torch.Tensor:
    """Makes whole rows of normal random numbers viewed as integers, which compare bit by bit and add exactly."""
    import torch

    count = max(1, count_bytes // (_WORD_BYTES * row)) * row
    return _make_normal((count,), torch_device).view(torch.int32)


def _byte_size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _format_mib(count_bytes: int) -> str:
    return f"{count_bytes / 2**20:g} MiB"
