"""Analyses a code object's kernel: metadata, instructions, source lines. Results are cached on disk.

An analysis runs the disassembler in a process and reads the line table, which takes about 0.2 s. A suite has dozens of
objects that did not change since its last run.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from pytest_attnperf.codeobject.built import Built, assembly_text, object_bytes
from pytest_attnperf.codeobject.decoding import Decoded, decode_machine_code, disassembler_version
from pytest_attnperf.codeobject.instructions import Place
from pytest_attnperf.codeobject.issue_model import estimate_key_loop
from pytest_attnperf.codeobject.line_table import LineTable, read_line_table
from pytest_attnperf.codeobject.objects import ObjectContents, ObjectKernel, read_object, select_kernel
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.code import KernelCode

KEPT_RESULTS = 4000
"""Most files in the cache; the oldest are deleted."""


class Analyser:
    """Analyses code objects and caches the results under `folder` (None: no cache)."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._pruned = False

    def __call__(self, built: Built, declared: KernelBuild) -> KernelCode:
        """Returns the kernel of a build with instruction counts and source lines. Raises CodeObjectError for an object
        that cannot be read."""
        code = self.analyse(
            object_bytes(built),
            declared.id,
            arch=declared.arch,
            kernel=built.kernel,
            threads=built.threads,
            lds_dynamic_bytes=built.lds_dynamic_bytes,
            assembly=assembly_text(built),
            sources=built.sources,
            source_root=built.source_root,
        )
        return count_products_once(code, declared)

    def analyse(
        self,
        data: bytes,
        source: str,
        *,
        arch: str = "",
        kernel: str = "",
        threads: int = 0,
        lds_dynamic_bytes: int = 0,
        assembly: str = "",
        sources: Mapping[str, str] | None = None,
        source_root: str = "",
    ) -> KernelCode:
        """Returns one kernel of an object with instruction counts and source lines, from the cache if it is there.

        source     name of the object in errors
        arch       the wanted architecture in a bundle of several; '' takes the only one
        kernel     the kernel's name; '' takes the only one
        threads, lds_dynamic_bytes   as launched, where that is known
        assembly   the compiler's own assembler text, used if no disassembler is installed
        sources    hashes of the source files, whose lines are quoted
        source_root   base folder of relative paths in the line table, '' for the current one

        Raises CodeObjectError for an object that cannot be read, or lacks the kernel.
        """
        content = read_object(data, source, arch=arch)
        known = (kernel, arch, threads, lds_dynamic_bytes, assembly, source_root, sorted((sources or {}).items()))
        version = disassembler_version(content.arch, assembly=bool(assembly))
        key = hashlib.sha256(data + repr((known, version, _reader_version())).encode()).hexdigest()
        remembered = self._load_code(key)
        if remembered is not None:
            return remembered
        found = select_kernel(content, kernel, source)
        decoded = _decode_object(content, found, source, assembly, source_root)
        code = replace(
            found.code,
            threads=threads,
            lds_dynamic_bytes=lds_dynamic_bytes,
            instructions=decoded.instructions,
            in_loops=decoded.in_loops,
            undecoded=decoded.undecoded,
            lines=decoded.lines,
        )
        code = replace(code, key_loop=estimate_key_loop(code, decoded.innermost_loops))
        self._save_code(key, code)
        return code

    def _load_code(self, key: str) -> KernelCode | None:
        if self._folder is None:
            return None
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode((self._folder / f"{key}.json").read_bytes(), type=KernelCode)
        return None

    def _save_code(self, key: str, code: KernelCode) -> None:
        """Stores a result in the cache; deletes the oldest files beyond KEPT_RESULTS once per Analyser. A cache that
        cannot be written is ignored, because the result is still valid."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            write_atomically(self._folder / f"{key}.json", msgspec.json.encode(code))
            if not self._pruned:
                self._pruned = True
                kept = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
                for old in kept[:-KEPT_RESULTS]:
                    old.unlink(missing_ok=True)


def count_products_once(code: KernelCode, declared: KernelBuild) -> KernelCode:
    """Returns the kernel with the keys of its key loop's iteration, and how often the loop computes each product.

    An iteration has as many tiles as both its products and the bytes that a workgroup loads allow: several waves may
    compute one product, and both sides of a branch may load. Raises CodeObjectError for a declared tile of more
    products than the loop has."""
    loop, tile = code.key_loop, declared.tile
    if loop is None or tile is None:
        return code
    rows, keys = tile.read_sizes(declared.source)
    waves = code.workgroup // code.wave_size
    computed = loop.flops * waves / (tile.flops * rows * keys)
    if computed < 1:
        raise CodeObjectError(
            f"{declared.id}: its key loop has {loop.flops * waves:,} operations, too few for the tile of {keys} keys "
            f"and {rows} rows that it declares: {tile.flops * rows * keys:,}"
        )
    tiles = max(1, min(round(loop.load_bytes * waves / (tile.key_bytes * keys)), int(computed)))
    return replace(code, key_loop=replace(loop, keys=keys * tiles, repeated=round(computed / tiles, 4)))


def _decode_object(
    content: ObjectContents, found: ObjectKernel, source: str, assembly: str, source_root: str
) -> Decoded:
    try:
        table = read_line_table(content.elf, source)
    except CodeObjectError:
        table = LineTable((), ())  # compressed or damaged debug information: the kernel itself is still readable

    def find_place(address: int) -> Place | None:
        where = table.find_place(address)
        return None if where is None else (os.path.join(source_root, where[0]), where[1])

    return decode_machine_code(
        content.elf,
        content.arch,
        symbol=found.code.name,
        start=found.address,
        size=found.size,
        scratch_bytes=found.code.scratch_bytes,
        assembly=assembly,
        place=find_place,
    )


@functools.cache
def _reader_version() -> str:
    """Returns a hash of all files in pytest_attnperf/codeobject, because other versions may give other results."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
