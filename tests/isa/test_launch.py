from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_attnperf.codeobject.building import build_object
from pytest_attnperf.codeobject.built import object_bytes
from pytest_attnperf.codeobject.elf import read_elf
from pytest_attnperf.codeobject.hip_toolchain import hip_reasons
from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.codeobject.objects import read_object
from pytest_attnperf.errors import CodeObjectError, UsageError
from pytest_attnperf.isa.faults import ExecutionFault, UnknownInstructionError
from pytest_attnperf.isa.launch import Argument, Execution, Inside, Output, execute
from pytest_attnperf.kernel_builds import HipSource, KernelBuild

REASONS = hip_reasons("gfx942")
pytestmark = pytest.mark.skipif(bool(REASONS), reason="; ".join(REASONS))

SOURCE = """
#define GLOBAL extern "C" __attribute__((global))
GLOBAL __attribute__((amdgpu_flat_work_group_size(1, 256)))
void places(int* out, const float* values, float factor, int count, short small) {
    const int x = __builtin_amdgcn_workitem_id_x(), y = __builtin_amdgcn_workitem_id_y();
    const int wide = __builtin_amdgcn_workgroup_id_x() * 32 + x;
    const int row = __builtin_amdgcn_workgroup_id_y() * 4 + y;
    if (wide < count) out[row * count + wide] = (int)(values[wide] * factor) + 1000 * row + small;
}
GLOBAL void forever(volatile __attribute__((address_space(1))) int* out) {
    while (true) out[0] = 1;
}
"""


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The two kernels of SOURCE, compiled for gfx942, and the first for others, by name."""
    folder = tmp_path_factory.mktemp("launch")
    path = folder / "places.hip"
    path.write_text(SOURCE)
    found = {}
    for name, kernel, arch in (
        ("places", "places", "gfx942"), ("forever", "forever", "gfx942"), ("gfx1100", "places", "gfx1100"),
        ("gfx1201", "places", "gfx1201"), ("gfx1030", "places", "gfx1030"), ("64 lanes", "places", "gfx1201"),
    ):  # fmt: skip
        flags = ("-mwavefrontsize64",) if name == "64 lanes" else ()
        build = KernelBuild(f"hip.{kernel}", "one", arch, HipSource(path, kernel, flags=flags, threads=128))
        found[name] = object_bytes(build_object(build, Path(folder / "cache")))
    return found


VALUES = np.linspace(-50, 50, 50).astype(np.float32)


def launch(objects: dict[str, bytes], *arguments: Argument, name: str = "places", **options: int) -> Execution:
    """Runs `places` over 50 columns and 8 rows."""
    given = arguments or (Output(np.zeros((8, 50), np.int32), "out"), VALUES, 2.5, 50, -3)
    return execute(objects[name], "places", (2, 2, 1), (32, 4, 1), given, **options)


@pytest.mark.parametrize(("name", "lanes"), [("places", 64), ("gfx1100", 32), ("gfx1201", 32), ("64 lanes", 64)])
def test_ids_and_arguments(objects: dict[str, bytes], name: str, lanes: int) -> None:
    """Workgroup and workitem ids in two directions, pointers, floats, integers, a short, and a ragged end, in both
    sizes of wave."""
    executed = launch(objects, name=name)
    expected = (VALUES * np.float32(2.5)).astype(np.int32)[None] + 1000 * np.arange(8)[:, None] - 3
    assert executed.arrays[0] is not None
    assert executed.written[0] is not None
    assert (executed.arrays[0] == expected).all()
    assert executed.written[0].all()
    assert executed.arrays[2:] == (None, None, None)
    assert executed.lane_instructions == lanes * executed.instructions > 0


def test_elements_that_nothing_wrote_are_known(objects: dict[str, bytes]) -> None:
    """An output larger than what the kernel writes: the rest is marked, and the caller's array is unchanged."""
    given = np.zeros((9, 50), np.int32)
    executed = launch(objects, Output(given), VALUES, 2.5, 50, -3)
    assert executed.written[0] is not None
    assert executed.written[0].all(axis=1).tolist() == [True] * 8 + [False]
    assert not given.any()


def test_a_buffer_that_is_too_small_is_named(objects: dict[str, bytes]) -> None:
    """A store beyond the end names the argument, the distance and the source line."""
    with pytest.raises(ExecutionFault, match=r"places.hip:8.*128 bytes beyond the end of argument 1 \(out\)"):
        launch(objects, Output(np.zeros((7, 50), np.int32), "out"), VALUES, 2.5, 50, -3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((VALUES, VALUES, 2.5, 50, 3, 4), "6 arguments are given, and the kernel takes 5"),
        ((VALUES, VALUES, 2.5, 1 << 40, 3), "argument 4 is 1099511627776, which does not fit its 4 bytes"),
        ((VALUES, VALUES, 2.5, 50, 1 << 16), "argument 5 is 65536, which does not fit its 2 bytes"),
        ((VALUES, VALUES, 2.5, "50", 3), "an argument is '50'"),
    ],
)
def test_arguments_that_do_not_fit(objects: dict[str, bytes], arguments: tuple[Argument, ...], message: str) -> None:
    """Too many arguments and values that do not fit are refused before anything runs."""
    with pytest.raises(UsageError, match=message):
        launch(objects, *arguments)


def test_addresses_inside_one_memory(objects: dict[str, bytes]) -> None:
    """Two arguments inside one array share its memory, and what is written shows in all of it; bounds are those of the
    array."""
    memory = np.zeros(2400, np.uint8)
    memory[:200] = VALUES.view(np.uint8)
    out, values = Inside(memory, 400, "out"), Inside(memory, 0, "values")
    executed = launch(objects, out, values, 2.5, 50, -3)
    content = executed.arrays[0]
    assert content is not None
    assert executed.arrays[1] is not None
    assert np.array_equal(content, executed.arrays[1])
    apart = launch(objects).arrays[0]
    assert apart is not None
    assert np.array_equal(content[400:2000].view(np.int32), apart.ravel())
    assert np.array_equal(content[:200], memory[:200])
    assert not content[2000:].any()
    with pytest.raises(ExecutionFault, match=r"beyond the end of argument 1 .out., which has 2400 bytes"):
        launch(objects, Inside(memory, 2000, "out"), values, 2.5, 50, -3)


def test_a_null_pointer_is_near_no_buffer(objects: dict[str, bytes]) -> None:
    """Reading through None is a fault that lists the buffers."""
    with pytest.raises(ExecutionFault, match="near no buffer; there are: argument 1"):
        launch(objects, Output(np.zeros((8, 50), np.int32)), None, 2.5, 50, 3)


def test_sizes_architectures_and_names(objects: dict[str, bytes]) -> None:
    """Impossible workgroups, other architectures and unknown kernels are refused."""
    with pytest.raises(UsageError, match="at most 1024 threads"):
        execute(objects["places"], "places", (1, 1, 1), (32, 64, 1), [])
    with pytest.raises(CodeObjectError, match="gfx1030 cannot be executed; gfx90a, gfx942, gfx950, gfx1100"):
        execute(objects["gfx1030"], "places", (1, 1, 1), (32, 1, 1), [])
    with pytest.raises(CodeObjectError, match="has no kernel 'other'"):
        execute(objects["places"], "other", (1, 1, 1), (32, 1, 1), [])


def test_a_loop_without_end_is_a_fault(objects: dict[str, bytes]) -> None:
    """A wave that does not end within the limit is stopped."""
    with pytest.raises(ExecutionFault, match="1000 instructions and has not ended"):
        execute(
            objects["forever"],
            "forever",
            (1, 1, 1),
            (64, 1, 1),
            [Output(np.zeros(1, np.int32))],
            instructions_most=1000,
        )


def test_an_unknown_instruction_stops_only_where_it_is_reached(objects: dict[str, bytes]) -> None:
    """Code that is never executed may hold what is not implemented."""
    unknown = Instruction("v_magic_f32", "v0, v1", 0x7FFF0000)

    def append(instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        return (*instructions, unknown)

    def begin(instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        return tuple(replace(unknown, address=one.address) for one in instructions)

    given = [Output(np.zeros((8, 50), np.int32)), VALUES, 2.5, 50, 3]
    execute(objects["places"], "places", (2, 2, 1), (32, 4, 1), given, edit=append)
    with pytest.raises(UnknownInstructionError, match=r"v_magic_f32 v0, v1 at 0x.*the opcode is not implemented"):
        execute(objects["places"], "places", (2, 2, 1), (32, 4, 1), given, edit=begin)


def test_other_float_modes_are_refused(objects: dict[str, bytes]) -> None:
    """A kernel whose descriptor asks for flushed denormals is not executed as if it kept them."""
    content = objects["places"]
    elf = read_elf(read_object(content, "places").elf, "places")
    symbol = next(one for one in elf.symbols if one.name == "places.kd")
    descriptor = elf.read_code(symbol.section, symbol.address, 64)
    registers = int.from_bytes(descriptor[48:52], "little") & ~(0x30 << 12)
    changed = descriptor[:48] + registers.to_bytes(4, "little") + descriptor[52:]
    assert content.count(descriptor) == 1
    with pytest.raises(CodeObjectError, match="starts with the mode 0xc0 of rounding and denormals; only 0xf0"):
        execute(content.replace(descriptor, changed), "places", (1, 1, 1), (32, 1, 1), [])
