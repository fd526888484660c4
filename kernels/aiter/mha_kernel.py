"""Loads the forward kernel of aiter's Triton attention from a source tree. A compile worker imports this module.

AITER_SOURCE names the tree (the folder that holds `aiter/`). Only the kernel's module and its imports are run:
`aiter/__init__.py` needs ROCm, a GPU and compiled modules, but compiling needs none of these. So empty packages replace
it and the `__init__.py` files below it. Since 2026 `arch_info` asks for the GPU at import; a driver that knows only the
architecture answers. Read from v0.1.5, v0.1.8, v0.1.9 and e4048607a5 (2026-08-22). Everything is removed from
`sys.modules` afterwards, so that an installed aiter stays importable.

The module has one attribute per architecture, e.g. `attn_fwd_gfx942`, because aiter fixes the architecture at import.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from kernels.aiter.mha_source import FUNCTION_PREFIX, KERNEL_MODULES, SOURCE_VARIABLE, kernel_file, source_root
from pytest_attnperf.errors import CodeObjectError

_BARE = ("aiter", "aiter.ops", "aiter.ops.triton", "aiter.ops.triton.attention")
"""Packages whose `__init__.py` is not run."""


def load_attn_fwd(root: Path, arch: str) -> Any:
    """Returns the `@triton.jit` function `_attn_fwd` of the tree at `root`, imported as on a machine with a GPU of
    `arch`.

    Raises CodeObjectError where the tree has no such kernel, or where its module cannot be imported, with that error.
    """
    path = kernel_file(root)
    if path is None:
        raise CodeObjectError(
            f"{root} holds no Triton attention kernel of aiter: none of {', '.join(KERNEL_MODULES)} under aiter/; "
            f"set {SOURCE_VARIABLE} to the root of a checkout of ROCm/aiter"
        )
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    try:
        with _bare_packages(root), _keep_environment(), _gpu_of(arch), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(name)
    except Exception as error:
        raise CodeObjectError(
            f"{path} cannot be imported under this Triton ({type(error).__name__}: {error}); install the "
            "Triton that this aiter was written for, or another version of aiter"
        ) from error
    return module._attn_fwd


@contextlib.contextmanager
def _bare_packages(root: Path) -> Iterator[None]:
    """Replaces `aiter` in this process by the packages under `root`, without running their `__init__.py`; undone at the
    end of the block."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "aiter"}
    try:
        for name in _BARE:
            folder = root.joinpath(*name.split("."))
            package = ModuleType(name)
            package.__path__ = [str(folder)]
            sys.modules[name] = package
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "aiter"]:
            del sys.modules[name]
        sys.modules.update(before)


@contextlib.contextmanager
def _keep_environment() -> Iterator[None]:
    """Restores at the end of the block the environment variables that imports change, e.g. TRITON_PRINT_AUTOTUNING."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def _gpu_of(arch: str) -> Iterator[None]:
    """Makes a driver that knows only `arch` Triton's active one, for modules that ask it at import; undone at the end
    of the block."""
    from triton.runtime.driver import driver

    before = dict(vars(driver))  # its own `reset_active` looks for a GPU
    driver.set_active(_Gpu(arch))
    try:
        yield
    finally:
        vars(driver).clear()
        vars(driver).update(before)


class _Gpu:
    """A Triton driver that knows its architecture and nothing else."""

    def __init__(self, arch: str) -> None:
        self._arch = arch

    def get_current_target(self) -> Any:
        """Returns the architecture and its wave size as a GPUTarget, as Triton's drivers do."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("hip", self._arch, 64 if self._arch.startswith("gfx9") else 32)

    def get_benchmarker(self) -> None:
        """Returns None, for autotuners that are created at import; nothing is timed."""
        return

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"importing aiter asks the GPU's driver for {name}, which needs a GPU")


def __getattr__(name: str) -> Any:
    """Returns `_attn_fwd` for the attribute `attn_fwd_<arch>`, loaded on first use from the tree that AITER_SOURCE
    names. Raises CodeObjectError if that fails, AttributeError for other names."""
    if not name.startswith(FUNCTION_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    root = source_root()
    if root is None:
        raise CodeObjectError(
            f"{SOURCE_VARIABLE} is not set; set it to the root of a checkout of ROCm/aiter, to compile its kernel"
        )
    found = globals()[name] = load_attn_fwd(root, name.removeprefix(FUNCTION_PREFIX))
    return found
