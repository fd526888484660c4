"""How a kernel starts: its descriptor, and the layout of its arguments in the kernel argument segment.

Source: LLVM, "User Guide for AMDGPU Backend": kernel descriptor, initial kernel execution state, code object metadata.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pytest_attnperf.codeobject.elf import Elf
from pytest_attnperf.errors import CodeObjectError, UsageError

Size3 = tuple[int, int, int]

_DESCRIPTOR_BYTES = 64
_SEGMENT_UNIT = 16
_PRELOAD_PROLOGUE_BYTES = 256
"""Code at the entry that loads what hardware with preloading has loaded: such hardware starts behind it."""

_FLOAT_MODE = 0xF0
"""FLOAT_ROUND_MODE and FLOAT_DENORM_MODE of the descriptor, bits 12 to 19 of COMPUTE_PGM_RSRC1."""

USER_REGISTERS = (
    ("private segment buffer", 4), ("dispatch packet", 2), ("queue", 2), ("kernel arguments", 2), ("dispatch id", 2),
    ("flat scratch", 2), ("private segment size", 1),
)  # fmt: skip
"""What user registers can hold, in the order of the descriptor's bits and of the registers, and how many each takes."""

_DISPATCH_PACKET = struct.Struct("<HHHHHHIIIIIQQQQ")
"""HSA 1.2, `hsa_kernel_dispatch_packet_t`: header, dimensions, threads of a workgroup, of the grid, sizes, pointers."""


class KernelArgument(msgspec.Struct, frozen=True):
    """One argument in the metadata: where it lies in the segment, and what it is."""

    offset: int = msgspec.field(name=".offset")
    size: int = msgspec.field(name=".size")
    value_kind: str = msgspec.field(name=".value_kind")
    name: str = msgspec.field(name=".name", default="")


class _KernelArguments(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name=".name")
    args: list[KernelArgument] = msgspec.field(name=".args", default_factory=list)


class _Metadata(msgspec.Struct, frozen=True):
    kernels: list[_KernelArguments] = msgspec.field(name="amdhsa.kernels")


@dataclass(frozen=True)
class KernelStart:
    """What the command processor does before the first instruction.

    entry            address of the first instruction that runs
    user_sgprs       scalar registers that are set before those of the workgroup
    asked            names of `USER_REGISTERS` that the kernel asks for, in order
    preload          (first word, words) of the arguments that are copied into the next ones
    workgroup_ids    which of x, y, z follow
    arguments        explicit and hidden ones, in the order of the metadata
    private_bytes    of scratch, for each lane
    wave_registers   whether a register with sizes of the workgroup follows those, and one with the wave's offset in
                     scratch (before gfx942)
    """

    entry: int
    user_sgprs: int
    asked: tuple[str, ...]
    preload: tuple[int, int]
    workgroup_ids: tuple[bool, bool, bool]
    arguments: tuple[KernelArgument, ...]
    private_bytes: int = 0
    wave_registers: tuple[bool, bool] = (False, False)


def read_start(elf: Elf, name: str) -> KernelStart:
    """Returns how the kernel `name` starts. Raises CodeObjectError for metadata that is not as documented, and for a
    kernel that starts with other rounding or other denormals than are implemented."""
    symbol = next((one for one in elf.symbols if one.name == f"{name}.kd"), None)
    if symbol is None:
        raise CodeObjectError(f"{elf.source}: has no descriptor {name}.kd; was it stripped?")
    content = elf.read_code(symbol.section, symbol.address, _DESCRIPTOR_BYTES)
    private_bytes, entry_offset = struct.unpack_from("<I", content, 4)[0], struct.unpack_from("<q", content, 16)[0]
    resources, properties, preload = struct.unpack_from("<IHH", content, 52)
    mode = struct.unpack_from("<I", content, 48)[0] >> 12 & 0xFF
    if mode != _FLOAT_MODE:
        raise CodeObjectError(
            f"{elf.source}: {name} starts with the mode {mode:#x} of rounding and denormals; only {_FLOAT_MODE:#x}, "
            "round to nearest even and denormals kept, is implemented"
        )
    words, first = preload & 0x7F, preload >> 7
    entry = symbol.address + entry_offset + (_PRELOAD_PROLOGUE_BYTES if words else 0)
    return KernelStart(
        entry,
        resources >> 1 & 0x1F,
        tuple(name for bit, (name, _) in enumerate(USER_REGISTERS) if properties >> bit & 1),
        (first, words),
        (bool(resources >> 7 & 1), bool(resources >> 8 & 1), bool(resources >> 9 & 1)),
        _read_arguments(elf, name),
        private_bytes,
        (bool(resources >> 10 & 1), bool(resources & 1)),
    )


def _read_arguments(elf: Elf, name: str) -> tuple[KernelArgument, ...]:
    for note in elf.read_notes():
        if (note.owner, note.kind) == ("AMDGPU", 32):
            try:
                found = msgspec.msgpack.decode(note.content, type=_Metadata).kernels
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise CodeObjectError(f"{elf.source}: the arguments in its metadata cannot be read: {error}") from error
            return next((tuple(one.args) for one in found if one.name == name), ())
    return ()


def lay_out_arguments(start: KernelStart, values: Sequence[int | float], grid: Size3, block: Size3, size: int) -> bytes:
    """Returns the kernel argument segment: explicit values in order (an address for a buffer), and hidden ones.

    Unset bytes are zeros. The segment ends at a multiple of 16 bytes, up to which compilers read beyond the last
    argument. Raises UsageError for a wrong number of values or one that does not
    fit, CodeObjectError for a hidden argument that is not known.
    """
    content = bytearray(max(-(-size // _SEGMENT_UNIT) * _SEGMENT_UNIT, _SEGMENT_UNIT))
    explicit = [one for one in start.arguments if not one.value_kind.startswith("hidden_")]
    if len(values) > len(explicit):
        raise UsageError(f"{len(values)} arguments are given, and the kernel takes {len(explicit)}")
    # Triton appends pointers to scratch memory, which a kernel that needs none never reads.
    padded = [*values, *[0] * (len(explicit) - len(values))]
    for place, (argument, value) in enumerate(zip(explicit, padded, strict=True)):
        content[argument.offset : argument.offset + argument.size] = _pack(argument, value, place)
    hidden = _hidden_values(grid, block)
    for argument in start.arguments:
        if argument.value_kind.startswith("hidden_"):
            if argument.value_kind not in hidden:
                if argument.value_kind in _HIDDEN_POINTERS:
                    continue
                raise CodeObjectError(f"the hidden argument {argument.value_kind} is not known")
            packed = hidden[argument.value_kind].to_bytes(argument.size, "little")
            content[argument.offset : argument.offset + argument.size] = packed
    return bytes(content)


def make_dispatch_packet(grid: Size3, block: Size3, kernarg: int, lds_bytes: int) -> bytes:
    """Returns the packet that a launch puts into a queue; its handles of the kernel and of a signal are 0."""
    threads = [blocks * each for blocks, each in zip(grid, block, strict=True)]
    return _DISPATCH_PACKET.pack(0, 3, *block, 0, *threads, 0, lds_bytes, 0, kernarg, 0, 0)


_HIDDEN_POINTERS = frozenset(
    f"hidden_{name}"
    for name in (
        "none", "printf_buffer", "hostcall_buffer", "multigrid_sync_arg", "heap_v1", "default_queue",
        "completion_action", "private_base", "shared_base", "queue_ptr", "dynamic_lds_size",
    )
)  # fmt: skip
"""Zero here: a kernel that reads through one accesses an address near no buffer, and that is reported."""


def _hidden_values(grid: Size3, block: Size3) -> Mapping[str, int]:
    values: dict[str, int] = {"hidden_grid_dims": 3}
    for axis, blocks, threads in zip("xyz", grid, block, strict=True):
        values |= {f"hidden_block_count_{axis}": blocks, f"hidden_group_size_{axis}": threads}
        values |= {f"hidden_remainder_{axis}": 0, f"hidden_global_offset_{axis}": 0}
    return values


def _pack(argument: KernelArgument, value: int | float, place: int) -> bytes:
    try:
        if isinstance(value, float):
            return struct.pack({2: "<e", 4: "<f", 8: "<d"}[argument.size], value)
        return int(value).to_bytes(argument.size, "little", signed=value < 0)
    except (KeyError, OverflowError, struct.error) as error:
        raise UsageError(
            f"argument {place + 1} is {value!r}, which does not fit its {argument.size} bytes ({error})"
        ) from error
