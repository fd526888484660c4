"""Which compiled kernels a case launches, with their machine code, and which launch ran which of them.

A graph and a profiler name kernels, and one name may stand for many: an autotuner's candidates, or the versions of one
source for other shapes. So launchers are watched while a case is prepared and checked, never while it is timed, and
what they loaded is kept. A launch is identified by the driver's handle of its function, or else by name, threads and
shared memory where only one loaded object fits them; what fits several is not known.
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
"""A larger object is left out: it would travel from every worker. Compiled attention kernels take 0.02 to 1 MiB."""

OBJECT_ID_DIGITS = 32
LOADED_MOST = 8
"""Objects that are sent before a case is timed; an autotuner tries dozens, of which one runs."""

UNKNOWN_KEY = "machine_code"
"""Entry of a case's configuration that says why the code of some kernel is not known, where there is a reason."""

BINARIES = ("cubin", "hsaco")
"""What Triton calls the object of a kernel, on NVIDIA and AMD, in `CompiledKernel.asm` and as a file's suffix."""

TRITON = ("triton.runtime.jit", "JITFunction")
COMPILED = ("triton.compiler.compiler", "CompiledKernel")
"""`kernel[grid](...)` launches through the first; what `kernel.warmup(...)` gave is launched through the second."""

_SYMBOL_SUFFIXES = (" [clone .kd]", ".kd")
"""What ROCm's tools put behind a kernel's name: they name its descriptor."""


@dataclass(frozen=True)
class WatchedKernel:
    """A kernel that was launched while a case was watched.

    data        its code object; empty where that is not known, which makes launches that fit it unknown, too
    threads     of a block
    function    the driver's handle (CUfunction, hipFunction_t); 0 where it is not known
    """

    name: str
    data: bytes = field(repr=False)
    threads: int
    dynamic_lds_bytes: int
    static_lds_bytes: int = 0
    function: int = 0

    @functools.cached_property
    def object_id(self) -> str:
        """The first 32 hex digits of the SHA-256 of the object; '' where it is not known."""
        return hashlib.sha256(self.data).hexdigest()[:OBJECT_ID_DIGITS] if self.data else ""

    def has_name_of(self, launch: Launch) -> bool:
        """Whether a launch was one of a kernel of this name, with as many threads in a block."""
        threads = math.prod(launch.block) if launch.block else 0
        return launch.kind == "kernel" and _plain_name(launch.name) == self.name and threads == self.threads

    def is_kernel_of(self, launch: Launch) -> bool:
        """Whether its shared memory is this kernel's, too: graphs count the static part, ROCm's profiler does not."""
        shared = (self.dynamic_lds_bytes, self.dynamic_lds_bytes + self.static_lds_bytes)
        return self.has_name_of(launch) and launch.shared_bytes in shared


class RanCode:
    """Compiled kernels that one case launched."""

    def __init__(self) -> None:
        self._kernels: dict[tuple[Any, ...], WatchedKernel] = {}
        self._held: dict[int, Any] = {}
        self._unknown = ""

    def add(self, kernel: WatchedKernel) -> None:
        """Keep a kernel; of one whose object is too large its name and block only."""
        if len(kernel.data) > OBJECT_BYTES_MOST:
            self._unknown = (
                f"the object of {kernel.name} has {len(kernel.data)} bytes and was left out, being larger than "
                f"{OBJECT_BYTES_MOST}"
            )
            kernel = replace(kernel, data=b"")
        shape = (kernel.threads, kernel.dynamic_lds_bytes, kernel.static_lds_bytes)
        self._kernels.setdefault((kernel.name, kernel.object_id, kernel.function, *shape), kernel)

    def record_launched(self, launched: Any, read: Callable[[], WatchedKernel]) -> None:
        """Keep what `read` gives of something that was launched, asked once for each.

        What it raises is kept as the reason for what is not known: a case must not fail.
        """
        if id(launched) in self._held:
            return
        self._held[id(launched)] = launched  # its number must not become another's while it is told apart by it
        try:
            self.add(read())
        except Exception as error:  # internals of another version of Triton or torch
            first = (str(error).splitlines() or [""])[0]
            self._unknown = f"{type(error).__name__}: {first}"

    def release_launchers(self) -> None:
        """Hold no launcher's object any longer: only their code is needed."""
        self._held.clear()

    def identify_launches(self, launches: Iterable[Launch], functions: Sequence[int] = ()) -> tuple[Launch, ...]:
        """The launches, those of kernels that were watched with their object's id.

        functions   the driver's handle of each, 0 where it has none; empty where nobody knows
        """
        every = tuple(launches)
        handles = functions or (0,) * len(every)
        pairs = list(zip(every, handles, strict=True))
        known = {pair: self._find_object_id(*pair) for pair in set(pairs)}  # a graph holds thousands of equal launches
        return tuple(replace(pair[0], object_id=known[pair]) for pair in pairs)

    def encode_objects(self, launches: Iterable[Launch]) -> dict[str, str]:
        """The objects of these launches by id, each as base64 of its zlib-compressed bytes."""
        wanted = {launch.object_id for launch in launches} - {""}
        return {
            kernel.object_id: _encode_object(kernel) for kernel in self._kernels.values() if kernel.object_id in wanted
        }

    def list_kernel_objects(self) -> tuple[KernelObject, ...]:
        """The `LOADED_MOST` kernels that were loaded last, each with its object."""
        last = {(kernel.name, kernel.object_id): kernel for kernel in self._kernels.values() if kernel.data}
        kernels = list(last.values())[-LOADED_MOST:]
        return tuple(KernelObject(kernel.name, kernel.threads, _encode_object(kernel)) for kernel in kernels)

    def build_unknown_entry(self, launches: Iterable[Launch]) -> dict[str, str]:
        """Why the code of one of these is not known, as an entry of the case's configuration; empty without a reason.

        That a kernel was launched by nobody who was watched is no reason: most of a library's are.
        """
        missing = any(launch.kind == "kernel" and not launch.object_id for launch in launches)
        return {UNKNOWN_KEY: f"unknown: {self._unknown}"} if missing and self._unknown else {}

    def _find_object_id(self, launch: Launch, function: int) -> str:
        """'' where no kernel fits, or several of different code do."""
        fitting = [kernel for kernel in self._kernels.values() if kernel.is_kernel_of(launch)]
        if function:
            # Handles are used again after a module is unloaded, so that a handle alone proves nothing.
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
"""Cases that are being prepared or checked; at most one, but for tests."""


def record_kernel(
    name: str,
    object_bytes: bytes,
    threads: int,
    dynamic_lds_bytes: int,
    *,
    static_lds_bytes: int = 0,
    function: int = 0,
) -> None:
    """Say that a kernel is launched; for launchers that are not Triton's. Does nothing while nobody watches.

    object_bytes   the code object that it was loaded from
    threads        of a block
    function       the driver's handle, where the launcher has one
    """
    kernel = WatchedKernel(name, object_bytes, threads, dynamic_lds_bytes, static_lds_bytes, function)
    for ran in _watching:
        ran.add(kernel)


@contextlib.contextmanager
def record_code(ran: RanCode) -> Iterator[None]:
    """Add to `ran` what is launched until the context ends; nothing is imported, and nothing is changed.

    Seen are Triton's own launches, kernels that Inductor wrote, and what `note` is told.
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
    """A `triton.compiler.CompiledKernel`, of Triton 3.3 to 3.9."""
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
    """What a `CachingAutotuner` launches: Triton's object, or one that torch loads by itself (read from torch 2.13).

    A launcher is a function written at run time: what it launches is a global of it.
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
    """The file that torch's own launcher loaded: it stays in Triton's cache, under the hash of what it was made from.

    Raises FileNotFoundError where it is gone.
    """
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
