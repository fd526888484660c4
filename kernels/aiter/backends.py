"""Every backend over ROCm's aiter: one per name, which combines its parts for the op families."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kernels.aiter import backward, decode, dense, gemm, mixed, mla, rope, rows, triton_attention, varlen
from kernels.aiter.by_family import by_family
from kernels.aiter.tuning import tunable_parts
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from kernels.aiter.signatures import EntryPoint
    from pytest_attnperf.backends import Backend

MODULES = (dense, varlen, backward, decode, mixed, mla, triton_attention, rows, rope, gemm)
"""Adapter modules. Each has PARTS, and ENTRY_POINTS for the contract tests."""


def merge_by_name(parts: Iterable[tuple[str, str, Backend]]) -> tuple[Backend, ...]:
    """Combines `parts`, (backend name, op family, implementation), into one backend per name, in order of first
    appearance.

    Raises UsageError where a name has two parts for one family.
    """
    named: dict[str, dict[str, Backend]] = {}
    for name, family, part in parts:
        families = named.setdefault(name, {})
        if family in families:
            raise UsageError(f"backend {name!r} has two parts for family {family!r}; name one of them otherwise")
        families[family] = part
    return tuple(by_family(name, families) for name, families in named.items())


BACKENDS: tuple[Backend, ...] = merge_by_name(tunable_parts(part for module in MODULES for part in module.PARTS))
ENTRY_POINTS: tuple[EntryPoint, ...] = tuple(
    dict.fromkeys(point for module in MODULES for point in module.ENTRY_POINTS)
)
