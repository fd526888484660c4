"""Launches a compiled AMD kernel on CPU tensors by interpreting its machine code: what a launch on a GPU would do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_attnperf.errors import CodeObjectError, UsageError

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.isa.launch import Execution
    from pytest_attnperf.isa.memory import Array

Passed: TypeAlias = "torch.Tensor | Array | int | float | None"
"""A tensor on the CPU or a numpy array (a pointer to its first element), a number, or a null pointer."""


def execute(
    code_object: bytes | str | Path,
    grid: Sequence[int],
    block: Sequence[int],
    arguments: Sequence[Passed],
    *,
    kernel: str = "",
    outputs: Sequence[int] = (),
    dynamic_lds_bytes: int = 0,
    seed: int = 0,
    record: bool = False,
    aligned: bool = True,
) -> Execution:
    """Launches a kernel of an AMD code object, whoever compiled it, and changes the tensors that it writes.

    code_object  its bytes, or the path of a .hsaco, .co, .o or offload bundle
    grid, block  workgroups, and threads of one, in x, y, z; missing ones are 1
    arguments    in the kernel's order; views of one storage share it
    kernel       its name, where the object has several
    outputs      numbers of arguments that hold nothing yet: reading one before it was written is a fault, and what was
                 never written holds bytes of 0xff afterwards, NaN as a float
    dynamic_lds_bytes   LDS that the launch adds
    seed         of the order in which waves run
    record       counts what each instruction does, for `Execution.record`; takes longer
    aligned      whether a misaligned access is a fault

    Needs numpy and a disassembler of LLVM. Raises ExecutionFault for what the kernel does wrong (races, reads of what
    is unwritten or in flight, accesses out of bounds, endless loops), UnknownInstructionError for an instruction that
    is not implemented, UsageError for arguments that it cannot take, CodeObjectError for an object that cannot be read.
    """
    from pytest_attnperf.isa import launch

    content = code_object if isinstance(code_object, bytes) else _read_object(Path(code_object))
    passed, memories = pass_arguments(arguments, outputs)
    execution = launch.execute(
        content,
        kernel,
        complete_size("grid", grid),
        complete_size("block", block),
        passed,
        dynamic_lds_bytes=dynamic_lds_bytes,
        seed=seed,
        record=record,
        aligned=aligned,
    )
    copy_back(execution, memories)
    return execution


def _read_object(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CodeObjectError(f"{path} cannot be read: {error}") from error


def complete_size(name: str, size: Sequence[int]) -> tuple[int, int, int]:
    """Returns a size in x, y and z. Raises UsageError for none, or more than three."""
    if not 1 <= len(size) <= 3:
        raise UsageError(f"{name} is {tuple(size)}; it has one to three numbers, in x, y and z")
    x, y, z = (*size, 1, 1)[:3]
    return int(x), int(y), int(z)


def pass_arguments(arguments: Sequence[Passed], outputs: Sequence[int] = ()) -> tuple[list[Any], dict[int, Array]]:
    """Returns the arguments as `isa.launch.execute` takes them, and number of an argument -> its memory as bytes, once
    for each storage. Raises UsageError for a tensor that is not on the CPU, an array that is not contiguous, and an
    output that is a view, or shares its storage with another argument."""
    from pytest_attnperf.isa.launch import Inside, Output

    memories: dict[int, Array] = {}
    first: dict[int, int] = {}
    passed: list[Any] = []
    for place, argument in enumerate(arguments):
        if argument is None or isinstance(argument, (int, float)):
            passed.append(argument)
            continue
        memory, key, offset = _find_memory(argument, place)
        name = f"{tuple(argument.shape)} of {str(argument.dtype).removeprefix('torch.')}"
        shared = key in first and len(memory) and (place in outputs or first[key] in outputs)
        if shared or (place in outputs and offset):
            raise UsageError(f"argument {place + 1} ({name}) shares memory that is not all an output")
        if key not in first or not len(memory):
            first[key] = place
            memories[place] = memory
        passed.append(Output(memory, name) if place in outputs else Inside(memories[first[key]], offset, name))
    return passed, memories


def copy_back(execution: Execution, memories: dict[int, Array]) -> None:
    """Copies what a launch left in memory to the memory of its arguments."""
    for place, memory in memories.items():
        memory[:] = execution.arrays[place]


def _find_memory(argument: Any, place: int) -> tuple[Array, int, int]:
    """Returns the bytes of a tensor's storage, its address, and the byte at which the tensor begins."""
    if hasattr(argument, "untyped_storage"):
        import torch

        if argument.device.type != "cpu":
            raise UsageError(f"argument {place + 1} is on {argument.device}; the interpreter takes tensors on the CPU")
        storage = argument.untyped_storage()
        memory = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,)).numpy()
        return memory, storage.data_ptr(), int(argument.storage_offset()) * argument.element_size()
    if not hasattr(argument, "flags"):
        raise UsageError(f"argument {place + 1} is {argument!r}; it must be a tensor, a numpy array, a number or None")
    if not (argument.flags.c_contiguous and argument.flags.writeable):
        raise UsageError(f"argument {place + 1}, an array of {argument.shape}, must be contiguous and writable")
    memory = argument.reshape(math.prod(argument.shape)).view("u1")
    return memory, argument.__array_interface__["data"][0], 0
