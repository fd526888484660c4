"""aiter's tables of tuned 16-bit matrix multiplications (CSV), and the row that its dispatcher takes for a workload.

`aiter.tuned_gemm.get_GEMM_A16W16_config` (commit 0584e04d7f) looks a row up by architecture, number of CUs, M, N, K,
bias and types: with M itself, then with M padded finely, then to a power of two (`getPaddedM`, csrc). N and K are never
padded. Without a row it calls torch or a kernel for few rows. The table is configs/bf16_tuned_gemm.csv and those of
configs/model_configs, or the files that the variable AITER_CONFIG_GEMM_BF16 names. Read from its source, never run.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kernels.aiter.config_files import aiter_root
from pytest_attnperf.errors import UnsupportedError, UsageError
from pytest_attnperf.records.regular_file import describe_os_error, read_regular
from pytest_attnperf.records.tuned_tables import Coverage, TableEntry

if TYPE_CHECKING:
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.gemm import Gemm

KERNEL = "tuned_gemm"
FOLDER = "aiter/configs"
NAME = "bf16_tuned_gemm"
VARIABLE = "AITER_CONFIG_GEMM_BF16"
"""Environment variable with which aiter reads other tables, several separated by `os.pathsep`."""

KEY = ("gfx", "cu_num", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle")
"""Columns of the key, in aiter's order."""
NUMBERS = frozenset({"cu_num", "M", "N", "K"})
FLAGS = {"False": False, "True": True}
TYPES = {"f16": "torch.float16", "bf16": "torch.bfloat16"}

BYTES_MAX, ROWS_MAX, CELL_MAX = 16 << 20, 200_000, 2000
NUMBER_DIGITS = 9

Key: TypeAlias = tuple[str | int | bool, ...]
Places: TypeAlias = Mapping[Key, tuple[str, int]]
"""Key -> file and line of its row."""

NO_TILES = "aiter's table names a kernel, not its tiles"


def find_gemm_entry(workload: Gemm, device: DeviceInfo) -> TableEntry:
    """Returns the row that aiter's dispatcher takes for a workload on a device with this arch and these compute units.
    Raises UnsupportedError for a type that the table does not have, or without an aiter, UsageError naming the file
    for one that is malformed, empty, or has a key twice."""
    if workload.dtype not in TYPES or workload.out_dtype != workload.dtype:
        raise UnsupportedError(f"aiter's table {NAME} has {' and '.join(TYPES)} only, not {workload.dtype}")
    rows = read_tables(list_tables())
    typed = TYPES[workload.dtype]
    for size_m in list_sizes(workload.size_m, workload.size_n):
        sizes = (size_m, workload.size_n, workload.size_k)
        key: Key = (device.arch, device.compute_units, *sizes, False, typed, typed, False, False)
        if key not in rows:
            continue
        apart = {} if size_m == workload.size_m else {"M": (size_m, workload.size_m)}
        coverage = Coverage.NEAREST if apart else Coverage.EXACT
        file, line = rows[key]
        named = f"line {line}: M {sizes[0]}, N {sizes[1]}, K {sizes[2]}, {workload.dtype}, {device.compute_units} CUs"
        return TableEntry(KERNEL, file, named, coverage, apart, no_tiles=NO_TILES, tunable=False)
    return TableEntry(KERNEL, "", "", Coverage.NONE, no_tiles="no row serves it", tunable=False)


def list_sizes(size_m: int, size_n: int) -> list[int]:
    """Returns the values of M that aiter looks up, in its order, each once."""
    power = 1 << (size_m - 1).bit_length()
    if size_m < 16:
        fine = power
    else:
        step = 16 if size_m <= 256 else 32 if size_m <= 1024 else 64 if size_m <= 4096 else 128
        fine = -(-size_m // step) * step
    coarse = 8192 if size_m > 8192 and size_n > 4096 else power
    return list(dict.fromkeys((size_m, fine, coarse)))


def list_tables() -> list[Path]:
    """Returns the tables that aiter reads. Raises UnsupportedError where neither an aiter nor its table is found."""
    if given := os.environ.get(VARIABLE, ""):
        return [Path(name) for name in given.split(os.pathsep) if name]
    try:
        folder = aiter_root() / FOLDER
    except UsageError as error:
        raise UnsupportedError(str(error)) from error
    models = [path for path in folder.glob(f"model_configs/*{NAME}*.csv") if "untuned" not in path.name]
    found = [path for path in (folder / f"{NAME}.csv", *sorted(models)) if path.is_file()]
    if not found:
        raise UnsupportedError(f"{folder} has no {NAME}.csv; set {VARIABLE} to one")
    return found


def read_tables(paths: Iterable[Path]) -> Places:
    """Returns the rows of all tables by key. Rows that are equal in every cell count as one, as for aiter. Raises
    UsageError for two others with one key: which of them counts depends on aiter's version."""
    found: dict[Key, tuple[str, int]] = {}
    cells: dict[Key, list[str]] = {}
    for path in paths:
        for line, key, row in _read_rows(path):
            if key in found and cells[key] != row:
                raise UsageError(
                    f"{path}:{line}: the key {dict(zip(KEY, key, strict=True))} stands in "
                    f"{found[key][0]}:{found[key][1]} already, with other values; remove one of the rows"
                )
            found.setdefault(key, (path.name, line))
            cells.setdefault(key, row)
    return found


def _read_rows(path: Path) -> Iterator[tuple[int, Key, list[str]]]:
    """Yields (line, key, cells) of a table's rows. Raises UsageError for a file that is no such table or is cut off."""
    try:
        text = read_regular(path, BYTES_MAX).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = describe_os_error(error) if isinstance(error, OSError) else f"{path} is no UTF-8 text"
        raise UsageError(f"{why}; take the table from ROCm/aiter") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, [])
        if lacking := [name for name in KEY if header.count(name) != 1]:
            raise UsageError(
                f"{path}: needs the columns {', '.join(KEY)} once each; {', '.join(lacking)} is missing or repeated. "
                "The table is empty, cut off, or older than the column gfx: take one from ROCm/aiter"
            )
        places = [header.index(name) for name in KEY]
        count = 0
        for row in reader:
            if not row:
                continue
            count += 1
            yield reader.line_num, _parse_key(f"{path}:{reader.line_num}", header, row, places), row
            if count > ROWS_MAX:
                raise UsageError(f"{path} has more than {ROWS_MAX:,} rows; no table of aiter's is that long")
    except csv.Error as error:
        raise UsageError(f"{path}:{reader.line_num}: is no CSV ({error}); take the table from ROCm/aiter") from error
    if not count:
        raise UsageError(f"{path} has no rows; take the table from ROCm/aiter, or remove it")


def _parse_key(where: str, header: list[str], row: list[str], places: list[int]) -> Key:
    if len(row) != len(header) or any(len(cell) > CELL_MAX for cell in row):
        raise UsageError(f"{where}: has {len(row)} cells, the header {len(header)}; the row is cut off or damaged")
    return tuple(_parse_cell(where, name, row[place].strip()) for name, place in zip(KEY, places, strict=True))


def _parse_cell(where: str, name: str, text: str) -> str | int | bool:
    if name in NUMBERS:
        if text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS and int(text) > 0:
            return int(text)
        raise UsageError(f"{where}: {name} is {text[:40]!r}, must be a whole number from 1 to {10**NUMBER_DIGITS - 1}")
    if name in ("bias", "scaleAB", "bpreshuffle"):
        if text in FLAGS:
            return FLAGS[text]
        raise UsageError(f"{where}: {name} is {text[:40]!r}, must be True or False")
    return text
