"""What reading a large kernel trace costs: seconds, rows per second and memory of this process. No GPU is needed.

    python benchmarks/read_trace.py [--rows 1000000] [--json FILE]

Writes a trace as rocprofv3 of ROCm 7 does (22 columns, 60 kernels in 3 sizes each, rows a little out of order) into a
temporary folder, reads it, and summarises it. Exits with 1 when a limit is missed or a total differs.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from pytest_attnperf.tools.profilers.profile_summary import summarise_profile  # noqa: E402
from pytest_attnperf.tools.profilers.reading import read_profile  # noqa: E402

TOTAL_LIMIT_S = 10.0
"""Of a million rows."""
MEMORY_LIMIT_MB = 600.0

COLUMNS: tuple[str, ...] = (
    "Kind",
    "Agent_Id",
    "Queue_Id",
    "Stream_Id",
    "Thread_Id",
    "Dispatch_Id",
    "Kernel_Id",
    "Kernel_Name",
)
COLUMNS += ("Correlation_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size", "Scratch_Size", "VGPR_Count")
COLUMNS += ("Accum_VGPR_Count", "SGPR_Count", "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z")
COLUMNS += ("Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z")
KERNELS = 60
SIZES = 3
SWAPPED = 8
"""One row in so many changes places with the next."""


def main() -> int:
    """Write, read, summarise; print what each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attnperf-trace-") as folder:
        path = Path(folder) / "made_kernel_trace.csv"
        expected_ns = write_trace(path, options.rows)
        size_mb = path.stat().st_size / 1e6
        before = time.perf_counter(), time.process_time()
        profile = read_profile(path)
        between = time.perf_counter(), time.process_time()
        summary = summarise_profile(profile)
        after = time.perf_counter(), time.process_time()
    figures = {
        "rows": options.rows,
        "file_mb": size_mb,
        "read_s": between[0] - before[0],
        "read_cpu_s": between[1] - before[1],
        "summarise_s": after[0] - between[0],
        "summarise_cpu_s": after[1] - between[1],
        "rows_per_s": options.rows / (between[0] - before[0]),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    for name, value in figures.items():
        print(f"{name:<16} {value:14,.2f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    right = len(profile.dispatches) == options.rows and summary.total_ns == expected_ns
    if not right:
        print(f"totals differ: {summary.total_ns} ns of {len(profile.dispatches)} rows, written were {expected_ns} ns")
    kept = after[0] - before[0] < TOTAL_LIMIT_S * options.rows / 1e6 and figures["peak_mb"] < MEMORY_LIMIT_MB
    print(f"limits of {TOTAL_LIMIT_S:g} s per million rows and {MEMORY_LIMIT_MB:g} MB: {'ok' if kept else 'MISSED'}")
    return 0 if right and kept else 1


def write_trace(path: Path, rows: int) -> int:
    """Write that many rows; nanoseconds of all of them."""
    total = 0
    with path.open("w") as file:
        file.write(",".join(f'"{name}"' for name in COLUMNS) + "\n")
        for duration, line in lines(rows):
            total += duration
            file.write(line)
    return total


def lines(rows: int) -> Iterator[tuple[int, str]]:
    """(nanoseconds, line) of each dispatch; the same at every call."""
    draw = random.Random(0)
    names = [kernel_name(number) for number in range(KERNELS)]
    clock = 4_484_384_343_929_154
    held: tuple[int, str] | None = None
    for number in range(1, rows + 1):
        kernel, size, duration = draw.randrange(KERNELS), draw.randrange(SIZES), draw.randrange(2000, 60000)
        line = (
            f'"KERNEL_DISPATCH","Agent 4",1,1,834304,{number},{kernel + 10},"{names[kernel]}",{number},{clock},'
            f"{clock + duration},{512 * size},0,{8 * (kernel % 16 + 1)},0,16,256,1,1,{8192 << size},{kernel + 1},1\n"
        )
        clock += duration + 300
        if held is None and number % SWAPPED == 0:
            held = (duration, line)
            continue
        yield duration, line
        if held is not None:
            yield held
            held = None
    if held is not None:
        yield held


def kernel_name(number: int) -> str:
    """As long as those of PyTorch's and of rocBLAS's kernels, with commas."""
    if number % 2:
        return f"Cijk_Alik_Bljk_HHS_BH_Bias_HA_S_SAV_UserArgs_MT{number}x64x32_MI16x16x1_SN_LDSB0_AFC1_ISA942_WG32_4_1"
    functor = (
        f"at::native::AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float, {number}> >"
    )
    return (
        f"void at::native::vectorized_elementwise_kernel<4, {functor}, at::detail::Array<char*, 2> >(int, {functor}, "
        "at::detail::Array<char*, 2>)"
    )


if __name__ == "__main__":
    sys.exit(main())
