"""What is tried of the persistent flash attention kernel: tiles, and how many programs a multiprocessor gets."""

from __future__ import annotations

from benchmarks.sweeps.prefill_forward import tiles
from benchmarks.sweeps.sweep import Config, SizeClass, Sweep


def with_programs(count: int, candidates: tuple[Config, ...]) -> tuple[Config, ...]:
    """The candidates with PROGRAMS_PER_SM."""
    return tuple({**candidate, "PROGRAMS_PER_SM": count} for candidate in candidates)


SWEEP = Sweep(
    "prefill_persistent",
    "triton.flash_persistent",
    (
        SizeClass(
            {"head_dim_max": 128, "element_bits": 16},
            ("prefill-b1-s4096-h32-hk8-d128-bf16-causal", "prefill-b4-s4096-h32-d128-f16-causal"),
            (
                *with_programs(1, tiles((128, 64, 8, 3), (128, 128, 8, 3), groups=(4, 8, 16, 32, 4096))),
                *with_programs(2, tiles((64, 64, 4, 3), groups=(4, 8, 16, 32, 4096))),
            ),
        ),
    ),
)
