"""aiter's own forward kernel of its Triton attention, from a source tree, for compiling. Imported by a compile worker.

AITER_SOURCE names the tree (the folder that holds `aiter/`). Of it only the module of the kernel and what that imports
are run: `aiter/__init__.py` wants ROCm, a GPU and compiled modules, none of which compiling for a GPU needs, so bare
packages stand in for it and for the `__init__.py` files between; and a driver that knows nothing but the architecture
stands in for the GPU that `arch_info` asks at import since 2026. Read from v0.1.5, v0.1.8, v0.1.9 and e4048607a5
(2026-08-22). Everything is taken out of `sys.modules` again, so that an installed aiter stays importable beside it.

The module has one attribute per architecture, `attn_fwd_gfx942`: aiter remembers the architecture when it is imported.
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
    """`_attn_fwd` of the tree at `root`, a `@triton.jit` function, as a process with a GPU of `arch` would import it.

    Raises CodeObjectError where the tree holds no such kernel, or its module cannot be imported: naming what it raised.
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
            f"{path} cannot be imported under this Triton ({type(error).__name__}: {error}); it was written for the "
            "Triton of its time: try another version of one of them"
        ) from error
    return module._attn_fwd


@contextlib.contextmanager
def _bare_packages(root: Path) -> Iterator[None]:
    """Packages of the tree that run no `__init__.py`, in place of whatever `aiter` this process knows; undone after."""
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
    """Undo what the modules change in the environment, e.g. TRITON_PRINT_AUTOTUNING."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def _gpu_of(arch: str) -> Iterator[None]:
    """Triton's active driver, for what asks it at import; undone after."""
    from triton.runtime.driver import driver

    before = dict(vars(driver))  # its own `reset_active` looks for a GPU
    driver.set_active(_Gpu(arch))
    try:
        yield
    finally:
        vars(driver).clear()
        vars(driver).update(before)


class _Gpu:
    """A driver that can tell its architecture and nothing else."""

    def __init__(self, arch: str) -> None:
        self._arch = arch

    def get_current_target(self) -> Any:
        """As Triton's drivers give it."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("hip", self._arch, 64 if self._arch.startswith("gfx9") else 32)

    def get_benchmarker(self) -> None:
        """For autotuners that are decorated at import; nothing is timed."""
        return

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"aiter asks the GPU's driver for {name} when it is imported, and there is no GPU")


def __getattr__(name: str) -> Any:
    """`attn_fwd_<arch>` of the tree that AITER_SOURCE names, read when it is asked for. Raises CodeObjectError."""
    if not name.startswith(FUNCTION_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    root = source_root()
    if root is None:
        raise CodeObjectError(
            f"{SOURCE_VARIABLE} is not set: it names a checkout of ROCm/aiter, whose own kernel is compiled"
        )
    found = globals()[name] = load_attn_fwd(root, name.removeprefix(FUNCTION_PREFIX))
    return found
