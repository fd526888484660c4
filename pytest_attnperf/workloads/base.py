"""The interface of every op family: an id that parses back, seeded inputs, a reference, and exact work figures."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

DTYPE_BYTES = {
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "tf32": 4,
    "f8e4m3": 1,
    "f8e5m2": 1,
    "f8e4m3fnuz": 1,
    "f8e5m2fnuz": 1,
    "i8": 1,
    "i32": 4,
}
"""Bytes per element of the dtypes a workload may name; tf32 is stored as f32, and products may round it to TF32."""

TORCH_DTYPES = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "float32",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "i8": "int8",
    "i32": "int32",
}
"""Workload dtype -> attribute of torch that inputs are stored in; the two fp8 without 'fnuz' are OCP's."""

QUANTISED = frozenset(dtype for dtype, size in DTYPE_BYTES.items() if size == 1)
"""Dtypes whose values are stored * scale, see `quantisation`."""

OUT_DTYPES = {dtype: "bf16" if dtype in QUANTISED else "f32" if dtype == "tf32" else dtype for dtype in DTYPE_BYTES}
"""Workload dtype -> workload dtype of 'out'."""


@runtime_checkable
class Workload(Protocol):
    """One problem. Frozen and hashable; `id` is readable and parses back to an equal workload.

    `FamilyWorkload` implements all members that are not abstract here.

    family        op family, the first word of the id
    dtype         one of DTYPE_BYTES: dtype of the inputs; the dtype of outputs is OUT_DTYPES[dtype]
    cache_state   'hot' or 'cold': whether the inputs of a timed call may already be in the last-level cache
    flops         useful floating-point operations of one call (masked-out work does not count); None if unknown
    bytes_min     unique bytes one call must move: inputs read once, outputs written once; None if unknown
    non_finite_outputs    names of outputs whose reference may hold NaN or Inf, to be matched exactly; empty for most
    """

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def family(self) -> str: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102
    @property
    def cache_state(self) -> str: ...  # noqa: D102
    @property
    @abc.abstractmethod
    def flops(self) -> float | None: ...  # noqa: D102
    @property
    @abc.abstractmethod
    def bytes_min(self) -> float | None: ...  # noqa: D102
    @property
    def non_finite_outputs(self) -> frozenset[str]: ...  # noqa: D102

    def definition(self) -> dict[str, Any]:
        """Returns plain builtins that define the workload completely; stored with every baseline entry."""

    @abc.abstractmethod
    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Makes canonical input tensors on `device`, the same for the same seed, device and torch version. With
        `planted`, single keys or elements dominate results at every edge a kernel may get wrong, so that one dropped,
        doubled or unmasked one moves a whole output row by its own size."""

    @abc.abstractmethod
    def reference(self, inputs: Tensors) -> Outputs:
        """Computes the result in fp32 or fp64, from the same stored input values, as {'out': ..., 'lse': ...}."""

    @abc.abstractmethod
    def plain(self, inputs: Tensors) -> Outputs:
        """Computes the outputs of `reference` in the working dtype; the difference between both defines the allowed
        error."""


InPlace = Mapping[int, "Callable[[torch.Tensor], torch.Tensor]"]
"""Number of a canonical input that a call writes to -> the view of it that may change; the rest of it may not."""


def in_place(workload: Workload) -> InPlace:
    """Returns `workload.in_place`: {number of an input that a call is meant to write to: function from it to the part
    that may change}; {} if the workload has none.

    Such a workload is idempotent: a second call on what the first left gives the same. A backend keeps these inputs in
    their canonical layout, under the same number among its own tensors, and may return them. Their content after a call
    is the last outputs that `reference` names, in the order of the inputs.
    """
    found: InPlace = getattr(workload, "in_place", {})
    return found


@dataclass(frozen=True)
class Unread:
    """Elements of one canonical input that the definition never reads: a result is the same whatever they hold.

    number    of the input
    name      of the input, for reports, e.g. 'k_cache'
    mask      bool, True where an element is not read; its shape broadcasts to the input's, e.g. (B, room, 1, 1)
    finite    callers have numbers there, neither NaN nor Inf, so that a weight of 0 hides them
    """

    number: int
    name: str
    mask: torch.Tensor
    finite: bool = False


def unread(workload: Workload, inputs: Tensors) -> tuple[Unread, ...]:
    """Returns what `workload.unread(inputs)` gives: the elements of its canonical inputs that the definition never
    reads. () if the workload has no such method, which is how one says that everything may be read."""
    find: Callable[[Tensors], tuple[Unread, ...]] | None = getattr(workload, "unread", None)
    return () if find is None else tuple(find(inputs))
