"""The bandwidth workloads that are gated, after STREAM (McCalpin 1995): kinds, and arrays larger than any cache.

Lines as `--attnperf-workload` takes them: a kind, and the size of each array in MiB or KiB.
`benchmarks/bandwidth_plateau.py` measures all sizes from 1 MiB on.
"""

from __future__ import annotations

from pytest_attnperf.workloads.bandwidth import Bandwidth

BANDWIDTH = [
    Bandwidth.parse_line(line)
    for line in ("copy,mib=1", "copy,mib=2048", "read,mib=2048", "write,mib=2048", "triad,mib=1024")
]
"""One small enough for a CPU and for Triton's interpreter; the others move 2 to 4 GiB, more than four times MI300X's
cache of 256 MiB."""
