"""Our implementations. `register` adds them all. Importing this package imports neither torch nor a compiler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.listing import find_place, import_listed_module

if TYPE_CHECKING:
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.kernel_builds import KernelRegistry

MODULES = (
    "native.prefill",
    "native.backward",
    "native.varlen",
    "triton.prefill",
    "gluon.prefill",
    "triton.varlen",
    "native.decode",
    "triton.decode",
    "aiter.backends",
    "native.gemm",
    "triton.gemm",
    "gluon.gemm",
    "native.rows",
    "native.rope",
    "native.bandwidth",
    "triton.rows",
    "gluon.rows",
    "triton.rope",
    "triton.bandwidth",
    "native.mixed",
    "triton.mixed",
    "native.mla",
    "triton.mla",
    "native.backward_flash",
    "native.backward_cudnn",
    "native.varlen_backward",
    "triton.backward",
    "gluon.backward",
    "triton.trans_v",
    "hip.prefill",
    "hip.prefill_builds",
    "hip.staged",
    "hip.staged_builds",
    "hip.decode",
    "hip.decode_builds",
    "hip.rope",
    "hip.rope_builds",
    "native.staged",
    "triton.staged",
)
"""Every module with BACKENDS or KERNELS, in the order of the tables. A folder means its `backend` and its `builds`."""


def register(registry: Registry) -> None:
    """Adds every backend of this package to `registry`, and an attention layer over each backend of prefill, decode or
    latent attention. Raises UsageError for a listed module that is missing or empty."""
    from kernels.layer.mla_layers import all_layers_over

    registry.add(*_collect_entries("BACKENDS"))
    registry.add(*all_layers_over(registry))


def register_kernels(kernels: KernelRegistry) -> None:
    """Adds to `kernels` every kernel of this package that can be compiled without a GPU. Raises UsageError for a listed
    module that is missing or empty."""
    kernels.add(*_collect_entries("KERNELS"))


def _collect_entries(attribute: str) -> Iterator[Any]:
    """Yields the entries of the list called `attribute`, BACKENDS or KERNELS, of every module in MODULES that has it.
    Raises UsageError for a module that is missing or has neither list."""
    for name in MODULES:
        for module in _load_modules(name):
            if not (hasattr(module, "BACKENDS") or hasattr(module, "KERNELS")):
                where = find_place(__file__, f'"{name}"')
                raise UsageError(f"{module.__file__}:1: has neither BACKENDS nor KERNELS, and {where} lists it")
            entries = getattr(module, attribute, ())
            if not isinstance(entries, (tuple, list)):
                where = find_place(str(module.__file__), attribute)
                raise UsageError(f"{where}: {attribute} must be a tuple, with a comma: {attribute} = (Mine(...),)")
            yield from entries


def _load_modules(name: str) -> Iterator[ModuleType]:
    """Yields the imported module `kernels.<name>`; for a folder its two modules, `backend` and `builds`. Raises
    UsageError for a module that is missing."""
    full = f"{__name__}.{name}"
    is_folder = (Path(__file__).parent / name.replace(".", "/")).is_dir()
    for one in (f"{full}.backend", f"{full}.builds") if is_folder else (full,):
        yield import_listed_module(one, __file__, f'"{name}"')
