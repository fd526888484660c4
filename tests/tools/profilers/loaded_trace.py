"""A trace of a model that loads first, generated after the figures of a public rocprofv3 trace of a chess network on
gfx1151: 1,953 dispatches, of which 708 load the model and 1,245 are five identical runs of 249."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_attnperf.records.profiles import KernelShape, ProfileSource
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.profile import Profile

LOADED, EACH, PASSES, LAYERS = 708, 249, 5, 15
IDLE_SHARES = (0.30, 0.056, 0.055, 0.098, 0.056)
"""Of each pass, the share of its span without work; 91 % of loading is without."""

LOADING_IDLE = 0.91
CONVERTED = "void copyTypeConverted_kernel<__half, float>(__half*, float*, int)"
COPY = "void preprocess_for_attention_body_kernel<__half>(__half*, __half const*, int)"
"""Copies inputs into another layout, in spite of its name."""

FLASH = "flash_attention_kernel"
TENSILE = "Cijk_Alik_Bljk_HHS_BH_MT64x64x32_MI16x16x1_SN_LDSB0_AFC1_AFEM1_AFEM1_ASEM1_CLR1_CADS0_EPS{}_GRVWA8"
SMALL, LARGE = TENSILE.format("0_NLCA1"), TENSILE.format("1_NLCA3")
NORM = "void layer_norm_kernel<__half>(int, int, __half*, __half const*)"
BIAS = "void addBiasBatched_kernel<__half>(__half*, __half const*)"
FILL = "__amd_rocclr_fillBufferAligned"

_LAYER = (SMALL, SMALL, BIAS, COPY, FLASH, SMALL, NORM, LARGE, BIAS, LARGE, BIAS, NORM, SMALL, SMALL, NORM, BIAS)
_ENDS = ("embed_kernel", *(f"head_{number}_kernel" for number in range(8)))
_NS = {SMALL: 60_000, LARGE: 180_000, FLASH: 30_000, NORM: 12_000, BIAS: 8_000, COPY: 2_500, CONVERTED: 9_000}


def make_shape(name: str) -> KernelShape:
    """Returns a launch of a kernel: registers of a matrix kernel for those, one granule of them for the copy."""
    matrix = name in (FLASH, SMALL, LARGE)
    items = (65_536, 1, 1) if matrix else (1_048_576, 1, 1)
    lds = 16_384 if matrix else 0
    return KernelShape(name, "kernel", "Agent 1", (256, 1, 1), items, lds, 0, 128 if matrix else 8, 0, 128)


def list_pass() -> list[str]:
    """Returns the names of the 249 dispatches of one pass, in their order."""
    return [_ENDS[0], *_LAYER * LAYERS, *_ENDS[1:]]


def list_loading() -> list[str]:
    """Returns the names of the 708 dispatches of loading: 400 conversions among fills, and kernels of passes."""
    names = [CONVERTED if number % 5 < 4 else FILL for number in range(500)]
    names += [(BIAS, NORM, FILL, FILL)[number * number % 4] for number in range(LOADED - 500)]
    return names


def _list_gaps(names: list[str], idle: float) -> Iterator[tuple[str, int, int]]:
    """Yields (kernel, its ns, ns without work behind it), so that `idle` of the span to the last end is without."""
    times = [_NS.get(name, 5_000) for name in names]
    rest = round(sum(times) * idle / (1 - idle))
    for number, (name, time) in enumerate(zip(names, times, strict=True)):
        gap = rest // (len(names) - 1) if number < len(names) - 1 else 0
        yield name, time, gap + (rest % (len(names) - 1) if not number else 0)


def make_profile(*, passes: int = PASSES) -> Profile:
    """Returns the trace as read: loading, then so many equal passes, 100 us apart."""
    parts = [(list_loading(), LOADING_IDLE)]
    parts += [(list_pass(), IDLE_SHARES[number % len(IDLE_SHARES)]) for number in range(passes)]
    builder, now = DispatchesBuilder(), 1_000_000
    for names, idle in parts:
        for name, time, gap in _list_gaps(names, idle):
            builder.add(builder.number_of(make_shape(name)), now, now + time)
            now += time + gap
        now += 100_000
    source = ProfileSource("run_kernel_trace.csv", "rocprofv3 kernel_trace", "ROCm 7.0 or later", len(builder))
    return Profile("run", (source,), builder.build())
