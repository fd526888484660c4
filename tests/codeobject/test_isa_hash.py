from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.elf import Elf, Symbol, read_elf
from pytest_attnperf.codeobject.isa_hash import FarReference, cubin_hash, far_references, with_names
from pytest_attnperf.codeobject.objects import read_object

DATA = Path(__file__).parents[1] / "data/code_objects"
SAXPY = (DATA / "saxpy.gfx942.co").read_bytes()
TWO_KERNELS = (DATA / "two_kernels.gfx90a.co").read_bytes()
CUBIN = (DATA / "kernels.sm_90.cubin").read_bytes()

CLANG = shutil.which("clang++-22")
LINKER = shutil.which("ld.lld-22")
FLAGS = ("-x", "hip", "-nogpuinc", "-nogpulib", "--offload-device-only", "--no-gpu-bundle-output", "-O3")
S_NOP = struct.pack("<I", 0xBF800000)

needs_clang = pytest.mark.skipif(
    not (CLANG and LINKER), reason="compiles kernels: install clang++-22 and ld.lld-22 (Debian: clang-22, lld-22)"
)

Compile = Callable[..., str]


@pytest.fixture(scope="module")
def hash_of(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compiles a stored source and says the hash of its first kernel; the same compilation is done once."""
    made: dict[tuple[str, ...], str] = {}

    def compiled(source: str, *flags: str, arch: str = "gfx942", folder: str = "here") -> str:
        key = (source, *flags, arch, folder)
        if key not in made:
            place = tmp_path_factory.mktemp(folder)
            (place / source).write_bytes((DATA / source).read_bytes())
            command = [str(CLANG), *FLAGS, f"--offload-arch={arch}", *flags, str(place / source), "-o", "k.co"]
            subprocess.run(command, cwd=place, check=True, timeout=60)
            contents = read_object((place / "k.co").read_bytes(), source, arch=arch)
            made[key] = contents.kernels[0].code.isa_hash
        return made[key]

    return compiled


def hashes(data: bytes) -> list[str]:
    """The hashes of an object's kernels."""
    return [kernel.code.isa_hash for kernel in read_object(data, "k").kernels]


def symbol_of(elf: Elf, name: str) -> tuple[Symbol, int]:
    """A symbol, and where it stands in the file."""
    symbol = next(symbol for symbol in elf.symbols if symbol.name == name)
    return symbol, symbol.section.offset + symbol.address - symbol.section.address


def changed(data: bytes, symbol: str, offset: int, value: bytes) -> bytes:
    """An object with these bytes overwritten, `offset` bytes behind the begin of a symbol."""
    position = symbol_of(read_elf(data, "k"), symbol)[1] + offset
    assert data[position : position + len(value)] != value
    return data[:position] + value + data[position + len(value) :]


@needs_clang
@pytest.mark.parametrize("source", ["saxpy.hip", "two_kernels.hip"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_what_is_not_code_changes_nothing(hash_of: Compile, source: str, arch: str) -> None:
    """Another folder, debug information, a build id and a much longer name of the kernel: the same hash.

    The second source reaches a table, a variable and functions by distances that all of these change.
    """
    name = "a_much_longer_name_" * 8
    flags = ("-g", "-Xoffload-linker", "--build-id=sha1", f"-DNAME={name}", f"-DFIRST={name}")
    assert hash_of(source, *flags, arch=arch, folder="another-folder") == hash_of(source, arch=arch)


@needs_clang
@pytest.mark.parametrize(
    ("flags", "arch"),
    [
        (("-DADD",), "gfx942"),
        (("-DLDS_FLOATS=256",), "gfx942"),
        (("-DTHREADS=512",), "gfx942"),
        (("-DBUDGET=__attribute__((amdgpu_num_vgpr(4)))",), "gfx942"),
        ((), "gfx90a"),
        ((), "gfx950"),
    ],
)
def test_what_is_code_or_allocation_changes_it(hash_of: Compile, flags: tuple[str, ...], arch: str) -> None:
    """One more operation, LDS, another workgroup, a register budget or another architecture: another hash."""
    assert hash_of("saxpy.hip", *flags, arch=arch) != hash_of("saxpy.hip")


@needs_clang
def test_a_table_that_the_kernel_reads_is_part_of_it(hash_of: Compile) -> None:
    """Another value in a constant table is another kernel, though its instructions are the same."""
    assert hash_of("two_kernels.hip", "-DENTRY=6") != hash_of("two_kernels.hip")


@pytest.mark.parametrize("offset", [0, 52, 104])
def test_every_word_of_the_kernel_counts(offset: int) -> None:
    """Its first word, one within and its last."""
    assert hashes(changed(SAXPY, "saxpy", offset, b"\x01\x02\x03\x04")) != hashes(SAXPY)


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (0, struct.pack("<I", 4096)),
        (4, struct.pack("<I", 64)),
        (8, struct.pack("<I", 32)),
        (44, b"\x07"),
        (48, b"\x07"),
        (52, b"\x07"),
        (56, b"\x07"),
    ],
)
def test_every_field_of_the_descriptor_counts(offset: int, value: bytes) -> None:
    """LDS, scratch and argument sizes, the three registers of the program's resources, and its properties."""
    assert hashes(changed(SAXPY, "saxpy.kd", offset, value)) != hashes(SAXPY)


def test_what_stands_behind_the_kernel_does_not_count() -> None:
    """The padding behind a function is not executed; a comment of the compiler is no code."""
    assert hashes(changed(SAXPY, "saxpy", 108, b"\x01\x02\x03\x04")) == hashes(SAXPY)
    assert hashes(SAXPY.replace(b"clang version", b"CLANG VERSION")) == hashes(SAXPY)


def test_other_functions_count_and_other_kernels_do_not() -> None:
    """A change of a function changes both kernels, a change of the second kernel the second only."""
    before = hashes(TWO_KERNELS)
    function = hashes(changed(TWO_KERNELS, "_ZL7look_upfi", 4, S_NOP))
    second = hashes(changed(TWO_KERNELS, "second", 0, S_NOP))
    assert [one == two for one, two in zip(before, function, strict=True)] == [False, False]
    assert [one == two for one, two in zip(before, second, strict=True)] == [True, False]


def test_calling_another_function_is_another_hash() -> None:
    """A call whose distance leads to another function of the object, or into the table elsewhere, is other code."""
    elf = read_elf(TWO_KERNELS, "k")
    first, begin = symbol_of(elf, "first")
    distances = {}
    for at in range(begin, begin + first.size, 4):
        if TWO_KERNELS[at : at + 2] == b"\x00\x1c" and TWO_KERNELS[at + 3] == 0xBE:
            (distance,) = struct.unpack_from("<i", TWO_KERNELS, at + 8)
            distances[first.address + at - begin + 4 + distance] = at + 8, distance
    look_up, difference, table = (
        symbol_of(elf, name)[0] for name in ("_ZL7look_upfi", "_ZL10differencefi", "_ZL5table")
    )
    for old, new in [(look_up.address, difference.address), (table.address, table.address + 4)]:
        position, distance = distances[old]
        literal = struct.pack("<i", distance + new - old)
        assert hashes(TWO_KERNELS[:position] + literal + TWO_KERNELS[position + 4 :])[0] != hashes(TWO_KERNELS)[0]


def test_the_hash_of_a_cubin() -> None:
    """Code, registers, shared memory, architecture and other functions count; the functions' order does not."""
    first = cubin_hash("sm_90", b"code", 32, 1024, [b"f", b"g"])
    assert len(first) == 32
    assert cubin_hash("sm_90", b"code", 32, 1024, [b"g", b"f"]) == first
    others = {
        cubin_hash("sm_100", b"code", 32, 1024, [b"f", b"g"]),
        cubin_hash("sm_90", b"cod3", 32, 1024, [b"f", b"g"]),
        cubin_hash("sm_90", b"code", 40, 1024, [b"f", b"g"]),
        cubin_hash("sm_90", b"code", 32, 2048, [b"f", b"g"]),
        cubin_hash("sm_90", b"code", 32, 1024, [b"f"]),
        cubin_hash("sm_90", b"code", 32, 1024, [b"fg"]),
        cubin_hash("sm_90", b"codef", 32, 1024, [b"g"]),
    }
    assert len(others) == 7
    assert first not in others


def test_registers_and_code_of_a_stored_cubin() -> None:
    """The registers per thread and a word of the code change the hash of their kernel only."""
    registers = CUBIN.index(b"\x04\x2f\x08\x00") + 8
    code = symbol_of(read_elf(CUBIN, "k"), "saxpy")[1]
    for position in (registers, code):
        other = hashes(CUBIN[:position] + bytes([CUBIN[position] ^ 1]) + CUBIN[position + 1 :])
        assert [one == two for one, two in zip(hashes(CUBIN), other, strict=True)].count(False) == 1


def words(*values: int) -> bytes:
    """Machine code of these 32-bit words."""
    return struct.pack(f"<{len(values)}I", *values)


NOP = 0xBF800000


# As llvm-objdump 22 prints them: s_getpc_b64 s[4:5]; s_add_u32 s4, s4, LOW; s_addc_u32 s5, s5, HIGH. On gfx1201 waits
# and a sign extension stand between, on gfx1250 one 64-bit addition follows.
SEQUENCES = {
    "gfx90a": (words(0xBE841C00, 0x8004FF04, 0xFFFFEEB0, 0x8205FF05, 0xFFFFFFFF), (8, 16), 4 - 0x1150),
    "gfx942": (words(0xBE801C00, 0x8000FF00, 0x24C4, 0x8201FF01, 0), (8, 16), 4 + 0x24C4),
    "gfx1030": (words(0xBE841F00, 0x8004FF04, 0xFFFFEEB4, 0x8205FF05, 0xFFFFFFFF), (8, 16), 4 - 0x114C),
    "gfx1100": (words(0xBE804700, 0x8000FF00, 0xFFFFEEB4, 0x8201FF01, 0xFFFFFFFF), (8, 16), 4 - 0x114C),
    "gfx1201": (
        words(0xBE804700, 0xBF88FF9E, 0xBE810F01, 0x8000FF00, 0xFFFFEEA4, 0xBF88FF9E, 0x8201FF01, 0xFFFFFFFF),
        (16, 28),
        4 - 0x115C,
    ),
    "gfx1250": (words(0xBE804700, 0xA980FE00, 0xFFFFEE70, 0xFFFFFFFF), (8, 12), 4 - 0x1190),
}


@pytest.mark.parametrize("arch", SEQUENCES)
def test_the_address_of_each_generation(arch: str) -> None:
    """The constants and the address that they make are found in the words that clang 22 writes."""
    code, literals, target = SEQUENCES[arch]
    assert far_references(code, arch) == [FarReference(literals, target)]
    shifted = far_references(words(NOP) + code + words(NOP), arch)
    assert shifted == [FarReference((literals[0] + 4, literals[1] + 4), target + 4)]


@pytest.mark.parametrize(
    ("code", "arch"),
    [
        (SEQUENCES["gfx90a"][0], "gfx1100"),
        (SEQUENCES["gfx1100"][0], "gfx942"),
        (SEQUENCES["gfx90a"][0], "sm_90"),
        (b"\0\0" + SEQUENCES["gfx90a"][0], "gfx90a"),
        (words(0xBE841C00, 0x8006FF06, 0xFFFFEEB0, 0x8207FF07, 0xFFFFFFFF), "gfx90a"),
        (words(0xBE841C00, 0x8205FF05, 0xFFFFFFFF, 0x8004FF04, 0xFFFFEEB0), "gfx90a"),
        (words(0xBE841C00, *[NOP] * 8, 0x8004FF04, 0xFFFFEEB0, 0x8205FF05, 0xFFFFFFFF), "gfx90a"),
        (words(0xBE841C00, 0x8004FF04, 0xFFFFEEB0, 0x8205FF05), "gfx90a"),
        (words(0xBE804700, 0xA980FE00, 0xFFFFEE70), "gfx1250"),
        (words(0xBE841C00, NOP), "gfx90a"),
        (b"", "gfx90a"),
    ],
)
def test_other_code_is_left_alone(code: bytes, arch: str) -> None:
    """Another generation's opcode, other registers, an upper half alone, code that ends too early: no reference."""
    assert far_references(code, arch) == []


def test_an_address_within_the_function_is_no_far_one() -> None:
    """A long jump's distance does not depend on where the function stands."""
    near = words(0xBE841C00, 0x8004FF04, 16, 0x8205FF05, 0) + words(NOP) * 4
    assert far_references(near, "gfx90a") == []
    beyond = words(0xBE841C00, 0x8004FF04, len(near) - 4, 0x8205FF05, 0) + words(NOP) * 4
    assert [found.target for found in far_references(beyond, "gfx90a")] == [len(near)]


def test_real_code() -> None:
    """The stored kernel refers to two functions, a table and a variable; each address is that of its symbol."""
    elf = read_elf((DATA / "two_kernels.gfx90a.co").read_bytes(), "")
    first = next(symbol for symbol in elf.symbols if symbol.name == "first")
    found = far_references(elf.read_code(first.section, first.address, first.size), "gfx90a")
    by_address = {symbol.address: symbol.name for symbol in elf.symbols}
    names = {by_address[first.address + each.target] for each in found}
    assert names == {"_ZL7look_upfi", "_ZL10differencefi", "_ZL5table", "scale"}


def test_constants_are_blanked_and_named() -> None:
    """Two distances to the same thing are equal code; another thing at the same distance is other code."""
    code, _, _ = SEQUENCES["gfx90a"]
    moved = code[:8] + b"\x10\xee\xff\xff" + code[12:]
    both = [with_names(each, far_references(each, "gfx90a"), [b"table"]) for each in (code, moved)]
    assert both[0] == both[1]
    assert both[0][: len(code)] == code[:8] + bytes(4) + code[12:16] + bytes(4)
    assert with_names(code, far_references(code, "gfx90a"), [b"other"]) != both[0]
    assert with_names(code, [], []) == code
