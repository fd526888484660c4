"""How long a run waits for a baseline store of many entries: opening it, finding one, pooling a suite.

    python benchmarks/scale_store.py [--entries 100000] [--suites 20] [--from baselines/sm_90/h200]

Copies stored entries under other keys, as many as asked for, into a temporary folder: spread over the suites, and all
in one. Each layout is read by a fresh process, of a folder that has just been written. Printed are

    open     a new store until its first entry was found, with the products of the suite, in seconds
    find     further entries of suites that are open already, of 1,000 at random, in milliseconds
    pool     the noise model of one suite, from all its entries, in seconds; load: all its entries
    peak     the most memory that the process held until then, in MB

Importing the package takes 0.1 to 0.2 s more and is not counted: a run has imported it anyway.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pytest_attnperf.baselines.schema import OPEN_LEVELS, json_text
from pytest_attnperf.baselines.store import BaselineStore

ARCH, PRODUCT = "sm_90", "h200"
FINDS = 1000


def main() -> None:
    """Write each layout, measure it in a fresh process, print a line for each."""
    options = _options()
    if options.read is not None:
        print(json.dumps(measured(options.read)))
        return
    for suites in sorted({options.suites, 1}, reverse=True):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            size = write_store(root, options.source, options.entries, suites)
            command = [sys.executable, __file__, "--read", str(root)]
            took = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(line_of(suites, options.entries, size, took))


def write_store(root: Path, source: Path, entries: int, suites: int) -> int:
    """A store of `entries` copies of those in `source`, spread over suites. Returns its size in bytes."""
    stored = [json.loads(path.read_bytes()) for path in sorted(source.glob("*.json"))]
    tables = {name: {k: v for file in stored for k, v in file[name].items()} for name in TABLES}
    texts = [
        (
            key,
            json_text({"": entry}, open_levels=OPEN_LEVELS - 1)
            .decode()
            .removeprefix('{\n  "": ')
            .removesuffix("\n}\n"),
        )
        for file in stored
        for key, entry in file["entries"].items()
    ]
    folder = root / ARCH / PRODUCT
    folder.mkdir(parents=True)
    per_suite = entries // suites
    return sum(_write_suite(folder, f"suite_{n:02d}", tables, texts, per_suite) for n in range(suites))


TABLES = ("environments", "policies", "canaries")


def _write_suite(folder: Path, suite: str, tables: dict[str, Any], texts: list[tuple[str, str]], entries: int) -> int:
    """One file, laid out as `schema.encode` does it: its entries as text, for encoding them takes a minute."""
    head = {"schema": 1, "suite": suite, "arch": ARCH, "product": PRODUCT} | tables | {"entries": {}}
    order = ["schema", "suite", "arch", "product", "environments", "policies", "entries", "canaries"]
    text = json_text({name: head[name] for name in order}, open_levels=OPEN_LEVELS).decode()
    before, after = text.split('  "entries": {},\n')
    copies = ((f"{texts[i % len(texts)][0]}-x{i}", texts[i % len(texts)][1]) for i in range(entries))
    lines = (f'    "{key}": {entry}'.replace("\n", "\n  ") for key, entry in sorted(copies))
    path = folder / f"{suite}.json"
    path.write_text(f'{before}  "entries": {{\n' + ",\n".join(lines) + f"\n  }},\n{after}")
    return path.stat().st_size


def measured(root: Path) -> dict[str, float]:
    """What a process that has only just started waits for."""
    paths = sorted((root / ARCH / PRODUCT).glob("*.json"))
    keys = {path.stem: _keys(path) for path in paths}
    first, before_mb = paths[0].stem, _peak_mb()
    begin = time.perf_counter()
    store = BaselineStore(root)
    assert store.list_products(ARCH, first) == [PRODUCT]
    assert store.find(ARCH, PRODUCT, first, keys[first][0]) is not None
    took = {"open_s": time.perf_counter() - begin, "before_mb": before_mb, "open_mb": _peak_mb()}
    others = time.perf_counter()
    for suite in keys:
        assert store.find(ARCH, PRODUCT, suite, "no such entry") is None
    took["others_s"] = time.perf_counter() - others
    chosen = random.Random(1)
    finds_ms = []
    for _ in range(FINDS):
        suite = chosen.choice(sorted(keys))
        key = chosen.choice(keys[suite])
        begin = time.perf_counter()
        assert store.find(ARCH, PRODUCT, suite, key) is not None
        finds_ms.append(1e3 * (time.perf_counter() - begin))
    took |= {"find_ms": statistics.median(finds_ms), "find_worst_ms": max(finds_ms), "find_mb": _peak_mb()}
    begin = time.perf_counter()
    store.noise_model(ARCH, PRODUCT, first)
    took |= {"pool_s": time.perf_counter() - begin, "pool_mb": _peak_mb()}
    begin = time.perf_counter()
    store.load(ARCH, PRODUCT, first)
    return took | {"load_s": time.perf_counter() - begin, "load_mb": _peak_mb()}


def _keys(path: Path) -> list[str]:
    """The keys of a file, without reading it as a store does."""
    with path.open() as lines:
        return [line[5 : line.index('": {')] for line in lines if line.startswith('    "') and "-x" in line[:400]]


def _peak_mb() -> float:
    """Of this process alone: what getrusage says begins with the peak of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1e3


def line_of(suites: int, entries: int, size: int, took: dict[str, float]) -> str:
    """One layout's figures."""
    return (
        f"{entries} entries in {suites} file{'s' * (suites > 1)}, {size / 1e6:.0f} MB: "
        f"open {took['open_s']:.3f} s, the {suites} files {took['open_s'] + took['others_s']:.3f} s; "
        f"find {took['find_ms']:.3f} ms, worst of {FINDS} {took['find_worst_ms']:.3f} ms; "
        f"pool a suite {took['pool_s']:.2f} s, load it {took['load_s']:.2f} s; peak MB: "
        f"{took['before_mb']:.0f} before, {took['open_mb']:.0f} opened, {took['find_mb']:.0f} found, "
        f"{took['pool_mb']:.0f} pooled, {took['load_mb']:.0f} loaded"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--suites", type=int, default=20)
    parser.add_argument("--from", dest="source", type=Path, default=Path("baselines") / ARCH / PRODUCT)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
