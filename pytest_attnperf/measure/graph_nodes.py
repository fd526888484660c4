"""Reads what a captured CUDA graph holds: kernels with grid, block and shared memory, copies, memory sets, branches.

A profiler reports the same, but leaves its library in the process: on an H200 short kernels timed afterwards were 0.2
to 0.6 % slower (`benchmarks/profiler_residue.py`). Reading the timed graph costs nothing and names exactly what is
timed. The calls are from the CUDA driver API, chapter "Graph Management"; HIP's are not used, because no device was
available to test them.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records import Launch

if TYPE_CHECKING:
    import torch

_KERNEL, _MEMCPY, _MEMSET, _HOST, _CHILD, _EMPTY = 0, 1, 2, 3, 4, 5
"""Values of CUgraphNodeType."""

_WAITS = {6: "event wait", 7: "event record", 8: "semaphore signal", 9: "semaphore wait"}
_HOST_MEMORY, _DEVICE_MEMORY = 1, 2
"""Values of CUmemorytype."""

_MEMORY_TYPE_OF_POINTER = 2
_STATIC_SHARED_BYTES = 1
"""CU_POINTER_ATTRIBUTE_MEMORY_TYPE and CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES."""


class UnreadableGraphError(AttnperfError):
    """A graph's content cannot be read here; the message says why."""


@dataclass(frozen=True)
class GraphContent:
    """Every node that does work, in the order of capture, and whether any two of them may run in parallel.

    functions   the driver's handle (CUfunction) of each launch; 0 for what is no kernel, or has none
    """

    launches: tuple[Launch, ...]
    branches: bool
    functions: tuple[int, ...] = ()


class _KernelParams(ctypes.Structure):
    """Struct CUDA_KERNEL_NODE_PARAMS_v2 of the CUDA driver."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("params", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class _CopySide(ctypes.Structure):
    _fields_ = (
        ("offsets", ctypes.c_size_t * 4),
        ("memory_type", ctypes.c_int),
        ("host", ctypes.c_void_p),
        ("device", ctypes.c_void_p),
        ("array", ctypes.c_void_p),
        ("reserved", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class _CopyParams(ctypes.Structure):
    """Struct CUDA_MEMCPY3D of the CUDA driver."""

    _fields_ = (("source", _CopySide), ("target", _CopySide), ("extent", ctypes.c_size_t * 3))


class _SetParams(ctypes.Structure):
    """Struct CUDA_MEMSET_NODE_PARAMS of the CUDA driver."""

    _fields_ = (
        ("target", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element_bytes", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class _EdgeData(ctypes.Structure):
    """Struct CUgraphEdgeData of the CUDA driver."""

    _fields_ = (("ports_and_type", ctypes.c_ubyte * 8),)


def read_graph_content(graph: torch.cuda.CUDAGraph) -> GraphContent:
    """Reads the work in a graph that was captured with `keep_graph=True`.
    Raises UnreadableGraphError if torch is ROCm's or too old, or if the CUDA driver cannot read the graph."""
    handle = _graph_handle(graph)
    nodes = _list_nodes(handle)
    work = [launch for node in nodes if (launch := _read_launch(node)) is not None]
    launches, functions = tuple(launch for launch, _ in work), tuple(function for _, function in work)
    return GraphContent(launches, _has_branches(handle, nodes), functions)


def _graph_handle(graph: torch.cuda.CUDAGraph) -> ctypes.c_void_p:
    import torch

    if torch.version.hip is not None:
        raise UnreadableGraphError("the nodes of a graph are read through CUDA's driver, and this torch is ROCm's")
    raw = getattr(graph, "raw_cuda_graph", None)
    if raw is None:
        raise UnreadableGraphError(f"torch {torch.__version__} does not expose its graphs; 2.8 and later do")
    return ctypes.c_void_p(raw())


def _list_nodes(handle: ctypes.c_void_p) -> list[ctypes.c_void_p]:
    count = ctypes.c_size_t()
    _call_driver("cuGraphGetNodes", handle, None, ctypes.byref(count))
    if not count.value:  # the driver fails if the graph is empty
        return []
    nodes = (ctypes.c_void_p * count.value)()
    _call_driver("cuGraphGetNodes", handle, nodes, ctypes.byref(count))
    return [ctypes.c_void_p(node) for node in nodes]


def _read_launch(node: ctypes.c_void_p) -> tuple[Launch, int] | None:
    """Returns (the work of a node, its function's handle or 0); None for a node that only orders other nodes."""
    kind = ctypes.c_int()
    _call_driver("cuGraphNodeGetType", node, ctypes.byref(kind))
    if kind.value == _KERNEL:
        return _read_kernel(node)
    if kind.value == _EMPTY or kind.value in _WAITS:
        return None
    return _other_work(node, kind.value), 0


def _other_work(node: ctypes.c_void_p, kind: int) -> Launch:
    """Returns the copy, memory set or host function of a node that launches no kernel; `kind` is its CUgraphNodeType.
    Raises UnreadableGraphError for a graph within the graph."""
    if kind == _MEMCPY:
        return _read_copy(node)
    if kind == _MEMSET:
        params = _SetParams()
        _call_driver("cuGraphMemsetNodeGetParams", node, ctypes.byref(params))
        size = params.element_bytes * params.width * max(1, params.height)
        return Launch("Memset (Device)", "set", grid=(size,))
    if kind == _HOST:
        return Launch("host function", "host")
    if kind == _CHILD:
        raise UnreadableGraphError("the graph contains another graph, which is not read")
    return Launch(f"node of type {kind}", "other")


def _read_kernel(node: ctypes.c_void_p) -> tuple[Launch, int]:
    params = _KernelParams()
    _call_driver("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(params))
    name, static = _read_function(params.func, params.kern)
    shared = int(params.shared_bytes) + static
    return Launch(name, "kernel", tuple(params.grid), tuple(params.block), shared_bytes=shared), int(params.func or 0)


@functools.lru_cache(maxsize=4096)
def _read_function(func: int | None, kern: int | None) -> tuple[str, int]:
    """Returns (name, bytes of static shared memory) of a kernel."""
    import torch

    name, static = ctypes.c_char_p(), ctypes.c_int()
    if func:
        _call_driver("cuFuncGetName", ctypes.byref(name), ctypes.c_void_p(func))
        _call_driver(
            "cuFuncGetAttribute", ctypes.byref(static), ctypes.c_int(_STATIC_SHARED_BYTES), ctypes.c_void_p(func)
        )
    else:
        _call_driver("cuKernelGetName", ctypes.byref(name), ctypes.c_void_p(kern))
    mangled = (name.value or b"").decode(errors="replace")
    return str(torch._C._demangle(mangled)), static.value


def _read_copy(node: ctypes.c_void_p) -> Launch:
    params = _CopyParams()
    _call_driver("cuGraphMemcpyNodeGetParams", node, ctypes.byref(params))
    width, height, depth = params.extent
    letters = "".join(_side_letter(side) for side in (params.source, params.target))
    return Launch(f"Memcpy {letters[0]}to{letters[1]}", "copy", grid=(width * max(1, height) * max(1, depth),))


def _side_letter(side: Any) -> str:
    """Returns 'H' for host memory, 'D' for device memory."""
    if side.memory_type == _HOST_MEMORY:
        return "H"
    if side.memory_type == _DEVICE_MEMORY and not side.device:
        return "D"
    kind = ctypes.c_uint(_DEVICE_MEMORY)
    pointer = ctypes.c_uint64(side.device or side.host or 0)
    # Pageable memory has no attributes: memory that the driver does not know is the host's.
    known = _try_driver("cuPointerGetAttribute", ctypes.byref(kind), ctypes.c_int(_MEMORY_TYPE_OF_POINTER), pointer)
    return "D" if known and kind.value != _HOST_MEMORY else "H"


def _has_branches(handle: ctypes.c_void_p, nodes: list[ctypes.c_void_p]) -> bool:
    """Tells whether the graph's nodes are not a single chain, i.e. whether some of its work may run in parallel."""
    count = ctypes.c_size_t()
    # The second version, because the first fails on edges of programmatic dependent launches.
    _call_driver("cuGraphGetEdges_v2", handle, None, None, None, ctypes.byref(count))
    if not count.value:
        return len(nodes) > 1
    tails, heads = (ctypes.c_void_p * count.value)(), (ctypes.c_void_p * count.value)()
    _call_driver("cuGraphGetEdges_v2", handle, tails, heads, (_EdgeData * count.value)(), ctypes.byref(count))
    starts, ends = list(tails), list(heads)
    return count.value != len(nodes) - 1 or len(set(starts)) != len(starts) or len(set(ends)) != len(ends)


def _call_driver(name: str, *arguments: Any) -> None:
    if not _try_driver(name, *arguments):
        raise UnreadableGraphError(f"the CUDA driver's {name} failed on a captured graph")


def _try_driver(name: str, *arguments: Any) -> bool:
    function = getattr(_load_library(), name, None)
    if function is None:
        raise UnreadableGraphError(f"the CUDA driver has no {name}; it is older than CUDA 12.3")
    return int(function(*arguments)) == 0


@functools.cache
def _load_library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise UnreadableGraphError(f"the CUDA driver's library cannot be loaded: {error}") from error
