"""Stores ceilings of devices: `<root>/<arch>/<product>/ceilings/<compute units>.json`, replaced whole under a lock.

The folder keeps them apart from suites' files, which lie next to it. There is one file for each number of compute
units, because a partitioned card shows only a part of them and reaches a part of the rates.

Format history: 1 = first published form.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from pytest_attnperf import __version__
from pytest_attnperf.baselines.schema import json_text, named_errors, require_schema, to_plain
from pytest_attnperf.baselines.store import read_content, require_plain_name
from pytest_attnperf.baselines.writing import lock_file
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.measure.ceiling_walk import FLOPS
from pytest_attnperf.measure.ceilings import CACHE, COPY, EAGER, LAUNCH, OBLONG, READ, ProcessCeilings
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.rooflines import DeviceCeilings
from pytest_attnperf.stats.summaries import STORED_DIGITS

V = TypeVar("V")

CEILINGS_SCHEMA = 1
FOLDER = "ceilings"
NAME_MOST = 80
"""Most characters of an unknown field's name in a message."""
OPEN_LEVELS = 3
"""JSON levels with one line per item: the file, its parts, the parts' figures."""


@dataclass(frozen=True)
class StoredCeilings:
    """The result of `attnperf doctor --calibrate`, as stored.

    values        every process's figure, by figure, in the order in which they ran; `ceilings` has their medians
    oblong        'f16 oblong' and the like: rates of products that are not square
    left_out      the reason for each missing figure
    clock_mhz     median compute clock while a figure was measured, where it is known
    environment   of the processes, as in a fingerprint: power cap, partitions, ...
    notes         limitations of figures, each 'figure: note'
    """

    schema: int
    ceilings: DeviceCeilings
    values: dict[str, tuple[float, ...]] = field(default_factory=dict)
    oblong: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    clock_mhz: dict[str, float] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    harness_version: str = ""


class CeilingsStore:
    """Ceilings under one or more roots; a file of an earlier root hides those of later ones."""

    def __init__(self, *roots: Path) -> None:
        if not roots:
            raise ValueError("a store of ceilings needs at least one root folder")
        self.roots = roots

    def find(self, device: DeviceInfo) -> StoredCeilings | None:
        """Returns the ceilings stored for this arch, product and number of compute units; None where none are stored.

        Raises BaselineError for an invalid file.
        """
        for root in self.roots:
            path = ceilings_path(root, device.arch, device.product, device.compute_units)
            if path.exists():
                return read_ceilings(path)
        return None

    def write(self, root: Path, stored: StoredCeilings) -> Path:
        """Writes the ceilings to the file of their device under `root`, replacing it, and returns its path.

        Raises BaselineError, and writes nothing, when they are invalid, the present file cannot be read, or it stays
        locked.
        """
        found = stored.ceilings
        path = ceilings_path(root, found.arch, found.product, found.compute_units)
        _refuse_unsound(stored, f"the ceilings to be written to {path}")
        data = encode_ceilings(stored)
        decode_ceilings(data, f"the new text of {path}")
        with lock_file(path):
            if path.exists():
                read_ceilings(path)
            write_atomically(path, data)
        return path


def compute_median_ceilings(found: Sequence[ProcessCeilings], measured: str) -> StoredCeilings:
    """Returns the medians of the figures of fresh processes on one device. `measured` is the date, YYYY-MM-DD.

    A figure that one process lacks is left out with its reason, so that every figure comes from the same processes.
    Raises BaselineError when the processes ran on different devices.
    """
    device = found[0].device
    for other in found[1:]:
        if shape_of(other.device) != shape_of(device):
            raise BaselineError(
                f"the processes of one calibration ran on {shape_of(device)} and on {shape_of(other.device)}; make one "
                "GPU visible, and run again"
            )
    several = len(found) > 1
    left_out = {name: reason for one in found for name, reason in one.left_out.items()}
    figures = {name: [one.figures[name] for one in found] for name in found[0].figures if name not in left_out}
    values = {name: tuple(figure.value for figure in each) for name, each in figures.items()}
    middle = {name: float(f"{statistics.median(each):.{STORED_DIGITS}g}") for name, each in values.items()}
    nearest = {name: min(each, key=lambda one: abs(one.value - middle[name])) for name, each in figures.items()}
    rates = {name: middle[name] for name, figure in nearest.items() if figure.unit == FLOPS}
    ceilings = DeviceCeilings(
        arch=device.arch,
        product=device.product,
        compute_units=device.compute_units,
        flops_per_s={name: rate for name, rate in rates.items() if name != OBLONG},
        copy_bytes_per_s=middle.get(COPY),
        read_bytes_per_s=middle.get(READ),
        cache_bytes_per_s=middle.get(CACHE),
        launch_us=middle.get(LAUNCH),
        eager_launch_us=middle.get(EAGER),
        sizes={name: figure.size for name, figure in nearest.items()},
        spread={name: float(f"{max(each) / min(each) - 1:.3g}") for name, each in values.items() if several},
        processes=len(found),
        software=found[0].fingerprint.named,
        measured=measured,
    )
    clocks = {name: [one.clock_mhz for one in each if one.clock_mhz is not None] for name, each in figures.items()}
    return StoredCeilings(
        schema=CEILINGS_SCHEMA,
        ceilings=ceilings,
        values={name: tuple(float(f"{value:.{STORED_DIGITS}g}") for value in each) for name, each in values.items()},
        oblong={name: rate for name, rate in rates.items() if name == OBLONG},
        left_out=left_out,
        clock_mhz={name: round(statistics.median(each), 1) for name, each in clocks.items() if each},
        environment=found[0].fingerprint.must_match,
        notes=tuple(dict.fromkeys(f"{name}: {one.note}" for name, each in figures.items() for one in each if one.note)),
        harness_version=__version__,
    )


def drop_figures(stored: StoredCeilings, refused: Mapping[str, str]) -> StoredCeilings:
    """Returns the ceilings without the figures that `refused` names; their reasons are added to `left_out`."""
    found = stored.ceilings

    def keep_figures(figures: dict[str, V]) -> dict[str, V]:
        return {name: value for name, value in figures.items() if name not in refused}

    ceilings = replace(
        found,
        flops_per_s=keep_figures(found.flops_per_s),
        copy_bytes_per_s=None if COPY in refused else found.copy_bytes_per_s,
        read_bytes_per_s=None if READ in refused else found.read_bytes_per_s,
        sizes=keep_figures(found.sizes),
        spread=keep_figures(found.spread),
    )
    return replace(
        stored,
        ceilings=ceilings,
        values=keep_figures(stored.values),
        oblong=keep_figures(stored.oblong),
        clock_mhz=keep_figures(stored.clock_mhz),
        left_out={**stored.left_out, **refused},
        notes=tuple(note for note in stored.notes if note.partition(": ")[0] not in refused),
    )


def figures_of(stored: StoredCeilings) -> dict[str, float]:
    """Returns every known figure by its name, e.g. 'copy', 'launch': in FLOP/s, B/s or, for launches, microseconds."""
    found = stored.ceilings
    named = {
        COPY: found.copy_bytes_per_s,
        READ: found.read_bytes_per_s,
        CACHE: found.cache_bytes_per_s,
        LAUNCH: found.launch_us,
        EAGER: found.eager_launch_us,
    }
    return {**found.flops_per_s, **stored.oblong, **{name: value for name, value in named.items() if value is not None}}


def refuse_root(root: Path) -> None:
    """Raises BaselineError if `root`, or the nearest existing folder above it, is no folder that can be written to."""
    there = next(folder for folder in (root, *root.absolute().parents) if folder.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        what = "cannot be written to" if there.is_dir() else "is not a folder"
        raise BaselineError(f"{root}: {there} {what}; name another folder")


def shape_of(device: DeviceInfo | DeviceCeilings) -> str:
    """Returns e.g. 'gfx942 mi300x with 304 compute units': the text that identifies what ceilings belong to."""
    return f"{device.arch} {device.product} with {device.compute_units} compute units"


def ceilings_for(root: Path, device: DeviceInfo) -> DeviceCeilings | None:
    """Returns the ceilings stored under `root` for this arch, product and number of compute units; None without any.

    Raises BaselineError for an invalid file.
    """
    stored = CeilingsStore(root).find(device)
    return stored.ceilings if stored is not None else None


def ceilings_path(root: Path, arch: str, product: str, compute_units: int) -> Path:
    """Returns `<root>/<arch>/<product>/ceilings/<compute units>.json`. Raises BaselineError for names with '/' etc."""
    folder = root / require_plain_name("arch", arch) / require_plain_name("product", product)
    return folder / FOLDER / f"{compute_units}.json"


def read_ceilings(path: Path) -> StoredCeilings:
    """Reads a file of ceilings. Raises BaselineError if it is invalid, or of another device than its path says."""
    stored = decode_ceilings(read_content(path), str(path))
    found = stored.ceilings
    said = (found.arch, found.product, str(found.compute_units))
    expected = (path.parents[2].name, path.parents[1].name, path.stem)
    if said != expected:
        raise BaselineError(
            f"{path}: holds ceilings of {' / '.join(said)[:NAME_MOST]}, "
            f"but its path says {' / '.join(expected)}: restore it"
        )
    return stored


def decode_ceilings(data: bytes, source: str) -> StoredCeilings:
    """Returns the ceilings that the bytes of a ceilings file hold; `source` names the file in errors.

    Raises BaselineError naming the field for anything but a valid file of this schema: truncated or malformed JSON,
    another schema, an unknown field, a wrong type, or an impossible figure.
    """
    require_schema(data, source, CEILINGS_SCHEMA)
    with named_errors(data, source, StoredCeilings):
        stored = msgspec.json.decode(data, type=StoredCeilings)
        unknown = sorted(_unknown_keys(msgspec.json.decode(data), to_plain(stored), ""))
    if unknown:
        raise BaselineError(f"{source}: this version does not know {', '.join(unknown[:5])}. {_AGAIN}")
    _refuse_unsound(stored, source)
    return stored


def encode_ceilings(stored: StoredCeilings) -> bytes:
    """Returns a ceilings file's JSON text: deterministic, keys sorted, a line per figure, a newline at the end."""
    return json_text(to_plain(stored), open_levels=OPEN_LEVELS)


_AGAIN = "Use the pytest-attnperf that wrote it, or remove it and run `attnperf doctor --calibrate` again"


def _unknown_keys(read: object, kept: object, path: str) -> Iterator[str]:
    """Yields keys of `read` (a file's JSON) that `kept` (its decoded content) lacks, quoted, with `path` in front."""
    if not (isinstance(read, dict) and isinstance(kept, dict)):
        return
    for key, value in read.items():
        if key not in kept:
            yield f"`{path}{key[:NAME_MOST]}`"
        else:
            yield from _unknown_keys(value, kept[key], f"{path}{key}.")


def _refuse_unsound(stored: StoredCeilings, source: str) -> None:
    for problem in _list_problems(stored):
        raise BaselineError(f"{source}: {problem}. {_AGAIN}")


def _list_problems(stored: StoredCeilings) -> Iterator[str]:
    """Yields figures that types allow but no measurement gives: not finite, not above 0, or of no process."""
    found = stored.ceilings
    if found.processes < 1 or found.compute_units < 1:
        yield f"{found.processes} processes on {found.compute_units} compute units measured nothing"
    named = figures_of(stored)
    named |= {f"{name} of process {at}": one for name, each in stored.values.items() for at, one in enumerate(each, 1)}
    for name, value in named.items():
        if not (math.isfinite(value) and value > 0):
            yield f"the figure `{name}` is {value}, expected a finite number above 0"
    for name, spread in found.spread.items():
        if not (math.isfinite(spread) and spread >= 0):
            yield f"field `ceilings.spread.{name}` is {spread}, expected a finite number, 0 or more"
