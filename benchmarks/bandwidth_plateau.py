"""Bandwidth of this device by kind and size, beside its peak and beside the plateau that it sustains.

    .venv/bin/python benchmarks/bandwidth_plateau.py [--backend NAME] [--largest-mib N] [--json FILE]

Every size is timed hot: what fits the last-level cache is found there, which is what the sizes below it show. The
plateau of a kind is the fastest of the sizes of which a call moves more than four times that cache; the peak is the
data sheet's. A GPU is used where torch finds one, with the Triton kernels; else the CPU, with torch's operators.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

import kernels  # noqa: E402
from pytest_attnperf.backends import Registry  # noqa: E402
from pytest_attnperf.environment.device import identify_device  # noqa: E402
from pytest_attnperf.environment.device_specs import BYTES_PER_GB, BYTES_PER_MIB, spec_for  # noqa: E402
from pytest_attnperf.errors import UsageError  # noqa: E402
from pytest_attnperf.measure.cold_cache import TIMES_THE_CACHE, cold_size  # noqa: E402
from pytest_attnperf.measure.gpu_timer import gpu_timer  # noqa: E402
from pytest_attnperf.records import DeviceInfo  # noqa: E402
from pytest_attnperf.workloads.bandwidth import KINDS, Bandwidth  # noqa: E402

BLOCKS = 15
TIMES_BEYOND_CACHE = 4
"""A size is in memory when one call moves so many times the cache: at most a quarter of it can be found there."""
LARGEST_MIB = {"cpu": 256, "gpu": 4096}
US_PER_S = 1e6


@dataclass(frozen=True)
class Row:
    """One kind and size. gb_s: 10^9 bytes moved per second, the median of all blocks. Shares are None where unknown."""

    kind: str
    array_mib: int
    moved_bytes: float
    gb_s: float
    in_memory: bool
    share_of_peak: float | None = None
    share_of_plateau: float | None = None


def main() -> None:
    """Measure everything, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help="'triton.bandwidth' or 'native.copy_'")
    parser.add_argument("--largest-mib", type=int, metavar="N", help="size of the largest array, a power of two")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args()
    import torch

    torch_device = "cuda" if torch.cuda.is_available() else "cpu"
    device = identify_device(torch_device)
    name = options.backend or ("native.copy_" if device.kind == "cpu" else "triton.bandwidth")
    largest = options.largest_mib or LARGEST_MIB["cpu" if device.kind == "cpu" else "gpu"]
    if largest < 1:
        parser.error(f"--largest-mib must be at least 1, got {largest}")
    spec = spec_for(device)
    peak = None if spec is None else spec.peak_bytes_per_s / BYTES_PER_GB
    rows = [row for kind in KINDS for row in shared(measured(kind, sizes(largest), name, device, torch_device), peak)]
    print(f"{device.arch} {device.product}, {name}; peak {'unknown' if peak is None else f'{peak:.4g} GB/s'}")
    print(table(rows))
    if options.json:
        held = {"device": f"{device.arch} {device.product}", "backend": name, "peak_gb_s": peak}
        options.json.write_text(json.dumps({**held, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


def sizes(largest_mib: int) -> list[int]:
    """Powers of two from 1 MiB to the largest."""
    return [1 << power for power in range(largest_mib.bit_length()) if 1 << power <= largest_mib]


def measured(kind: str, array_mib: Iterable[int], name: str, device: DeviceInfo, torch_device: str) -> list[Row]:
    """A row for every size. Raises UsageError for a backend that cannot run here, with its reasons."""
    registry = Registry()
    kernels.register(registry)
    backend = registry.get(name)
    cache_bytes = cold_size(device).round_bytes / TIMES_THE_CACHE
    rows = []
    for mib in array_mib:
        workload = Bandwidth(kind, mib=mib)
        if reasons := backend.unsupported_reasons(workload, device):
            raise UsageError(f"{name} cannot run here: {'; '.join(reasons)}")
        prepared = backend.prepare(workload, workload.make_inputs(0, torch_device, planted=False))
        samples = gpu_timer(prepared.call, *prepared.tensors, blocks=BLOCKS)
        gb_s = workload.bytes_min / BYTES_PER_GB / (statistics.median(samples.block_us) / US_PER_S)
        in_memory = workload.bytes_min > TIMES_BEYOND_CACHE * cache_bytes
        rows.append(Row(kind, mib, workload.bytes_min, gb_s, in_memory))
    return rows


def shared(rows: Sequence[Row], peak_gb_s: float | None) -> list[Row]:
    """The rows of one kind with their shares of the peak and of the plateau."""
    plateau = max((row.gb_s for row in rows if row.in_memory), default=None)
    return [
        Row(
            **{
                **asdict(row),
                "share_of_peak": row.gb_s / peak_gb_s if peak_gb_s else None,
                "share_of_plateau": row.gb_s / plateau if plateau else None,
            }
        )
        for row in rows
    ]


def table(rows: Iterable[Row]) -> str:
    """Aligned text; '*' marks the sizes that the plateau is taken from."""
    lines = [f"{'kind':<6}  {'array MiB':>9}  {'moved MiB':>10}  {'GB/s':>8}  {'of peak':>7}  {'of plateau':>10}"]
    for row in rows:
        shares = ("-" if share is None else f"{share:.1%}" for share in (row.share_of_peak, row.share_of_plateau))
        of_peak, of_plateau = shares
        mark = " *" if row.in_memory else ""
        moved = row.moved_bytes / BYTES_PER_MIB
        lines.append(
            f"{row.kind:<6}  {row.array_mib:>9}  {moved:>10.1f}  {row.gb_s:>8.1f}  {of_peak:>7}  {of_plateau:>10}{mark}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
