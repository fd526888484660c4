"""Runs the kernels of this folder on the CPU and detects their bugs; see BUILD.md.

clang compiles a kernel for the CPU, and it runs thread by thread. A checked run tests every memory access for races,
bounds and unwritten LDS; errors name the line. An unchecked run is several times faster, but a bug may end the process.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernels.hip.emulator_objects import (
    CACHE,
    EmulatedGpu,
    EmulationError,
    EmulatorObject,
    SourceLines,
    compile_emulated,
    emulated_gpu_of,
    missing_tools,
)
from kernels.hip.sources import HipKernel
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

__all__ = ["EMULATOR_FLOPS_MAX", "EmulatedKernel", "EmulationError", "LdsAccess", "load", "missing_emulator"]

EMULATOR_FLOPS_MAX = 5e7
"""Useful floating-point operations of a case that a checked kernel of this folder does in about a second."""

MAX_THREADS = 1024
_ORDERS = {"forward": 0, "reverse": 1, "shuffled": 2}
_POINTER, _WRITABLE = 256, 512
_DTYPES = {"f": ("float32",), "i": ("int32",), "b": ("uint8", "int8", "bool")}


class _Region(ctypes.Structure):
    """`Region` of emulated/state.h."""

    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("writable", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
    )


class _Argument(ctypes.Structure):
    """`Argument` of emulated/state.h."""

    _fields_ = (("value", ctypes.c_int64), ("region", ctypes.c_int64))


_SAME_PLACE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)


class LdsAccess(ctypes.Structure):
    """`LdsAccess` of emulated/state.h: one access of one thread to LDS.

    block, thread   who
    place           of the call in the object; equal for the threads of one instruction
    offset, bytes   where in the LDS variables, or in dynamic LDS
    writes          1 or 0
    """

    _fields_ = tuple((name, ctypes.c_uint32) for name in ("block", "thread", "place", "offset", "bytes", "writes"))


class _EmulatedLaunch(ctypes.Structure):
    """`Launch` of emulated/state.h."""

    _fields_ = (
        ("grid", ctypes.c_int * 3),
        ("threads", ctypes.c_int),
        ("wave", ctypes.c_int),
        ("lds_bytes", ctypes.c_int),
        ("order", ctypes.c_int),
        ("seed", ctypes.c_uint32),
        ("checked", ctypes.c_int),
        ("region_count", ctypes.c_int),
        ("argument_count", ctypes.c_int),
        ("unused", ctypes.c_int),
        ("regions", ctypes.POINTER(_Region)),
        ("arguments", ctypes.POINTER(_Argument)),
        ("same_place", _SAME_PLACE),
        ("places", ctypes.c_uint64 * 3),
        ("lds_accesses", ctypes.POINTER(LdsAccess)),
        ("lds_room", ctypes.c_uint64),
        ("lds_count", ctypes.c_uint64),
        ("traffic_bytes", ctypes.c_uint64),
        ("message", ctypes.c_char * 1024),
    )


def load(
    kernel: HipKernel, *, arch: str | None = None, order: str = "forward", checked: bool = True, cache: Path = CACHE
) -> EmulatedKernel:
    """Compiles the kernel for the CPU and returns it ready to be called.

    arch      whose wave size and matrix instructions are imitated, e.g. 'gfx942', 'gfx1100', 'gfx1201', 'sm_90'; None:
              what ATTNPERF_HIP_EMULATE names, else gfx942
    order     of blocks, waves and lanes: 'forward', 'reverse', 'shuffled', or 'shuffled-N' with a seed
    checked   whether accesses are checked

    Raises EmulationError for a kernel that does not compile, UsageError for an `arch` or `order` that does not exist,
    ToolMissingError without a clang.
    """
    face, turns = emulated_gpu_of(arch), _parse_order(order)
    compiled = compile_emulated(kernel, face, checked, cache)
    return EmulatedKernel(kernel, face, turns, checked, _load_library(compiled))


def missing_emulator() -> list[str]:
    """Returns why no kernel can be emulated here and what to install; empty if kernels can be emulated."""
    return missing_tools()


class EmulatedKernel:
    """A kernel that runs on the CPU; made by `load`.

    traffic_bytes   of tensors that the threads of the last checked launch read and wrote, each thread's own counted
    lds_room        most accesses to LDS that a checked launch records; 0 unless set
    lds_accesses    those of the last launch, in the order in which they happened
    """

    def __init__(
        self, kernel: HipKernel, face: EmulatedGpu, turns: tuple[int, int], checked: bool, library: _Library
    ) -> None:
        self._kernel, self._face, self._turns, self._checked, self._library = kernel, face, turns, checked, library
        self.traffic_bytes = 0
        self.lds_room = 0
        self.lds_accesses: Sequence[LdsAccess] = ()
        if kernel.threads != library.threads or not 0 < kernel.threads <= MAX_THREADS:
            raise EmulationError(
                f"{kernel.function} of {kernel.file} is KERNEL({library.threads}), and is launched with "
                f"{kernel.threads} threads; both must be the same, of 1 to {MAX_THREADS}"
            )

    def __call__(self, grid: tuple[int, int, int], *arguments: torch.Tensor | int) -> None:
        """Runs all blocks of `grid` (x, y, z). Raises EmulationError for wrong arguments, and for a bug, with its
        line."""
        if len(grid) != 3 or min(grid) < 1 or math.prod(grid) >= 2**31:
            raise EmulationError(
                f"{self._kernel.function}: a grid is three numbers from 1 on, less than 2^31 blocks, not {grid}"
            )
        self._check_arguments(arguments)
        regions, prepared = self._map_memory(arguments)
        launch = _EmulatedLaunch(
            (ctypes.c_int * 3)(*grid), self._kernel.threads, self._face.wave, self._kernel.lds_bytes, *self._turns,
            int(self._checked), len(regions), len(prepared), 0, (_Region * len(regions))(*regions),
            (_Argument * len(prepared))(*prepared), self._library.same_place,
        )  # fmt: skip
        recorded = (LdsAccess * self.lds_room)()
        launch.lds_accesses, launch.lds_room = recorded, self.lds_room
        self._library.run(launch)
        self.lds_accesses = recorded[: int(launch.lds_count)]
        self.traffic_bytes = int(launch.traffic_bytes)

    def _check_arguments(self, arguments: Sequence[torch.Tensor | int]) -> None:
        codes, names = self._library.codes, self._library.parameters
        if len(arguments) != len(codes):
            raise EmulationError(
                f"{self._kernel.function} takes {len(codes)} arguments ({', '.join(names)}), not {len(arguments)}"
            )
        for code, name, argument in zip(codes, names, arguments, strict=True):
            problem = self._integer_problem(argument) if not code & _POINTER else self._tensor_problem(code, argument)
            if problem:
                raise EmulationError(f"{self._kernel.function}: argument {name!r} {problem}")

    @staticmethod
    def _integer_problem(argument: torch.Tensor | int) -> str:
        if isinstance(argument, bool) or not isinstance(argument, int):
            return f"must be a 32-bit integer, got {type(argument).__name__}"
        return "" if -(2**31) <= argument < 2**31 else f"must be a 32-bit integer, got {argument}"

    def _tensor_problem(self, code: int, argument: torch.Tensor | int) -> str:
        """Returns why the argument cannot be passed for a pointer parameter; '' if it can. `code` describes the
        parameter's type."""
        if isinstance(argument, int):
            return f"must be a CPU tensor, got the number {argument}"
        if argument.device.type != "cpu":
            return f"must be a CPU tensor for the emulator, got one on {argument.device}; call .cpu() on it"
        if not argument.is_contiguous():
            return f"is not contiguous: shape {tuple(argument.shape)}, strides {argument.stride()}; use .contiguous()"
        letter = chr(code & 255)
        bf16 = self._kernel.defines.get("ELEMENT_BF16", "0") != "0"
        wanted = ("bfloat16" if bf16 else "float16",) if letter == "e" else _DTYPES.get(letter, ())
        dtype = str(argument.dtype).removeprefix("torch.")
        return f"must be of dtype {' or '.join(wanted)}, got {dtype}" if wanted and dtype not in wanted else ""

    def _map_memory(self, arguments: Sequence[torch.Tensor | int]) -> tuple[list[_Region], list[_Argument]]:
        """Returns (the tensors' memory regions, overlapping ones merged; the arguments as the kernel takes them)."""
        spans = []
        for code, name, argument in zip(self._library.codes, self._library.parameters, arguments, strict=True):
            if not isinstance(argument, int):
                begin = argument.data_ptr()
                spans.append((begin, begin + argument.numel() * argument.element_size(), bool(code & _WRITABLE), name))
        merged: list[tuple[int, int, bool, str]] = []
        for begin, end, writable, name in sorted(spans):
            if merged and begin < merged[-1][1]:
                first, last, before, names = merged[-1]
                merged[-1] = (first, max(last, end), before or writable, f"{names} = {name}")
            else:
                merged.append((begin, end, writable, name))
        prepared = []
        for argument in arguments:
            if isinstance(argument, int):
                prepared.append(_Argument(argument, -1))
            else:
                address = argument.data_ptr()
                index = max(i for i, span in enumerate(merged) if span[0] <= address)
                prepared.append(_Argument(address - merged[index][0], index))
        regions = [
            _Region(begin, end - begin, int(writable), 0, name.encode()) for begin, end, writable, name in merged
        ]
        return regions, prepared


class _Library:
    """A loaded object: one kernel with a runtime of its own, which runs one launch at a time."""

    def __init__(self, compiled: EmulatorObject) -> None:
        with tempfile.NamedTemporaryFile(prefix="attnperf-emulator-", suffix=".so") as file:
            file.write(compiled.data)
            file.flush()
            loaded = ctypes.CDLL(file.name)
        self.threads = int(loaded.emulated_threads())
        codes = itertools.takewhile(lambda code: code >= 0, map(loaded.emulated_argument, itertools.count()))
        self.codes: tuple[int, ...] = tuple(codes)
        self.parameters = compiled.parameters
        self._launch = loaded.emulated_launch
        self._lock = threading.Lock()
        self._lines = SourceLines(compiled.data)
        self.same_place = _SAME_PLACE(self._lines.is_same_position)

    def run(self, launch: _EmulatedLaunch) -> None:
        """Runs one launch to its end. Raises EmulationError with the source line for a bug that it detects, and if
        memory is short."""
        with self._lock:
            status = self._launch(ctypes.byref(launch))
        if status == 2:
            raise EmulationError("the emulator cannot get memory for stacks and shadow memory; use smaller tensors")
        if status:
            lines, (first, second, variable) = self._lines, launch.places
            message = launch.message.decode()
            message = message.replace("@1", lines.format_position(second)) if second else message
            message = message.replace("@2", lines.find_variable(variable)) if variable else message
            raise EmulationError(f"{lines.format_position(first)}: {message}")


_LIBRARIES: dict[str, _Library] = {}
_LOADING = threading.Lock()


def _load_library(compiled: EmulatorObject) -> _Library:
    """Returns the loaded object; loads each only once, because dlopen keeps it until the process ends."""
    with _LOADING:
        if compiled.key not in _LIBRARIES:
            _LIBRARIES[compiled.key] = _Library(compiled)
        return _LIBRARIES[compiled.key]


@functools.cache
def _parse_order(order: str) -> tuple[int, int]:
    """Returns (number of the order in _ORDERS, seed), e.g. (2, 5) for 'shuffled-5'. Raises UsageError if unknown."""
    name, dash, seed = order.partition("-")
    if name not in _ORDERS or (dash and (name != "shuffled" or not seed.isdecimal())):
        raise UsageError(
            f"unknown order {order!r}: it is 'forward', 'reverse', 'shuffled' or 'shuffled-N' with a seed N"
        )
    return _ORDERS[name], int(seed or 0)
