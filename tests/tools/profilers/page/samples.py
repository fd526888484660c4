"""Profiles of few lines, and those that profilers wrote."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pytest_attnperf.records.profiles import KernelShape, ProfileSource
from pytest_attnperf.tools.profilers.analysed_profile import AnalysedProfile
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.profile_summary import analyse_profile
from pytest_attnperf.tools.profilers.reading import read_profile

PROFILES = Path(__file__).parents[3] / "data" / "profiles"
REAL = (
    "public/mi300_owlv2.json.gz",
    "public/mi300_resnet_training.json.gz",
    "public/b200_eager.json.gz",
    "rocprofv3_rocm70/kernel_trace.csv",
    "hip_rocm64/04_kernel_trace.csv",
    "rocprof_v1/whole_run.stats.csv",
)
"""Traces of several profilers, with and without passes, and one of sums alone."""

SCRIPT = "</script><script>window.pwned=1</script>"
TEMPLATE = f"void ns::kernel<{', '.join(f'Trait<{number}, float>' for number in range(120))}>(float const*, int)"
"""A C++ name of more than 2,000 characters."""

HOSTILE = (
    SCRIPT,
    TEMPLATE,
    f"{TEMPLATE}x",
    "\x1b[31m\ud800red\u202e",
    "<svg onload=window.pwned=1>",
    "{{7*7}}",
    "::",
    " ",
)

Row = tuple[str, str, str, int, int]
"""(kernel, device, queue, start_ns, end_ns)."""


def make_analysed(rows: Iterable[Row], *, kind: str = "kernel", passes: int | None = None) -> AnalysedProfile:
    """A profile of these dispatches."""
    builder = DispatchesBuilder()
    for name, agent, queue, start, end in rows:
        builder.add(builder.number_of(KernelShape(name, kind, agent)), start, end, builder.queue_number_of(queue))
    source = ProfileSource("x_kernel_trace.csv", "rocprofv3 kernel_trace", "ROCm 7.0 or later", len(builder))
    return analyse_profile(Profile("run", (source,), builder.build()), passes=passes)


def make_network(passes: int = 4, layers: int = 3) -> AnalysedProfile:
    """Passes of so many layers on one stream, 10 us apart."""
    rows: list[Row] = []
    now = 1000
    for _ in range(passes):
        names = ["embed_kernel", *("Cijk_Ailk_Bljk_HB_MT64x64", "flash_attention_kernel", "layer_norm") * layers]
        for name in [*names, "lm_head_kernel"]:
            rows.append((name, "Agent 1", "stream 1", now, now + 2000))
            now += 2100
        now += 10_000
    return make_analysed(rows)


def read_analysed(name: str) -> AnalysedProfile:
    """One of the stored profiles."""
    return analyse_profile(read_profile(PROFILES / name))
