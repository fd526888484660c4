"""Our reader of code objects against an independent one, on every stored object."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_attnperf.codeobject.elf import read_elf
from pytest_attnperf.codeobject.line_table import read_line_table
from pytest_attnperf.codeobject.objects import read_object

elffile = pytest.importorskip("elftools.elf.elffile")

OBJECTS = Path(__file__).parents[1] / "data" / "code_objects"
ELFS = sorted([*OBJECTS.glob("*.co"), *OBJECTS.glob("*.cubin")])
NT_AMDGPU_METADATA = 32


def independently(path: Path) -> Any:
    """The file as pyelftools sees it."""
    return elffile.ELFFile(io.BytesIO(path.read_bytes()))


@pytest.mark.parametrize("path", ELFS, ids=lambda path: path.name)
def test_sections_and_symbols_agree(path: Path) -> None:
    """Names, offsets and sizes of all sections, and names, values and sizes of all named symbols."""
    ours, theirs = read_elf(path.read_bytes(), path.name), independently(path)
    assert ours.machine == {"EM_AMDGPU": 224, "EM_CUDA": 190}[theirs["e_machine"]]
    assert ours.flags == theirs["e_flags"]
    expected = [(one.name, one["sh_offset"], one["sh_size"]) for one in theirs.iter_sections()]
    assert [(one.name, one.offset, one.size) for one in ours.sections] == expected
    table = theirs.get_section_by_name(".symtab")
    named = {(one.name, one["st_value"], one["st_size"]) for one in table.iter_symbols() if one.name}
    found = {(one.name, one.address, one.size) for one in ours.symbols}
    assert found
    assert found <= named


@pytest.mark.parametrize("path", sorted(OBJECTS.glob("*.co")), ids=lambda path: path.name)
def test_metadata_agrees(path: Path) -> None:
    """The counts of every kernel are those of the metadata note that pyelftools finds."""
    notes = [
        note
        for section in independently(path).iter_sections()
        if section["sh_type"] == "SHT_NOTE"
        for note in section.iter_notes()
    ]
    (note,) = [one for one in notes if one["n_type"] in (NT_AMDGPU_METADATA, "NT_AMDGPU_METADATA")]
    kernels = {one[".name"]: one for one in msgspec.msgpack.decode(note["n_descdata"])["amdhsa.kernels"]}
    read = read_object(path.read_bytes(), path.name).kernels
    assert {one.code.name for one in read} == kernels.keys()
    for code in (one.code for one in read):
        theirs = kernels[code.name]
        assert code.sgprs == theirs[".sgpr_count"]
        assert code.vgpr_spills == theirs.get(".vgpr_spill_count")
        assert code.lds_static_bytes == theirs[".group_segment_fixed_size"]
        assert code.scratch_bytes == theirs[".private_segment_fixed_size"]
        assert code.kernarg_bytes == theirs[".kernarg_segment_size"]


@pytest.mark.parametrize("name", ["lines4.gfx942.co", "lines5.gfx942.co"])
def test_line_tables_agree(name: str) -> None:
    """Every row of the line number program that pyelftools decodes has our line, where the compiler gave one."""
    path = OBJECTS / name
    ours, dwarf = read_line_table(path.read_bytes()), independently(path).get_dwarf_info()
    rows = {
        entry.state.address: entry.state.line
        for unit in dwarf.iter_CUs()
        for entry in dwarf.line_program_for_CU(unit).get_entries()
        if entry.state is not None and not entry.state.end_sequence
    }
    assert rows
    for address, line in rows.items():
        place = ours.find_place(address)
        assert (place[1] if place else 0) == line, hex(address)
