"""Records which compiled kernels a case launches, with their machine code, and which launch ran which of them.

A graph and a profiler name kernels, but one name may stand for many: an autotuner's candidates, or versions of one
source for other shapes. So launchers are watched while a case is prepared and checked, never while it is timed, and the
loaded objects are kept. A launch is identified by the driver's handle of its function. Without it, name, threads and
shared memory identify a launch if they fit only one loaded object; otherwise its code is unknown.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_attnperf.measure.autotuners import INDUCTOR
from pytest_attnperf.measure.patching import Patch, Patches
from pytest_attnperf.records import Launch
from pytest_attnperf.records.code import KernelObject

OBJECT_BYTES_MOST = 8 << 20
"""Larger objects are left out, because every worker would send them. Compiled attention kernels have 0.02 to 1 MiB."""

OBJECT_ID_DIGITS = 32
LOADED_MOST = 8
"""Objects that are sent before a case is timed; an autotuner tries dozens, of which one runs."""

UNKNOWN_KEY = "machine_code"
"""Entry of a case's configuration that says why the code of some kernel is unknown, if there is a reason."""

BINARIES = ("cubin", "hsaco")
"""Triton's names for a kernel's object on NVIDIA and AMD, in `CompiledKernel.asm` and as a file's suffix."""

TRITON = ("triton.runtime.jit", "JITFunction")
COMPILED = ("triton.compiler.compiler", "CompiledKernel")
"""`kernel[grid](...)` launches through the first; the result of `kernel.warmup(...)` launches through the second."""

_SYMBOL_SUFFIXES = (" [clone .kd]", ".kd")
"""Suffixes that ROCm's tools add to a kernel's name, because they name its descriptor."""


@dataclass(frozen=True)
class WatchedKernel:
    """A kernel that was launched while a case was watched.

    data        its code object; if it is unknown, this is empty, and launches that fit it are unknown, too
    threads     of a block
    function    the driver's handle (CUfunction, hipFunction_t); 0 if unknown
    """

    name: str
    data: bytes = field(repr=False)
    threads: int
    dynamic_lds_bytes: int
    static_lds_bytes: int = 0
    function: int = 0

    @functools.cached_property
    def object_id(self) -> str:
        """The first 32 hex digits of the object's SHA-256; '' if the object is unknown."""
        return hashlib.sha256(self.data).hexdigest()[:OBJECT_ID_DIGITS] if self.data else ""

    def has_name_of(self, launch: Launch) -> bool:
        """Tells whether a launch has this kernel's name and as many threads in a block."""
        threads = math.prod(launch.block) if launch.block else 0
        return launch.kind == "kernel" and _plain_name(launch.name) == self.name and threads == self.threads

    def is_kernel_of(self, launch: Launch) -> bool:
        """Tells whether a launch has this kernel's name, threads and shared memory.
        Shared memory may include its static part, as in graphs, or not, as in ROCm's profiler."""
        shared = (self.dynamic_lds_bytes, self.dynamic_lds_bytes + self.static_lds_bytes)
        return self.has_name_of(launch) and launch.shared_bytes in shared


class RanCode:
    """The compiled kernels that one case launched."""

    def __init__(self) -> None:
        self._kernels: dict[tuple[Any, ...], WatchedKernel] = {}
        self._held: dict[int, Any] = {}
        self._unknown = ""

    def add(self, kernel: WatchedKernel) -> None:
        """Stores a kernel that was launched; one with too large a code object is stored without it, with the reason."""
        if len(kernel.data) > OBJECT_BYTES_MOST:
            self._unknown = (
                f"the object of {kernel.name} has {len(kernel.data)} bytes and was left out, being larger than "
                f"{OBJECT_BYTES_MOST}"
            )
            kernel = replace(kernel, data=b"")
        shape = (kernel.threads, kernel.dynamic_lds_bytes, kernel.static_lds_bytes)
        self._kernels.setdefault((kernel.name, kernel.object_id, kernel.function, *shape), kernel)

    def record_launched(self, launched: Any, read: Callable[[], WatchedKernel]) -> None:
        """Stores the kernel that `read` returns for the launched object; does nothing if it was launched before.

        An exception in `read` is stored as the reason why code is unknown; it must not fail the case.
        """
        if id(launched) in self._held:
            return
        self._held[id(launched)] = launched  # kept alive, so that no other object gets the same id
        try:
            self.add(read())
        except Exception as error:  # internals of another version of Triton or torch
            first = (str(error).splitlines() or [""])[0]
            self._unknown = f"{type(error).__name__}: {first}"

    def release_launchers(self) -> None:
        """Forgets the launched objects, which were kept to recognise them; their kernels' code stays stored."""
        self._held.clear()

    def identify_launches(self, launches: Iterable[Launch], functions: Sequence[int] = ()) -> tuple[Launch, ...]:
        """Returns the launches with `object_id` filled in where the kernel's code is known.

        functions   the driver's handle of each, 0 if it has none; empty if the handles are unknown
        """
        every = tuple(launches)
        handles = functions or (0,) * len(every)
        pairs = list(zip(every, handles, strict=True))
        known = {pair: self._find_object_id(*pair) for pair in set(pairs)}  # a graph holds thousands of equal launches
        return tuple(replace(pair[0], object_id=known[pair]) for pair in pairs)

    def encode_objects(self, launches: Iterable[Launch]) -> dict[str, str]:
        """Returns id -> code object of these launches, as base64 of zlib-compressed bytes; none for unknown ones."""
        wanted = {launch.object_id for launch in launches} - {""}
        return {
            kernel.object_id: _encode_object(kernel) for kernel in self._kernels.values() if kernel.object_id in wanted
        }

    def list_kernel_objects(self) -> tuple[KernelObject, ...]:
        """Returns the last 8 (LOADED_MOST) kernels that were stored with a code object, one per name and code."""
        last = {(kernel.name, kernel.object_id): kernel for kernel in self._kernels.values() if kernel.data}
        kernels = list(last.values())[-LOADED_MOST:]
        return tuple(KernelObject(kernel.name, kernel.threads, _encode_object(kernel)) for kernel in kernels)

    def build_unknown_entry(self, launches: Iterable[Launch]) -> dict[str, str]:
        """Returns a configuration entry with the reason why the code of a launch is unknown; empty without a reason.

        A launch by an unwatched launcher is no reason: most launches of a library are.
        """
        missing = any(launch.kind == "kernel" and not launch.object_id for launch in launches)
        return {UNKNOWN_KEY: f"unknown: {self._unknown}"} if missing and self._unknown else {}

    def _find_object_id(self, launch: Launch, function: int) -> str:
        """Returns the id of the code object that a launch ran; '' if no kernel fits, or several with different code."""
        fitting = [kernel for kernel in self._kernels.values() if kernel.is_kernel_of(launch)]
        if function:
            # Handles are reused after a module is unloaded, so a handle alone proves nothing.
            same = [
                kernel
                for kernel in self._kernels.values()
                if kernel.function == function and kernel.has_name_of(launch)
            ]
            fitting = same or [kernel for kernel in fitting if not kernel.function]
        found = {kernel.object_id for kernel in fitting}
        return found.pop() if len(found) == 1 else ""


def _encode_object(kernel: WatchedKernel) -> str:
    return base64.b64encode(zlib.compress(kernel.data, 1)).decode()


_watching: list[RanCode] = []
"""The cases that are being prepared or checked; more than one only in tests."""


def record_kernel(
    name: str,
    object_bytes: bytes,
    threads: int,
    dynamic_lds_bytes: int,
    *,
    static_lds_bytes: int = 0,
    function: int = 0,
) -> None:
    """Records a kernel launch, for launchers that are not Triton's; does nothing while no case is watched.

    object_bytes   the code object that it was loaded from
    threads        of a block
    function       the driver's handle, if the launcher has one
    """
    kernel = WatchedKernel(name, object_bytes, threads, dynamic_lds_bytes, static_lds_bytes, function)
    for ran in _watching:
        ran.add(kernel)


@contextlib.contextmanager
def record_code(ran: RanCode) -> Iterator[None]:
    """Adds all launches to `ran` until the context ends; imports nothing and changes no launch.

    It sees Triton's own launches, kernels that Inductor wrote, and calls of `record_kernel`.
    """
    patches = [
        Patch(*TRITON, "run", functools.partial(_watching_triton, ran)),
        Patch(*COMPILED, "__getitem__", functools.partial(_watching_compiled, ran)),
        Patch(*INDUCTOR, "run", functools.partial(_watching_inductor, ran)),
    ]
    _watching.append(ran)
    try:
        with Patches(patches):
            yield
    finally:
        _watching.remove(ran)
        ran.release_launchers()


def _watching_triton(ran: RanCode, previous: Callable[..., Any]) -> Callable[..., Any]:
    def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        compiled = previous(function, *args, **kwargs)
        if compiled is not None and not kwargs.get("warmup"):
            ran.record_launched(compiled, functools.partial(_of_triton, compiled))
        return compiled

    return run


def _watching_compiled(ran: RanCode, previous: Callable[..., Any]) -> Callable[..., Any]:
    def getitem(compiled: Any, grid: Any) -> Any:
        runner = previous(compiled, grid)
        ran.record_launched(compiled, functools.partial(_of_triton, compiled))
        return runner

    return getitem


def _watching_inductor(ran: RanCode, previous: Callable[..., Any]) -> Callable[..., Any]:
    def run(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
        result = previous(autotuner, *args, **kwargs)
        launcher = next(iter(getattr(autotuner, "launchers", ())), None)
        if launcher is not None:
            ran.record_launched(launcher, functools.partial(_of_inductor, autotuner, launcher))
        return result

    return run


def _of_triton(compiled: Any) -> WatchedKernel:
    """Reads name, code object, threads and shared memory of a `triton.compiler.CompiledKernel` (Triton 3.3 to 3.9)."""
    metadata = compiled.metadata
    width = getattr(metadata, "warp_size", None) or metadata.target.warp_size
    data = next((compiled.asm[kind] for kind in BINARIES if kind in compiled.asm), None)
    if data is None:
        data = compiled.kernel
    return WatchedKernel(
        str(metadata.name),
        bytes(data),
        int(metadata.num_warps) * int(width),
        int(metadata.shared),
        function=_function_handle(compiled),
    )


def _of_inductor(autotuner: Any, launcher: Any) -> WatchedKernel:
    """Reads what a `CachingAutotuner` launches: Triton's object, or one that torch loads itself (as in torch 2.13).

    A launcher is a function written at run time; what it launches is one of its globals.
    """
    scope = launcher.__globals__
    if "bin" in scope:
        return _of_triton(scope["bin"])
    static = scope["runner"].__self__
    width = getattr(autotuner.device_props, "warp_size", None) or 32
    threads = int(static.num_warps) * int(width)
    data = _static_object(autotuner, launcher, str(static.name))
    return WatchedKernel(str(static.name), data, threads, int(static.shared), function=_function_handle(static))


def _static_object(autotuner: Any, launcher: Any, name: str) -> bytes:
    """Reads the file that torch's own launcher loaded from Triton's cache, where its source's hash names the folder.
    Raises FileNotFoundError if it is gone."""
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

    device = int(autotuner.triton_meta.get("device") or 0)
    folder = Path(triton_cache_dir(device), launcher.cache_hash)
    for kind in BINARIES:
        path = folder / f"{name}.{kind}"
        if path.is_file():
            return path.read_bytes()
    raise FileNotFoundError(f"{name} is not in Triton's cache any more")


def _function_handle(loaded: Any) -> int:
    function = getattr(loaded, "function", None)
    return function if isinstance(function, int) else 0


def _plain_name(name: str) -> str:
    for suffix in _SYMBOL_SUFFIXES:
        name = name.removesuffix(suffix)
    return name
