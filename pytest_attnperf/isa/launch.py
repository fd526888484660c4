"""Launches a kernel of a code object: arguments, workgroups one after another, waves interleaved at barriers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pytest_attnperf.codeobject.elf import read_elf
from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.codeobject.objects import read_object, select_kernel
from pytest_attnperf.errors import CodeObjectError, UsageError
from pytest_attnperf.isa.faults import ExecutionFault, IsaError
from pytest_attnperf.isa.kernel_start import (
    USER_REGISTERS,
    KernelStart,
    Size3,
    lay_out_arguments,
    make_dispatch_packet,
    read_start,
)
from pytest_attnperf.isa.lds import Lds
from pytest_attnperf.isa.memory import Array, Buffer, GlobalMemory
from pytest_attnperf.isa.program import ARCHS, Program, list_instructions, make_program
from pytest_attnperf.isa.wave import FULL, LANES, Wave

INSTRUCTIONS_MOST = 5_000_000
"""Most instructions of one wave, by default: a loop that never ends is a fault."""

_THREADS_MOST = 1024


@dataclass(frozen=True)
class Output:
    """An argument that the kernel is to write: memory that holds NaN, and whose reading before a write is a fault.

    like   an array of its shape and dtype
    name   in messages
    """

    like: Array
    name: str = "output"


Argument: TypeAlias = "Array | Output | int | float | None"
"""A buffer that is copied in and out, one that only comes out, a number, or a null pointer."""


@dataclass(frozen=True)
class Execution:
    """What a launch did.

    arrays        the content of each buffer argument afterwards; None for numbers
    written       for each `Output`, which of its elements were written whole; None for other arguments
    instructions  executed by all waves
    """

    arrays: tuple[Array | None, ...]
    written: tuple[Array | None, ...]
    instructions: int

    @property
    def lane_instructions(self) -> int:
        """Instructions times lanes, active or not."""
        return self.instructions * LANES


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
) -> Execution:
    """Executes a kernel of an AMD code object on the CPU and returns its buffers.

    kernel      its name; '' means the only one
    grid, block workgroups, and threads of one, in x, y, z
    arguments   in the kernel's order
    seed        of the order in which waves of a workgroup run between barriers
    edit        changes the decoded instructions before they run, e.g. leaves a barrier out

    Raises UnknownInstructionError for an instruction that is not implemented, ExecutionFault for what the kernel does
    wrong, UsageError for arguments that it cannot take, CodeObjectError for an object that cannot be read.
    """
    contents = read_object(code_object, kernel or "the code object")
    if contents.arch not in ARCHS:
        raise CodeObjectError(f"{contents.arch} cannot be executed; {', '.join(ARCHS)} can")
    chosen = select_kernel(contents, kernel, "the code object")
    code = chosen.code
    _check_sizes(grid, block)
    start = read_start(read_elf(contents.elf, code.name), code.name)
    instructions = list_instructions(contents, chosen)
    program = make_program(edit(instructions) if edit else instructions)
    memory = GlobalMemory()
    buffers = [_add_buffer(memory, argument, place) for place, argument in enumerate(arguments)]
    values = [_argument_value(argument, buffer) for argument, buffer in zip(arguments, buffers, strict=True)]
    segment = lay_out_arguments(start, values, grid, block, code.kernarg_bytes)
    kernarg = memory.add("the kernel's arguments", len(segment), segment)
    lds_bytes = code.lds_static_bytes + dynamic_lds_bytes
    packet = make_dispatch_packet(grid, block, kernarg.base, lds_bytes)
    dispatch = memory.add("the dispatch packet", len(packet), packet)
    launch = _Launch(start, program, memory, kernarg, dispatch, block, lds_bytes, instructions_most)
    order = random.Random(seed)
    executed = 0
    with np.errstate(all="ignore"):
        for z in range(grid[2]):
            for y in range(grid[1]):
                for x in range(grid[0]):
                    executed += launch.run_workgroup((x, y, z), order)
    arrays = tuple(_read_back(argument, buffer) for argument, buffer in zip(arguments, buffers, strict=True))
    written = tuple(_read_written(argument, buffer) for argument, buffer in zip(arguments, buffers, strict=True))
    return Execution(arrays, written, executed)


@dataclass(frozen=True)
class _Launch:
    """A kernel with its arguments in memory, and the sizes of a workgroup."""

    start: KernelStart
    program: Program
    memory: GlobalMemory
    kernarg: Buffer
    dispatch: Buffer
    block: Size3
    lds_bytes: int
    instructions_most: int

    def run_workgroup(self, identity: Size3, order: random.Random) -> int:
        """Runs one workgroup to its end; returns the instructions that its waves executed."""
        lds = Lds(self.lds_bytes)
        threads = self.block[0] * self.block[1] * self.block[2]
        waves = [self._start_wave(number, threads, identity, lds) for number in range(-(-threads // LANES))]
        while running := [wave for wave in waves if not wave.ended]:
            order.shuffle(running)
            for wave in running:
                self._run_to_stop(wave)
            lds.pass_barrier()
        return sum(wave.executed for wave in waves)

    def _run_to_stop(self, wave: Wave) -> None:
        """Runs a wave to its next barrier or its end. Raises IsaError with the instruction that failed."""
        steps, limit = self.program.steps, self.instructions_most
        executed, index = wave.executed, wave.index
        try:
            while True:
                index = wave.index
                wave.index = index + 1
                executed += 1
                if steps[index](wave):
                    break
                if executed > limit:
                    raise ExecutionFault(f"the wave has executed {limit} instructions and has not ended")
        except IsaError as error:
            error.locate(self.program.instructions[index], wave.place)
            raise
        except IndexError:
            if index < len(steps):
                raise
            raise ExecutionFault("the wave runs beyond the kernel's last instruction") from None
        finally:
            wave.executed = executed

    def _start_wave(self, number: int, threads: int, identity: Size3, lds: Lds) -> Wave:
        wave = Wave(number, f"workgroup {identity}, wave {number}", self.memory, lds)
        wave.index = self.program.index_of(self.start.entry)
        lanes = np.arange(number * LANES, (number + 1) * LANES)
        wave.set_exec(FULL >> max(0, int(lanes[-1]) + 1 - threads))
        x, y = lanes % self.block[0], lanes // self.block[0] % self.block[1]
        z = lanes // (self.block[0] * self.block[1])
        wave.write_words(0, (x | y << 10 | z << 20).astype(np.uint32), FULL)
        self._set_scalars(wave, identity)
        return wave

    def _set_scalars(self, wave: Wave, identity: Size3) -> None:
        place = 0
        values = {"dispatch packet": self.dispatch.base, "kernel arguments": self.kernarg.base, "dispatch id": 0}
        for name, registers in USER_REGISTERS:
            if name in self.start.asked:
                # Queues and scratch stay unwritten: a kernel that uses them reads what nothing wrote.
                if name in values:
                    wave.write_scalar_pair(place, values[name])
                place += registers
        first, words = self.start.preload
        content = self.kernarg.data.view(np.uint32)
        for at in range(first, first + words):
            wave.write_scalar(place, int(content[at]))
            place += 1
        place = self.start.user_sgprs
        for enabled, value in zip(self.start.workgroup_ids, identity, strict=True):
            if enabled:
                wave.write_scalar(place, value)
                place += 1


def _check_sizes(grid: Size3, block: Size3) -> None:
    if min(*grid, *block) < 1 or block[0] * block[1] * block[2] > _THREADS_MOST:
        raise UsageError(
            f"the grid {grid} of workgroups {block} must have 1 or more in each direction, and at most "
            f"{_THREADS_MOST} threads in a workgroup"
        )


def _add_buffer(memory: GlobalMemory, argument: Argument, place: int) -> Buffer | None:
    if isinstance(argument, Output):
        return memory.add(f"argument {place + 1} ({argument.name})", argument.like.nbytes)
    if isinstance(argument, np.ndarray):
        return memory.add(f"argument {place + 1}", argument.nbytes, np.ascontiguousarray(argument).tobytes())
    return None


def _argument_value(argument: Argument, buffer: Buffer | None) -> int | float:
    if buffer is not None:
        return buffer.base
    if argument is None:
        return 0
    if isinstance(argument, (int, float)) and not isinstance(argument, bool):
        return argument
    raise UsageError(f"an argument is {argument!r}; it must be a numpy array, an Output, a number or None")


def _read_back(argument: Argument, buffer: Buffer | None) -> Array | None:
    if buffer is None:
        return None
    array: Any = argument.like if isinstance(argument, Output) else argument
    content: Array = np.frombuffer(buffer.read_bytes(), array.dtype).reshape(array.shape)
    return content


def _read_written(argument: Argument, buffer: Buffer | None) -> Array | None:
    if buffer is None or not isinstance(argument, Output):
        return None
    marks: Array = buffer.written[: buffer.size].reshape(*argument.like.shape, argument.like.itemsize)
    whole: Array = marks.min(axis=-1).astype(bool)
    return whole
