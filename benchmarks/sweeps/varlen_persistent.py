"""What is tried of the persistent flash attention kernel over sequences of different lengths."""

from __future__ import annotations

from benchmarks.sweeps.prefill_forward import tiles
from benchmarks.sweeps.prefill_persistent import with_programs
from benchmarks.sweeps.sweep import SizeClass, Sweep

SWEEP = Sweep(
    "varlen_persistent",
    "triton.flash_varlen_persistent",
    (
        SizeClass(
            {"head_dim_max": 128, "element_bits": 16},
            ("varlen-q8x2048-h32-hk8-d128-bf16-causal", "varlen-q63_1000_2049_4096-h32-hk8-d128-bf16-causal"),
            (
                *with_programs(1, tiles((128, 64, 8, 3), (128, 128, 8, 3), groups=(4, 8, 32, 4096))),
                *with_programs(2, tiles((64, 64, 4, 3), groups=(4, 8, 32, 4096))),
            ),
        ),
    ),
)
