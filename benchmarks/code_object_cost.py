"""What the code-object suite costs, and whether its hashes hold from one place to the next. From a set-up environment:

    .venv/bin/python benchmarks/code_object_cost.py [--arch all] [--json FILE]

Copies the tree twice into different folders, runs the suite in the first with empty caches and again with full ones,
and in the second with empty ones. Exits with 1 when a limit is missed or a hash differs. Wall times of whole processes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pytest_attnperf.reports.files import json_results

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("kernels", "suites", "baselines", "conftest.py", "pyproject.toml")

COLD_LIMIT_S = 60.0
WARM_LIMIT_S = 5.0
ALL_LIMIT_S = 300.0


def main() -> int:
    """Run the suite three times, print what it took, and say whether every limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="", metavar="ARCHS", help="as --attnperf-arch takes it; default gfx942")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args()
    limit = ALL_LIMIT_S if options.arch == "all" else COLD_LIMIT_S
    with tempfile.TemporaryDirectory(prefix="attnperf-code-") as name:
        first, second = copy_of(Path(name) / "one"), copy_of(Path(name) / "another" / "checkout")
        cold_s, hashes = run(first, options.arch)
        warm_s, again = run(first, options.arch)
        other_s, elsewhere = run(second, options.arch)
    differing = sorted(key for key in hashes if {again.get(key), elsewhere.get(key)} != {hashes[key]})
    rows = [
        ("cold", cold_s, limit),
        ("warm", warm_s, WARM_LIMIT_S if not options.arch else None),
        ("cold, in another folder", other_s, limit),
    ]
    print(f"{len(hashes)} code objects, {len(os.sched_getaffinity(0))} cores, {options.arch or 'gfx942'}")
    for what, seconds, allowed in rows:
        verdict = "" if allowed is None else f"limit {allowed:g} s: {'ok' if seconds < allowed else 'MISSED'}"
        print(f"{what:<26} {seconds:7.1f} s  {verdict}")
    print(f"hashes that differ between two folders, or with full caches: {len(differing)} of {len(hashes)}")
    for key in differing:
        print(f"  {key}: {hashes[key]}, {again.get(key)}, {elsewhere.get(key)}")
    if options.json:
        figures = {"objects": len(hashes), "cold_s": cold_s, "warm_s": warm_s, "other_s": other_s, "differ": differing}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    kept = all(allowed is None or seconds < allowed for _, seconds, allowed in rows)
    return 0 if kept and hashes and not differing else 1


def copy_of(folder: Path) -> Path:
    """What the suite needs of this tree, in a folder of its own, without any cache."""
    folder.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    return folder


def run(tree: Path, archs: str) -> tuple[float, dict[str, str]]:
    """Seconds of one whole run of the suite in `tree`, and the hash of every code object by its key."""
    command = [sys.executable, "-m", "pytest", "--attnperf", "--no-attnperf-strict", "-q", "-p", "no:randomly"]
    command += [f"--attnperf-arch={archs}"] if archs else []
    environment = os.environ | {"TRITON_CACHE_DIR": str(tree / "triton-cache")}
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "suites/test_code_objects.py"],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        print(done.stdout[-3000:], done.stderr[-1000:], sep="\n", file=sys.stderr)
        raise SystemExit(f"the suite failed in {tree.name}, exit status {done.returncode}")
    built = json_results.read(tree / ".attnperf" / "results.json").code
    return seconds, {
        "/".join((one.key.backend, one.key.workload, one.key.label)): one.code.isa_hash
        for one in built
        if one.code is not None
    }


if __name__ == "__main__":
    sys.exit(main())
