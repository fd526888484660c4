"""Memory bandwidth: copy, read, write and triad over arrays from a kibibyte to several gibibytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar, require_dtype

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

KINDS = ("copy", "read", "write", "triad")
DTYPES = ("f32", "f16", "bf16")
STRETCH_BYTES = 1024
"""Bytes that one sum of `read` covers. The length of every array is a multiple of it."""
WORD_BYTES = 4
WORDS = STRETCH_BYTES // WORD_BYTES
"""32-bit words that one sum covers."""
PATTERN = 256
"""Elements of the row that `write` repeats."""
SCALAR = 3.0
"""Factor of triad, as in STREAM."""
CHUNK_ELEMENTS = 2**24
"""Elements that a reference computes at once: 128 MiB in fp64 or int64."""
_KIB_PER_MIB = 1024


@dataclass(frozen=True)
class Bandwidth(FamilyWorkload):
    """Arrays of one size, moved once; id e.g. `bandwidth-copy-mib256-f32`, `bandwidth-triad-kib96-f16`.

    kind     'copy'    a = b, bit by bit
             'read'    a 32-bit sum, modulo 2^32, of the words of every 1,024 bytes of b
             'write'   a[i] = p[i modulo 256], where p is a row that stays in registers
             'triad'   a = b + 3 c, as STREAM (McCalpin 1995)
    mib      size of each array in MiB, or 0 with `kib`
    kib      size of each array in KiB, or 0 with `mib`; 1,024 KiB are written as MiB
    dtype    'f32', 'f16' or 'bf16': elements of all arrays

    Arrays are (N,), contiguous. Inputs are (b,), for write (p,) with p (256,), and for triad (b, c). Outputs: for copy
    and write 'out', the words of a, int32 (size / 4,), compared exactly; for read 'sums', int32 (size / 1024,),
    compared exactly; for triad 'out', a itself. Timed cold except write, whose input is meant to be cached.

    Raises WorkloadError for an unknown kind or dtype, and for sizes that are not positive integers or are given twice.
    """

    grammar = Grammar(
        family="bandwidth",
        numbers={"mib": "mib", "kib": "kib"},
        required=("kind",),
        flags=(),
        dtypes=DTYPES,
        id_required=(),
        choices={"kind": KINDS},
    )

    kind: str
    mib: int = 0
    kib: int = 0
    dtype: str = "f32"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise WorkloadError(f"bandwidth workload: kind {self.kind!r} is not one of {', '.join(KINDS)}")
        require_dtype("bandwidth", self.dtype, DTYPES)
        for name, value in (("mib", self.mib), ("kib", self.kib)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise WorkloadError(f"bandwidth workload: {name} must be a positive integer or 0, got {value!r}")
        if bool(self.mib) == bool(self.kib):
            raise WorkloadError(
                "bandwidth workload: one of mib and kib must be a positive integer, the size of an array, got "
                f"mib={self.mib} and kib={self.kib}"
            )
        # Equal problems must be equal and hash equal, however they were written.
        if self.kib % _KIB_PER_MIB == 0:
            self._set_field("mib", self.mib + self.kib // _KIB_PER_MIB)
            self._set_field("kib", 0)

    @property
    def cache_state(self) -> str:
        """'hot' for write, whose programs all read one small input from a cache; else 'cold'."""
        return "hot" if self.kind == "write" else "cold"

    @property
    def id(self) -> str:
        """Readable id, which `parse` parses back."""
        size = f"mib{self.mib}" if self.mib else f"kib{self.kib}"
        return "-".join(["bandwidth", self.kind, size, self.dtype])

    @property
    def array_bytes(self) -> int:
        """Bytes of one array."""
        return (self.mib * _KIB_PER_MIB + self.kib) * 1024

    @property
    def elements(self) -> int:
        """N, elements of one array."""
        return self.array_bytes // self.element_bytes

    @property
    def flops(self) -> float:
        """FLOPs: 2 per element for triad; otherwise 1, although a copy computes nothing: size limits count
        operations."""
        return float((2 if self.kind == "triad" else 1) * self.elements)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: all arrays once; for read also the sums, for write also the row of 256 elements."""
        moved = {
            "copy": 2 * self.array_bytes,
            "read": self.array_bytes + self.array_bytes // STRETCH_BYTES * WORD_BYTES,
            "write": self.array_bytes + PATTERN * self.element_bytes,
            "triad": 3 * self.array_bytes,
        }
        return float(moved[self.kind])

    def definition(self) -> dict[str, Any]:
        """Returns kind, bytes of an array, dtype, and conventions, as builtins."""
        convention: dict[str, dict[str, object]] = {
            "copy": {},
            "read": {"sum_over_bytes": STRETCH_BYTES},
            "write": {"pattern": PATTERN},
            "triad": {"scalar": SCALAR},
        }
        fields = {"kind": self.kind, "array_bytes": self.array_bytes, "dtype": self.dtype}
        return {"family": self.family, **fields, **convention[self.kind]}

    unplanted: ClassVar[str] = "every element affects an output"
    """Why `planted` changes no input, for the name of the check."""

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Draws the arrays from N(0, 1). `planted` changes nothing: every element affects an output, so a lost one
        shows anyway."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        count = PATTERN if self.kind == "write" else self.elements
        arrays = 2 if self.kind == "triad" else 1
        return tuple(torch.randn(count, generator=generator, device=device).to(self.stored_as) for _ in range(arrays))

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes the exact output: 'sums' for read; 'out' as words for copy and write, for triad in fp64, which takes
        8 bytes for each element."""
        import torch

        if self.kind == "triad":
            b, c = inputs
            parts = (
                one.double() + SCALAR * two.double()
                for one, two in zip(_split_chunks(b), _split_chunks(c), strict=True)
            )
            return {"out": torch.cat(list(parts))}
        if self.kind == "read":
            return {"sums": torch.cat([_sum_words(part) for part in _split_chunks(inputs[0].view(torch.int32))])}
        return {"out": self._compute_written(inputs[0]).view(torch.int32)}

    def _compute_written(self, array: torch.Tensor) -> torch.Tensor:
        return array.clone() if self.kind == "copy" else array.repeat(self.elements // PATTERN)

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes the output in the workload's dtype: triad by torch.add with alpha, which rounds once, others as
        `reference`."""
        import torch

        if self.kind == "triad":
            b, c = inputs
            return {"out": torch.add(b, c, alpha=SCALAR)}
        return self.reference(inputs)


def canonical_outputs(kind: str) -> Callable[[torch.Tensor], Outputs]:
    """Returns a function that converts the result of a call, a (N,) or for read the sums, to the outputs of `Bandwidth`
    by name, as views."""

    def view_outputs(result: torch.Tensor) -> Outputs:
        import torch

        if kind in ("copy", "write"):
            return {"out": result.view(torch.int32)}
        return {"sums" if kind == "read" else "out": result}

    return view_outputs


def _split_chunks(array: torch.Tensor) -> list[torch.Tensor]:
    return [array[first : first + CHUNK_ELEMENTS] for first in range(0, array.numel(), CHUNK_ELEMENTS)]


def _sum_words(words: torch.Tensor) -> torch.Tensor:
    """Sums each WORDS consecutive int32 words of (n,) modulo 2^32; returns int32 (n / WORDS,)."""
    import torch

    wide = words.view(-1, WORDS).sum(dim=1, dtype=torch.int64)
    return ((wide + 2**31) % 2**32 - 2**31).to(torch.int32)
