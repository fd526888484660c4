"""What takes the bytes of a results file: bytes per timed case, untimed case and compiled kernel, and by field.

    python benchmarks/results_size.py [.attnperf/results.json]

Each has the bytes of its own lines, and an equal part of what stands once for the whole run. What stands once and only
compiled kernels refer to is theirs.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from tabulate import tabulate

MOST = 12
OF_KERNELS = ("code", "occupancy")
"""Tables of `shared` that are kernels' own, in a run that compiled some."""


def bytes_by_field(data: bytes) -> dict[str, tuple[int, Counter[str]]]:
    """By kind ('timed case', ...): how many there are, and bytes by field. All together are those of the file."""
    run = msgspec.json.decode(data)
    found: dict[str, tuple[int, Counter[str]]] = {}
    kinds = [("timed case" if case.get("median_us") is not None else "untimed case", case) for case in run["cases"]]
    for kind, record in [*kinds, *(("compiled kernel", kernel) for kernel in run["code"])]:
        count, fields = found.get(kind, (0, Counter[str]()))
        found[kind] = (count + 1, fields + _sizes(record))
    if run["code"]:
        tables = {name: run["shared"][name] for name in OF_KERNELS if name in run.get("shared", {})}
        found["compiled kernel"][1].update(_sizes(tables))
    once = len(data) - sum(fields.total() for _, fields in found.values())
    items = sum(count for count, _ in found.values())
    for count, fields in found.values():
        fields["(once for the run)"] = once * count // items
    return found


def _sizes(record: Mapping[str, Any]) -> Counter[str]:
    """Bytes of each field with its name and what stands between fields."""
    return Counter({name: len(msgspec.json.encode({name: value})) + 4 for name, value in record.items()})


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=Path(".attnperf/results.json"))
    for kind, (count, fields) in bytes_by_field(parser.parse_args().results.read_bytes()).items():
        print(f"{count} x {kind}, {fields.total() / count:.0f} bytes each:")
        print(tabulate([(name, f"{size / count:.0f}") for name, size in fields.most_common(MOST)], ("field", "bytes")))


if __name__ == "__main__":
    main()
