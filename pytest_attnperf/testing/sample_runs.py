"""Makes whole runs of any size without measuring: for tests of reports, stores and tools that read results.

The figures are drawn from the seed and mean nothing. The device is called 'sample', so that nobody mistakes them for
measured ones.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

from pytest_attnperf import __version__
from pytest_attnperf.records import (
    CaseKey,
    CheckReport,
    DeviceInfo,
    ErrorFigures,
    Fingerprint,
    Launch,
    ProcessSummary,
    Verdict,
    WorkloadFigures,
)
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult

BACKENDS = ("native.eager", "native.sdpa_flash", "triton.flash", "hip.flash", "ck")
SEQUENCES = (128, 256, 512, 1024, 2048, 4096, 8192)
HEAD_DIMS = (64, 128, 256)
DTYPES = ("f16", "bf16")
BATCHES = (1, 2, 3, 4, 8, 16, 32, 64)
HEADS = (4, 8, 16, 32, 64, 128)
PROCESS_SD = 0.003
BLOCKS = 30
GATED = (Verdict.SAME, Verdict.FASTER, Verdict.SLOWER)
MIX = (
    *(Verdict.SAME,) * 80,
    *(Verdict.FASTER,) * 6,
    *(Verdict.SLOWER,) * 4,
    *(Verdict.UNDECIDED,) * 3,
    *(Verdict.NO_BASELINE,) * 3,
    *(Verdict.UNSUPPORTED,) * 3,
    Verdict.INCORRECT,
)
"""Verdicts in the proportions in which cases get them."""


def sample_run(
    cases: int = 60,
    *,
    seed: int = 0,
    started: str = "2026-01-01T00:00:00+00:00",
    commit: str = "4f2c1ab90d11",
    product: str = "sample",
    verdicts: Sequence[Verdict] = MIX,
) -> RunResult:
    """Returns the results of a made-up gating run of `cases` prefill cases, equal for equal arguments; verdicts are
    drawn from `verdicts`. Raises ValueError for more cases than there are shapes."""
    draw = random.Random(seed)
    device = DeviceInfo("cuda", "sm_90", product, product, 132, 141 << 30, "GPU-sample")
    fingerprint = Fingerprint(
        {"arch": "sm_90", "product": product, "timer": "graph", "method": "1"},
        {"torch": "2.11.0", "triton": "3.6.0", "driver": "580.00"},
    )
    keys = _make_keys(cases)
    made = tuple(_make_case(key, draw, draw.choice(verdicts), fingerprint, commit) for key in keys)
    return RunResult(
        schema=RESULTS_SCHEMA,
        version=__version__,
        mode="gate",
        started=started,
        command="pytest --attnperf suites/",
        commit=commit,
        device=device,
        fingerprint=fingerprint,
        cases=made,
        gated=sum(case.verdict in GATED for case in made),
        selected=len(made),
        seconds=2.5 * len(made),
        run_id=f"{draw.getrandbits(128):032x}",
        provenance={"branch": "main"},
    )


def _make_keys(count: int) -> list[CaseKey]:
    keys = [
        CaseKey("prefill", backend, f"prefill-b{batch}-s{seq}-h{heads}-d{head_dim}-{dtype}-causal")
        for batch in BATCHES
        for heads in HEADS
        for dtype in DTYPES
        for head_dim in HEAD_DIMS
        for seq in SEQUENCES
        for backend in BACKENDS
    ]
    if count > len(keys):
        raise ValueError(f"{count} sample cases were asked for; there are {len(keys)}")
    return keys[:count]


def _make_case(
    key: CaseKey, draw: random.Random, verdict: Verdict, fingerprint: Fingerprint, commit: str
) -> CaseResult:
    parts = key.workload.split("-")
    batch, seq, heads, head_dim = (int(part[1:]) for part in parts[1:5])
    flops = 2.0 * batch * heads * seq * seq * head_dim
    bytes_min = 8.0 * batch * heads * seq * head_dim
    rate = 1e14 * (1 + BACKENDS.index(key.backend)) * seq / (seq + 700)
    stored = 3.0 + flops / rate * 1e6
    base = CaseResult(
        key=key,
        nodeid=f"suites/test_prefill.py::test_prefill[{key.backend}-{key.workload}]",
        verdict=verdict,
        summary=f"{verdict.value}: a sample, measured by nobody",
        fails=verdict in (Verdict.SLOWER, Verdict.INCORRECT),
        policy={"threshold_percent": 2.0, "floor_us": 0.5},
        figures=WorkloadFigures(
            flops, bytes_min, parts[5], "hot", {"family": "prefill", "seq": seq, "head_dim": head_dim}
        ),
        fingerprint=fingerprint,
        config={"BLOCK_M": "128", "BLOCK_N": "64", "num_warps": "8"},
        reproduce=f'pytest --attnperf "suites/test_prefill.py::test_prefill[{key.backend}-{key.workload}]"',
        seconds=2.5,
    )
    if verdict is Verdict.UNSUPPORTED:
        return replace(base, reasons=("this sample backend has no such kernel",))
    if verdict is Verdict.INCORRECT:
        wrong = ErrorFigures("seed 1", "out", 6.85, 0.01, 0.1, 0.001, (0, 1, 2, 3), 7.25, 0.4, elements=64)
        return replace(base, checks=(CheckReport((wrong,), ("seed 1: 'out' is wrong",)),))
    return _add_times(base, draw, stored, max(bytes_min / 4e6, flops / 9e8), commit)


def _add_times(base: CaseResult, draw: random.Random, stored_us: float, floor_us: float, commit: str) -> CaseResult:
    change = {Verdict.SLOWER: 1.06, Verdict.FASTER: 0.95, Verdict.UNDECIDED: 1.022}.get(base.verdict, 1.0)
    first = tuple(_make_process(draw, stored_us * change, number) for number in range(1))
    second = tuple(_make_process(draw, stored_us * change, number) for number in range(1, 4)) if change > 1 else ()
    right = ErrorFigures("seed 1", "out", 1e-3, 2e-3, 1e-4, 2e-4, elements=64)
    timed = replace(
        base,
        first=first,
        second=second,
        median_us=statistics.median(process.median_us for process in second or first),
        checks=(CheckReport((right,)),),
        floor_us=min(floor_us, 0.9 * stored_us),
        floor_bound="compute",
        peak_memory_bytes=int(2 * (base.figures.bytes_min or 0)) if base.figures else None,
        launches=(Launch("sample_kernel", grid=(64, 8, 1), block=(256, 1, 1), shared_bytes=49152),),
    )
    if base.verdict is Verdict.NO_BASELINE:
        return timed
    before = tuple(_make_process(draw, stored_us, number).median_us for number in range(7))
    ratio = (timed.median_us or stored_us) / sorted(before)[3]
    error = PROCESS_SD * math.sqrt(1 / 7 + 1 / max(1, len(second)))
    return replace(
        timed,
        baseline_us=sorted(before)[3],
        ratio=ratio,
        interval=(ratio * (1 - 2 * error), ratio * (1 + 2 * error)),
        threshold=max(1.02, 1 + 3.5 * error),
        standard_error=error,
        degrees_of_freedom=40,
        stored_us=before,
        stored_commit=commit,
        stored_at="2025-12-01",
        detection_limit=max(1.02, 1 + 3.5 * error) / (1 - 2.4 * error) - 1,
    )


def _make_process(draw: random.Random, centre_us: float, number: int) -> ProcessSummary:
    bias = centre_us * draw.gauss(1, PROCESS_SD)
    blocks = tuple(float(f"{bias * draw.gauss(1, PROCESS_SD / 2):.5g}") for _ in range(BLOCKS))
    clocks = tuple(float(round(draw.gauss(1830, 12))) for _ in range(BLOCKS))
    return ProcessSummary(
        median_us=float(f"{statistics.median(blocks):.5g}"),
        min_us=min(blocks),
        mean_us=float(f"{sum(blocks) / BLOCKS:.5g}"),
        block_us=blocks,
        calls_per_block=40,
        timer="graph",
        device_id="GPU-sample",
        process=f"sample {number}",
        clock_mhz=statistics.median(clocks),
        block_clock_mhz=clocks,
    )
