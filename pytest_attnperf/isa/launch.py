"""Launches a kernel of a code object: arguments, workgroups one after another, waves interleaved at barriers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from pytest_attnperf.codeobject.elf import read_elf
from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.codeobject.objects import read_object, select_kernel
from pytest_attnperf.errors import CodeObjectError, UsageError
from pytest_attnperf.isa.kernel_start import (
    KernelStart,
    Size3,
    lay_out_arguments,
    make_dispatch_packet,
    read_start,
)
from pytest_attnperf.isa.memory import Array, Buffer, GlobalMemory
from pytest_attnperf.isa.program import ARCHS, Program, list_instructions, make_program
from pytest_attnperf.isa.workgroup import KernelLaunch, Workgroup

INSTRUCTIONS_MOST = 5_000_000
"""Most instructions of one wave, by default: a loop that never ends is a fault."""

_THREADS_MOST = 1024
_RESIDENT_MOST = 64
"""Most workgroups that run at a time."""


@dataclass(frozen=True)
class Output:
    """An argument that the kernel is to write: memory that holds NaN, and whose reading before a write is a fault.

    like   an array of its shape and dtype
    name   in messages
    """

    like: Array
    name: str = "output"


@dataclass(frozen=True)
class Inside:
    """An argument that is an address within memory that other arguments may share: those with the same array do.

    memory   uint8 (bytes,), which all count as written
    offset   of the address, in bytes
    name     in messages
    """

    memory: Array
    offset: int
    name: str = "memory"


Argument: TypeAlias = "Array | Output | Inside | int | float | None"
"""A buffer that is copied in and out, one that only comes out, an address in shared memory, a number, or a null
pointer."""


@dataclass(frozen=True)
class Execution:
    """What a launch did.

    arrays        the content of each buffer argument afterwards, for `Inside` of all its memory; None for numbers
    written       for each `Output`, which of its elements were written whole; None for other arguments
    instructions  executed by all waves
    lanes         of a wave
    seconds       of the execution alone, without reading and disassembling the object
    """

    arrays: tuple[Array | None, ...]
    written: tuple[Array | None, ...]
    instructions: int
    lanes: int
    seconds: float

    @property
    def lane_instructions(self) -> int:
        """Instructions times lanes, active or not."""
        return self.instructions * self.lanes


def execute(
    code_object: bytes,
    kernel: str,
    grid: Size3,
    block: Size3,
    arguments: Sequence[Argument],
    *,
    dynamic_lds_bytes: int = 0,
    seed: int = 0,
    instructions_most: int = INSTRUCTIONS_MOST,
    edit: Callable[[tuple[Instruction, ...]], tuple[Instruction, ...]] | None = None,
    aligned: bool = True,
) -> Execution:
    """Executes a kernel of an AMD code object on the CPU and returns its buffers.

    kernel      its name; '' means the only one
    grid, block workgroups, and threads of one, in x, y, z
    arguments   in the kernel's order
    seed        of the order in which waves of a workgroup run between barriers
    edit        changes the decoded instructions before they run, e.g. leaves a barrier out
    aligned     whether an access of 2 bytes or more at an address that they (at most 4) do not divide is a fault;
                HSA's memory performs it (LLVM, "User Guide for AMDGPU Backend", unaligned-access-mode), and compilers
                use it for what the source says is unaligned

    Raises UnknownInstructionError for an instruction that is not implemented, ExecutionFault for what the kernel does
    wrong, UsageError for arguments that it cannot take, CodeObjectError for an object that cannot be read.
    """
    _check_sizes(grid, block)
    loaded = _load(code_object, kernel)
    program = loaded.program
    if edit:
        program = make_program(edit(program.instructions), loaded.arch, loaded.lanes)
    memory = GlobalMemory(aligned=aligned)
    buffers = _add_buffers(memory, arguments)
    values = [_argument_value(argument, buffer) for argument, buffer in zip(arguments, buffers, strict=True)]
    segment = lay_out_arguments(loaded.start, values, grid, block, loaded.kernarg_bytes)
    kernarg = memory.add("the kernel's arguments", len(segment), segment)
    lds_bytes = loaded.lds_bytes + dynamic_lds_bytes
    packet = make_dispatch_packet(grid, block, kernarg.base, lds_bytes)
    dispatch = memory.add("the dispatch packet", len(packet), packet)
    launch = KernelLaunch(
        loaded.start, program, memory, kernarg, dispatch, block, loaded.lanes, lds_bytes, instructions_most, loaded.arch
    )
    order = random.Random(seed)
    started = time.perf_counter()
    with np.errstate(all="ignore"):
        executed = _run_grid(launch, grid, order)
    seconds = time.perf_counter() - started
    arrays = tuple(_read_back(argument, buffer) for argument, buffer in zip(arguments, buffers, strict=True))
    written = tuple(_read_written(argument, buffer) for argument, buffer in zip(arguments, buffers, strict=True))
    return Execution(arrays, written, executed, loaded.lanes, seconds)


def _run_grid(launch: KernelLaunch, grid: Size3, order: random.Random) -> int:
    """Runs all workgroups; returns the instructions that they executed.

    One after another, in order of x, y, z: the next one starts early only where those that run wait for something, as
    persistent kernels do.
    """
    waiting = ((x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0]))
    resident: list[Workgroup] = []
    executed = 0
    while True:
        starting = next(waiting, None) if len(resident) < _RESIDENT_MOST else None
        if starting is None and not resident:
            return executed
        resident.extend([launch.start_workgroup(starting)] if starting else [])
        ended = [workgroup for workgroup in resident if launch.advance(workgroup, order)]
        executed += sum(workgroup.executed for workgroup in ended)
        resident = [workgroup for workgroup in resident if workgroup not in ended]


@dataclass(frozen=True)
class _Loaded:
    """What is read of a kernel, whatever it is launched with."""

    start: KernelStart
    program: Program
    kernarg_bytes: int
    lds_bytes: int
    arch: str
    lanes: int


@lru_cache(maxsize=16)
def _load(code_object: bytes, kernel: str) -> _Loaded:
    source = kernel or "the code object"
    contents = read_object(code_object, source)
    if contents.arch not in ARCHS:
        raise CodeObjectError(f"{source}: {contents.arch} cannot be executed; {', '.join(ARCHS)} can")
    chosen = select_kernel(contents, kernel, source)
    start = read_start(read_elf(contents.elf, source), chosen.code.name)
    code = chosen.code
    program = make_program(list_instructions(contents, chosen), contents.arch, code.wave_size)
    return _Loaded(start, program, code.kernarg_bytes, code.lds_static_bytes, contents.arch, code.wave_size)


def _check_sizes(grid: Size3, block: Size3) -> None:
    if min(*grid, *block) < 1 or block[0] * block[1] * block[2] > _THREADS_MOST:
        raise UsageError(
            f"the grid {grid} of workgroups {block} must have 1 or more in each direction, and at most "
            f"{_THREADS_MOST} threads in a workgroup"
        )


def _add_buffers(memory: GlobalMemory, arguments: Sequence[Argument]) -> list[Buffer | None]:
    """Returns the buffer of each argument, one for all that share memory; None for numbers."""
    shared: dict[int, Buffer] = {}
    found: list[Buffer | None] = []
    for place, argument in enumerate(arguments):
        if isinstance(argument, Inside):
            if id(argument.memory) not in shared:
                name = f"argument {place + 1} ({argument.name})"
                shared[id(argument.memory)] = memory.add(name, argument.memory.nbytes, argument.memory.tobytes())
            found.append(shared[id(argument.memory)])
        else:
            found.append(_add_buffer(memory, argument, place))
    return found


def _add_buffer(memory: GlobalMemory, argument: Argument, place: int) -> Buffer | None:
    if isinstance(argument, Output):
        return memory.add(f"argument {place + 1} ({argument.name})", argument.like.nbytes)
    if isinstance(argument, np.ndarray):
        return memory.add(f"argument {place + 1}", argument.nbytes, np.ascontiguousarray(argument).tobytes())
    return None


def _argument_value(argument: Argument, buffer: Buffer | None) -> int | float:
    if buffer is not None:
        return buffer.base + (argument.offset if isinstance(argument, Inside) else 0)
    if argument is None:
        return 0
    if isinstance(argument, (int, float)) and not isinstance(argument, bool):
        return argument
    raise UsageError(f"an argument is {argument!r}; it must be a numpy array, an Output, an Inside, a number or None")


def _read_back(argument: Argument, buffer: Buffer | None) -> Array | None:
    if buffer is None:
        return None
    array: Any = argument.like if isinstance(argument, Output) else argument
    array = argument.memory if isinstance(argument, Inside) else array
    content: Array = np.frombuffer(buffer.read_bytes(), array.dtype).reshape(array.shape)
    return content


def _read_written(argument: Argument, buffer: Buffer | None) -> Array | None:
    if buffer is None or not isinstance(argument, Output):
        return None
    marks: Array = buffer.written[: buffer.size].reshape(*argument.like.shape, argument.like.itemsize)
    whole: Array = marks.min(axis=-1).astype(bool)
    return whole
