from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.codeobject import analysis, decoding
from pytest_attnperf.codeobject.analysis import Analyser, count_products_once
from pytest_attnperf.codeobject.built import Built, pack_bytes
from pytest_attnperf.codeobject.decoding import Decoded
from pytest_attnperf.codeobject.elf import read_elf
from pytest_attnperf.codeobject.tools import find_objdump
from pytest_attnperf.errors import CodeObjectError, ToolMissingError
from pytest_attnperf.kernel_builds import HipSource, KernelBuild, KeyTile, ObjectFile
from pytest_attnperf.records.code import KernelCode, LoopEstimate, SourceLine

DATA = Path(__file__).parents[1] / "data" / "code_objects"
SAXPY = (DATA / "saxpy.gfx942.co").read_bytes()
LINES = (DATA / "lines4.gfx942.co").read_bytes()
"""Its line table names `two_kernels.hip` without a folder, as those of kernels compiled in their project do."""

RETURNED = "out[i] = i < n ? look_up(out[i], i) * table[i & 63] + scale : difference(out[i], i);"
DECLARED = KernelBuild("hip.saxpy", "plain", "gfx942", ObjectFile(DATA / "saxpy.gfx942.co"))
DECODED = Decoded({"valu": 3}, {"valu": 1}, (SourceLine("saxpy.hip", 17, "y[i]", {"global_load_4B": 1}),), "")


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The symbols that were decoded, in order; no disassembler runs."""
    symbols: list[str] = []

    def decode(_elf: bytes, _arch: str, symbol: str, **_rest: object) -> Decoded:
        symbols.append(symbol)
        return DECODED

    monkeypatch.setattr(analysis, "decode_machine_code", decode)
    monkeypatch.setattr(analysis, "disassembler_version", lambda _arch, assembly: f"llvm-objdump 22, {assembly}")
    return symbols


@pytest.fixture
def _objdump() -> None:
    """Skips where nothing disassembles gfx942."""
    try:
        find_objdump("gfx942")
    except ToolMissingError as error:
        pytest.skip(str(error))


def saxpy(folder: Path | None, data: bytes = SAXPY, **given: Any) -> KernelCode:
    """The kernel, analysed by an analyser of its own."""
    return Analyser(folder).analyse(data, "saxpy.co", **given)


def remembered(folder: Path) -> list[Path]:
    """What the memory holds."""
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_a_kernel_is_what_its_object_and_its_launch_say(decodings: list[str]) -> None:
    """Registers from the metadata, threads and dynamic LDS from the launch, instructions and lines from the code."""
    code = saxpy(None, threads=128, lds_dynamic_bytes=4096)
    assert (code.name, code.arch, code.wave_size, code.max_threads) == ("saxpy", "gfx942", 64, 256)
    assert (code.vgprs, code.agprs, code.vgpr_spills, code.scratch_bytes, code.code_bytes) == (6, 0, 0, 0, 108)
    assert (code.threads, code.workgroup, code.lds_dynamic_bytes, code.lds_bytes) == (128, 128, 4096, 4096)
    assert (code.instructions, code.in_loops, code.lines) == (DECODED.instructions, DECODED.in_loops, DECODED.lines)
    assert len(code.isa_hash) >= 32
    assert saxpy(None).workgroup == 256
    assert decodings == ["saxpy", "saxpy"]


@pytest.mark.usefixtures("_objdump")
def test_real_instructions_of_a_real_object() -> None:
    """Matrix instructions, spills and stores are counted, those of a loop apart."""
    product = Analyser().analyse((DATA / "mfma.gfx942.co").read_bytes(), "mfma.co")
    assert (product.undecoded, product.instructions["matrix"], product.in_loops) == ("", 8, {})
    spilling = Analyser().analyse((DATA / "spills.gfx942.co").read_bytes(), "spills.co")
    assert (spilling.vgpr_spills, spilling.scratch_bytes, spilling.instructions["scratch_store"]) == (4, 20, 4)
    looping = Analyser().analyse((DATA.with_name("assembly") / "tile-gfx942.co").read_bytes(), "tile.co", kernel="tile")
    assert (looping.instructions["scalar_load"], looping.in_loops.get("scalar_load", 0)) == (3, 0)
    assert looping.in_loops["matrix"] == 1


@pytest.mark.usefixtures("_objdump")
def test_the_key_loop_of_a_real_object_is_estimated() -> None:
    """With the waves that the launch leaves: one product in the inner of two loops."""
    data = (DATA.parent / "assembly" / "tile-gfx942.co").read_bytes()
    found = Analyser().analyse(data, "tile.co", kernel="tile", threads=256).key_loop
    assert found is not None
    assert (found.waves, found.matrix, found.matrix_cycles, found.valu, found.barriers) == (8, 1, 16, 1, 2)
    crowded = Analyser().analyse(data, "tile.co", kernel="tile", threads=256, lds_dynamic_bytes=40_000).key_loop
    assert crowded is not None
    assert crowded.waves == 1


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_build_is_analysed_as_it_was_declared(arch: str, decodings: list[str]) -> None:
    """Of a bundle the declared architecture is taken; kernel, threads and LDS are the build's."""
    built = Built(pack_bytes((DATA / "saxpy.bundle").read_bytes()), "", "saxpy", 64, 512, "clang 22.1.8")
    code = Analyser()(built, replace(DECLARED, arch=arch))
    assert (code.arch, code.threads, code.lds_dynamic_bytes) == (arch, 64, 512)
    assert code == saxpy(None, (DATA / f"saxpy.{arch}.co").read_bytes(), threads=64, lds_dynamic_bytes=512)


def test_what_was_read_once_is_remembered(tmp_path: Path, decodings: list[str]) -> None:
    """Another analyser, as of a later run, gives the same without decoding; the folder is made."""
    folder = tmp_path / "cache" / "code"
    first = saxpy(folder, threads=256)
    assert saxpy(folder, threads=256) == first
    assert decodings == ["saxpy"]
    assert len(remembered(folder)) == 1
    assert saxpy(None, threads=256) == first
    assert len(decodings) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"threads": 64},
        {"lds_dynamic_bytes": 1024},
        {"sources": {"saxpy.hip": "0" * 64}},
        {"source_root": "/src"},
        {"arch": "gfx942"},
        {"kernel": "saxpy"},
        {"assembly": "saxpy:\n\ts_endpgm\n"},
        {"data": SAXPY + b"\0"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_matters_is_not_confused(changed: dict[str, Any], tmp_path: Path, decodings: list[str]) -> None:
    """Another launch, source, request or object is read anew, and both are remembered."""
    first = saxpy(tmp_path)
    assert saxpy(tmp_path, **changed) == replace(
        first, threads=changed.get("threads", 0), lds_dynamic_bytes=changed.get("lds_dynamic_bytes", 0)
    )
    assert len(decodings) == 2
    saxpy(tmp_path)
    saxpy(tmp_path, **changed)
    assert len(decodings) == 2


def test_another_reader_reads_anew(tmp_path: Path, decodings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What another version of this package, or another disassembler, found is not taken over."""
    saxpy(tmp_path)
    monkeypatch.setattr(analysis, "_reader_version", lambda: "a later one")
    saxpy(tmp_path)
    assert len(decodings) == 2
    monkeypatch.setattr(analysis, "disassembler_version", lambda _arch, assembly: f"llvm-objdump 23, {assembly}")
    saxpy(tmp_path)
    assert len(decodings) == 3


def test_the_reader_is_known_by_every_file_of_it() -> None:
    """The version is a hash of this package's files, the same within a process."""
    assert len(analysis._reader_version()) == 64
    assert analysis._reader_version() is analysis._reader_version()


@pytest.mark.usefixtures("_objdump")
def test_a_disassembler_that_comes_later_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be decoded without a tool is decoded once there is one."""
    with monkeypatch.context() as without:
        without.setenv("ATTNPERF_LLVM_OBJDUMP", str(tmp_path / "none"))
        before = saxpy(tmp_path / "memory")
    assert (before.instructions, "no llvm-objdump" in before.undecoded) == ({}, True)
    after = saxpy(tmp_path / "memory")
    assert (after.undecoded, after.isa_hash) == ("", before.isa_hash)
    assert after.instructions


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe\x00",
        b"[" * 200_000,
        b'{"unknown":' + b"[" * 200_000,
        lambda good: good[:-1],
        lambda good: good[: len(good) // 2],
        lambda good: good.replace(b'"vgprs":6', b'"vgprs":"6"'),
        lambda good: good.replace(b'"saxpy"', b'"sax\xffpy"'),
    ],
    ids=["empty", "null", "list", "object", "binary", "deep", "deeper", "cut", "half", "type", "text"],
)
def test_a_broken_memory_is_read_anew_and_mended(
    damage: bytes | Callable[[bytes], bytes], tmp_path: Path, decodings: list[str]
) -> None:
    """A file that is no kernel's record is as good as none, and is replaced."""
    first = saxpy(tmp_path)
    [file] = remembered(tmp_path)
    good = file.read_bytes()
    file.write_bytes(damage if isinstance(damage, bytes) else damage(good))
    assert file.read_bytes() != good
    assert saxpy(tmp_path) == first
    assert len(decodings) == 2
    assert file.read_bytes() == good


def test_a_memory_that_cannot_be_used_is_none(tmp_path: Path, decodings: list[str]) -> None:
    """A folder that cannot be made or written, or an entry that is a folder, costs time and nothing else."""
    (tmp_path / "file").write_text("not a folder")
    expected = saxpy(None)
    assert saxpy(tmp_path / "file") == expected
    assert saxpy(tmp_path / "file" / "below") == expected
    assert (tmp_path / "file").read_text() == "not a folder"
    saxpy(tmp_path / "memory")
    [entry] = remembered(tmp_path / "memory")
    entry.unlink()
    entry.mkdir()
    assert saxpy(tmp_path / "memory") == expected
    assert remembered(tmp_path / "memory") == [entry]
    assert len(decodings) == 5


def test_the_oldest_are_forgotten(tmp_path: Path, decodings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory beyond its size loses its oldest files, once per analyser, and nothing that is not its own."""
    for age, threads in enumerate((64, 128, 192, 256)):
        saxpy(tmp_path, threads=threads)
        newest = max(remembered(tmp_path), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (1000 + age, 1000 + age))
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setattr(analysis, "KEPT_RESULTS", 2)
    again = Analyser(tmp_path)
    again.analyse(SAXPY, "saxpy.co", threads=32)
    assert len(remembered(tmp_path)) == 3
    assert (tmp_path / "notes.txt").exists()
    again.analyse(SAXPY, "saxpy.co", threads=16)
    assert len(remembered(tmp_path)) == 4
    count = len(decodings)
    saxpy(tmp_path, threads=256)
    assert len(decodings) == count
    saxpy(tmp_path, threads=64)
    assert len(decodings) == count + 1


@pytest.mark.usefixtures("_objdump")
def test_source_lines_are_quoted_from_the_projects_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path of the line table is one below the build's `source_root`, wherever the tests are run from."""
    built = Built(pack_bytes(LINES), "", "first", 64, 0, "clang 22.1.8", source_root=str(DATA))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two_kernels.hip").write_text("another file of that name\n" * 40)
    code = Analyser()(built, DECLARED)
    assert [(line.file, line.text) for line in code.lines] == [("two_kernels.hip", RETURNED)]
    assert code.lines[0].counts["global_store_4B"] >= 1
    elsewhere = Analyser()(replace(built, source_root=str(tmp_path / "gone")), DECLARED)
    assert [line.text for line in elsewhere.lines] == [""]


@pytest.mark.usefixtures("_objdump")
def test_an_edited_source_is_quoted_as_it_is(tmp_path: Path) -> None:
    """With another hash of its source the same object is read again, and the new text quoted."""
    source = tmp_path / "two_kernels.hip"
    texts = []
    for hashed, text in (("a" * 64, "first edition\n"), ("b" * 64, "second edition, longer\n")):
        source.write_text(text * 40)
        given = {"kernel": "first", "sources": {"two_kernels.hip": hashed}, "source_root": str(tmp_path)}
        texts.append([line.text for line in saxpy(tmp_path / "memory", LINES, **given).lines])
    assert texts == [["first edition"], ["second edition, longer"]]


@pytest.mark.usefixtures("_objdump")
def test_absolute_paths_stay_as_they_are() -> None:
    """Triton's line tables name whole paths, which no root is put before; a file that is not here has no text."""
    data = (DATA / "lines5.gfx942.co").read_bytes()
    code = Analyser().analyse(data, "lines5.co", kernel="first", source_root=str(DATA))
    assert [(line.file, line.text) for line in code.lines] == [("two_kernels.hip", "")]


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("saxpy.hip", {}, "saxpy.co"),
        ("saxpy.gfx942.co", {"arch": "gfx1100"}, "saxpy.co: was compiled for gfx942, not for gfx1100"),
        ("saxpy.gfx942.co", {"kernel": "softmax"}, "saxpy.co: has no kernel 'softmax'; it has: saxpy"),
        ("two_kernels.gfx90a.co", {}, "saxpy.co: has 2 kernels; name the one that is meant: first, second"),
    ],
)
def test_what_cannot_be_read_is_an_error_each_time(
    name: str, given: dict[str, str], said: str, tmp_path: Path, decodings: list[str]
) -> None:
    """No object, another architecture, or no such kernel: the error names the object, and nothing is remembered."""
    for _ in range(2):
        with pytest.raises(CodeObjectError, match=said):
            saxpy(tmp_path, (DATA / name).read_bytes(), **given)
    assert remembered(tmp_path) == []
    assert decodings == []


def test_a_build_is_named_in_errors() -> None:
    """A build whose object or transport is damaged is known by its id, or its kernel."""
    with pytest.raises(CodeObjectError, match=r"hip\.saxpy-plain-gfx942: "):
        Analyser()(Built(pack_bytes(b"no object"), "", "", 64, 0, "clang"), DECLARED)
    with pytest.raises(CodeObjectError, match="the object of saxpy came back damaged"):
        Analyser()(Built("?", "", "saxpy", 64, 0, "clang"), DECLARED)
    with pytest.raises(CodeObjectError, match="the assembler text of saxpy came back damaged"):
        Analyser()(Built(pack_bytes(SAXPY), "?", "saxpy", 64, 0, "clang"), DECLARED)


def test_a_line_table_that_cannot_be_read_costs_the_lines_only() -> None:
    """Debug information of another version, or damaged, leaves the kernel readable: its lines are not known."""
    section = read_elf(LINES, "lines4.co").find_section(".debug_line")
    assert section is not None
    version = section.offset + 4
    damaged = LINES[:version] + b"\x63\x00" + LINES[version + 2 :]
    whole = Analyser()(Built(pack_bytes(LINES), "", "first", 64, 0, "clang"), DECLARED)
    found = Analyser()(Built(pack_bytes(damaged), "", "first", 64, 0, "clang"), DECLARED)
    assert whole.lines
    assert found == replace(whole, lines=())


def test_the_assembler_text_reaches_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing disassembles the object, the text that came with it is read, and scratch is known to it."""
    monkeypatch.setattr(decoding, "find_objdumps", lambda _arch: ())
    built = Built(
        pack_bytes(SAXPY), pack_bytes(b"saxpy:\n\tglobal_store_dword v0, v1, s[0:1]\n\ts_endpgm\n"), "saxpy", 64, 0, ""
    )
    assert Analyser()(built, DECLARED).instructions["global_store_4B"] == 1


def test_a_cubin_goes_the_same_way(tmp_path: Path, decodings: list[str]) -> None:
    """NVIDIA's objects are read and remembered by the same call."""
    data = (DATA / "kernels.sm_90.cubin").read_bytes()
    first = saxpy(tmp_path, data, kernel="saxpy", threads=128)
    assert (first.arch, first.name, first.threads, first.wave_size) == ("sm_90", "saxpy", 128, 32)
    assert saxpy(tmp_path, data, kernel="saxpy", threads=128) == first
    assert decodings == ["saxpy"]


LOOP = LoopEstimate(
    waves=2, cycles=4000.0, peak_cycles=2048.0, matrix_cycles=2048, vector_cycles=1800, lds_cycles=1312, matrix=128,
    valu=314, transcendental=34, salu=68, lds=48, loads=8, waits=35, barriers=2, flops=4 * 128 * 32 * 64,
    load_bytes=64 * 512 // 4,
)  # fmt: skip
"""64 keys and 32 rows of a head dimension of 128 by one of four waves."""

TILED = KernelBuild(
    "hip.best", "d128", "gfx942", HipSource(Path("k.hip"), "k", {"WAVES": "4", "ROW_TILES": "2", "BLOCK_N": "64"}),
    tile=KeyTile(4 * 128, 512, ("WAVES", "ROW_TILES"), 16),
)  # fmt: skip


def looped(flops: float = 1.0, load_bytes: float = 1.0) -> KernelCode:
    """A kernel of four waves with LOOP, and as many times its operations and loads."""
    scaled = {"flops": int(LOOP.flops * flops), "load_bytes": int(LOOP.load_bytes * load_bytes)}
    return replace(saxpy(None), threads=256, wave_size=64, key_loop=replace(LOOP, **scaled))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flops", "load_bytes", "keys", "repeated"),
    [(1, 1, 64, 1.0), (2, 2, 128, 1.0), (2.5, 1, 64, 2.5), (1, 2, 64, 1.0), (5, 2, 128, 2.5), (1.25, 0.25, 64, 1.25)],
)
def test_a_product_counts_once(
    flops: float, load_bytes: float, keys: int, repeated: float, decodings: list[str]
) -> None:
    """An unrolled loop has more keys; products of several waves, and loads of both sides of a branch, add none."""
    found = count_products_once(looped(flops, load_bytes), TILED).key_loop
    assert found is not None
    assert (found.keys, found.repeated) == (keys, repeated)
    assert found.peak_share == pytest.approx(LOOP.peak_share / repeated)


def test_without_a_tile_or_a_loop_nothing_is_counted(decodings: list[str]) -> None:
    """Other kernels declare no tile, and not every kernel has an estimate."""
    assert count_products_once(looped(2), DECLARED) == looped(2)
    assert count_products_once(replace(looped(), key_loop=None), TILED).key_loop is None


def test_a_tile_of_more_products_than_the_loop_has_is_refused(decodings: list[str]) -> None:
    """Then the declaration is wrong, and so would be the keys."""
    with pytest.raises(CodeObjectError, match=r"hip\.best-d128-gfx942: its key loop has 2,097,152 operations, too few"):
        count_products_once(looped(0.5), TILED)
