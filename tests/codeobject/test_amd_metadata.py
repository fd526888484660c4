from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.amd_metadata import amd_kernels, read_metadata
from pytest_attnperf.codeobject.contents import ObjectKernel
from pytest_attnperf.codeobject.elf import Elf, read_elf
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import KernelCode

DATA = Path(__file__).parents[1] / "data/code_objects"
FLAGS = 0x30
GFX908, GFX90A, GFX1100 = b"\x30\x05\0\0", b"\x3f\x05\0\0", b"\x41\0\0\0"


def opened(name: str, *changes: tuple[bytes, bytes], flags: bytes = b"") -> Elf:
    """A stored object with these bytes replaced by as many others, each of which must be there."""
    data = (DATA / name).read_bytes()
    for old, new in changes:
        assert len(old) == len(new)
        assert old in data
        data = data.replace(old, new)
    if flags:
        data = data[:FLAGS] + flags + data[FLAGS + 4 :]
    return read_elf(data, "k.co")


def with_target(arch: str) -> tuple[bytes, bytes]:
    """The replacement that makes the metadata of a gfx942 object name another architecture of as many letters."""
    return b"--gfx942", b"--" + arch.encode()


def only(elf: Elf) -> ObjectKernel:
    """The kernel of an object with one."""
    (kernel,) = amd_kernels(elf)
    return kernel


def described(elf: Elf, name: str, **fields: int) -> Elf:
    """An object whose kernel descriptor says something else in compute_pgm_rsrc1 or compute_pgm_rsrc3."""
    symbol = next(symbol for symbol in elf.symbols if symbol.name == f"{name}.kd")
    begin = symbol.section.offset + symbol.address - symbol.section.address
    data = bytearray(elf.data)
    for field, value in fields.items():
        struct.pack_into("<I", data, begin + {"rsrc1": 48, "rsrc3": 44}[field], value)
    return read_elf(bytes(data), elf.source)


def test_everything_of_a_kernel() -> None:
    """Each field is the one that `llvm-readelf --notes -s` prints for the stored object."""
    kernel = only(opened("spills.gfx942.co"))
    assert kernel.code == KernelCode(
        name="hold",
        arch="gfx942",
        vgprs=48,
        agprs=0,
        unified_vgprs=48,
        sgprs=13,
        vgpr_spills=4,
        sgpr_spills=0,
        scratch_bytes=20,
        lds_static_bytes=0,
        lds_dynamic_bytes=0,
        kernarg_bytes=16,
        threads=0,
        max_threads=64,
        wave_size=64,
        wgp_mode=None,
        dynamic_stack=False,
        code_bytes=1464,
        isa_hash=kernel.code.isa_hash,
        reserved_vgprs=48,
        reserved_sgprs=16,
    )
    assert (kernel.address, kernel.size, kernel.section) == (0x1600, 1464, ".text")
    assert len(kernel.code.isa_hash) == 32


def test_lds_of_a_kernel() -> None:
    """Static LDS is counted in bytes; this kernel holds 288 floats."""
    code = only(opened("no_store.gfx942.co")).code
    assert (code.lds_static_bytes, code.lds_dynamic_bytes) == (1152, 0)


def test_architectural_registers_of_a_unified_file() -> None:
    """On gfx942 the metadata counts 36 registers: 20 VGPRs (19 or 20 are used) and, behind them, 16 AGPRs."""
    code = only(opened("mfma.gfx942.co")).code
    assert (code.vgprs, code.agprs, code.unified_vgprs) == (20, 16, 36)


def test_metadata_that_counts_no_agprs_gives_way_to_the_descriptor() -> None:
    """A hand-written object says 384 VGPRs and no AGPRs; the hardware allocates 256 and 128."""
    kernel = only(opened("by_hand.gfx942.co"))
    assert (kernel.code.vgprs, kernel.code.agprs, kernel.code.unified_vgprs) == (256, 128, 384)
    assert (kernel.code.vgpr_spills, kernel.code.sgpr_spills) == (None, None)
    assert kernel.size == 8


@pytest.mark.parametrize(
    ("accum_offset", "allocated", "expected"),
    [
        (20, 40, (20, 16, 36)),
        (24, 40, (24, 12, 36)),
        (8, 32, (8, 24, 32)),
        (64, 40, (64, 0, 64)),
    ],
)
def test_a_contradiction_is_settled_by_the_descriptor(
    accum_offset: int, allocated: int, expected: tuple[int, int, int]
) -> None:
    """Of 36 registers with 16 AGPRs the descriptor's border counts, and no more than it allocates."""
    elf = described(opened("mfma.gfx942.co"), "product", rsrc3=accum_offset // 4 - 1, rsrc1=allocated // 8 - 1)
    code = only(elf).code
    assert (code.vgprs, code.agprs, code.unified_vgprs) == expected


def test_separate_files_of_registers() -> None:
    """On gfx908 the two files are separate: the metadata's count is the larger one, and nothing is taken away."""
    code = only(opened("mfma.gfx942.co", with_target("gfx908"), flags=GFX908)).code
    assert (code.vgprs, code.agprs, code.unified_vgprs) == (36, 16, 36)


def test_wgp_mode() -> None:
    """RDNA kernels say whether they use both compute units; where they do not, the descriptor does; CDNA has none."""
    elf = opened("saxpy.gfx1100.co")
    assert only(elf).code.wgp_mode is True
    assert only(elf).code.wave_size == 32
    key = b".workgroup_processor_mode"
    silent = opened("saxpy.gfx1100.co", (key, key.upper()))
    assert only(silent).code.wgp_mode is True
    assert only(described(silent, "saxpy", rsrc1=0)).code.wgp_mode is False
    assert only(described(elf, "saxpy", rsrc1=0)).code.wgp_mode is True
    assert only(opened("saxpy.gfx1100.co", (key + b"\x01", key + b"\x00"))).code.wgp_mode is False
    assert only(opened("saxpy.gfx942.co")).code.wgp_mode is None


def test_dynamic_stack() -> None:
    """A kernel that recurses says so."""
    key = b".uses_dynamic_stack"
    assert only(opened("saxpy.gfx942.co", (key + b"\xc2", key + b"\xc3"))).code.dynamic_stack is True


def test_two_kernels_in_the_metadata_order() -> None:
    """Each kernel has its own address and its own limits."""
    first, second = amd_kernels(opened("two_kernels.gfx90a.co"))
    assert [(each.code.name, each.address, each.code.max_threads) for each in (first, second)] == [
        ("first", 0x1A00, 64),
        ("second", 0x1C00, 128),
    ]


def test_the_target_must_be_the_headers() -> None:
    """An object whose metadata names another architecture than its header is an error naming both."""
    with pytest.raises(CodeObjectError, match=r"k.co: its ELF header says gfx90a, its metadata '.*--gfx942'"):
        amd_kernels(opened("saxpy.gfx942.co", flags=GFX90A))
    with pytest.raises(CodeObjectError, match=r"its metadata '.*--gfx9xx'"):
        amd_kernels(opened("saxpy.gfx942.co", with_target("gfx9xx")))
    assert amd_kernels(opened("saxpy.gfx942.co", with_target("gfx90a"), flags=GFX90A))[0].code.arch == "gfx90a"


def test_an_object_without_metadata() -> None:
    """Without the note, and with the note of another owner or kind, the error says what to do."""
    for old, new in [(b"AMDGPU\0\0", b"AMD\0\0\0\0\0"), (b"\x20\0\0\0AMDGPU", b"\x21\0\0\0AMDGPU")]:
        with pytest.raises(CodeObjectError, match=r"k.co: has no AMDGPU metadata note .* do not strip its notes"):
            amd_kernels(opened("saxpy.gfx942.co", (old, new)))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            b".vgpr_count\x06",
            b".vgpr_count\xc3",
            r"Expected `int`, got `bool` - at `\$.amdhsa.kernels\[0\]..vgpr_count`",
        ),
        (b".vgpr_count\x06", b".vgpr_count\xff", "Expected `int` >= 0"),
        (b".vgpr_count\x06", b".vgpr_comte\x06", "missing required field `.vgpr_count`"),
        (b".name\xa5saxpy", b".name\x93\x01\x02\x03py", "Expected `str`, got `array`"),
        (b".wavefront_size@", b".wavefront_size\x30", "Invalid enum value 48"),
        (b".symbol\xa8saxpy", b".symbol\xa8\xff\xfe\xfdpy", "k.co: its metadata note"),
        (b"\x83\xaeamdhsa", b"\x8f\xaeamdhsa", "Input data was truncated"),
        (b"amdhsa.kernels\x91", b"amdhsa.kernels\xdd", "Expected `object`, got `int`"),
        (b"amdhsa.kernels\x91", b"amdhsa.kernels\x01", "Expected `array`, got `int`"),
        (b"\x92\x01\x02", b"\x92\x02\x02", r"its metadata has version \[2, 2\]; only 1.x"),
    ],
)
def test_metadata_of_the_wrong_types(old: bytes, new: bytes, expected: str) -> None:
    """A value of another type, a missing one, and an array longer than the note are errors naming the field."""
    with pytest.raises(CodeObjectError, match=expected):
        amd_kernels(opened("saxpy.gfx942.co", (old, new)))


def test_deeply_nested_metadata() -> None:
    """A note of ten thousand nested arrays is an error, not a crash."""
    elf = opened("saxpy.gfx942.co")
    content = struct.pack("<III", 7, 10_000, 32) + b"AMDGPU\0\0" + b"\x81\xa1x" + b"\x91" * 9_997
    note = elf.find_section(".note")
    assert note is not None
    moved = bytearray(elf.data + content)
    header = struct.unpack_from("<Q", moved, 0x28)[0] + 64 * elf.sections.index(note)
    struct.pack_into("<QQ", moved, header + 24, len(elf.data), len(content))
    with pytest.raises(CodeObjectError, match=r"k.co: its metadata note is not what LLVM documents"):
        read_metadata(read_elf(bytes(moved), "k.co"))


def test_metadata_is_read_whatever_else_it_holds() -> None:
    """Keys that are not known here, such as those of the arguments, are passed over."""
    elf = opened("saxpy.gfx942.co")
    assert b".value_kind" in next(elf.read_notes()).content
    assert [kernel.symbol for kernel in read_metadata(elf).kernels] == ["saxpy.kd"]


@pytest.mark.parametrize(("old", "new"), [(b"\0saxpy.kd", b"\0saxpy.xd"), (b"\0saxpy\0", b"\0taxpy\0")])
def test_a_kernel_without_its_symbols(old: bytes, new: bytes) -> None:
    """A kernel of the metadata whose descriptor or code is not among the symbols is an error naming it."""
    with pytest.raises(
        CodeObjectError, match=r"k.co: its metadata has a kernel 'saxpy', but its . symbols have no 'saxpy"
    ):
        amd_kernels(opened("saxpy.gfx942.co", (old, new)))


def test_a_descriptor_that_starts_other_code() -> None:
    """Where the descriptor starts something else than the function of that name, its figures are not the kernel's."""
    elf = opened("saxpy.gfx942.co")
    symbol = next(symbol for symbol in elf.symbols if symbol.name == "saxpy.kd")
    data = bytearray(elf.data)
    struct.pack_into("<q", data, symbol.section.offset + 16, 4)
    with pytest.raises(
        CodeObjectError, match=r"the descriptor of kernel 'saxpy' starts it at 0x584, but its symbol is at"
    ):
        amd_kernels(read_elf(bytes(data), "k.co"))
