"""The configuration spaces of the flash decoding kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.configs import Space, pad_size

if TYPE_CHECKING:
    from pytest_attnperf.workloads.decode import Decode

SPACE = Space(
    "decode",
    {"BLOCK_N": int, "PROGRAMS": int, "SPLIT_KEYS_MIN": int},
    ("head_dim", "rows", "element_bits", "cache_bits", "paged", "programs_per_split"),
)
"""rows: tokens times query heads of one K/V head, padded; programs_per_split: B * Hk; PROGRAMS and SPLIT_KEYS_MIN: see
`decode.splits_of`."""

LAUNCH_CONSTANTS = frozenset({"PROGRAMS", "SPLIT_KEYS_MIN"})
"""Values of a configuration that decide the grid only; the kernel does not get them."""

REDUCE_SPACE = Space("decode_reduce", {"BLOCK_SPLITS": int}, ("head_dim",))


def problem_of(workload: Decode) -> dict[str, int | bool | str]:
    """Returns the properties, name -> value, by which a rule of the kernel over the keys is chosen."""
    return {
        "head_dim": workload.head_dim,
        "rows": pad_size(workload.heads // workload.kv_heads * workload.queries),
        "element_bits": 32 if workload.dtype == "f32" else 16,
        "cache_bits": {"f32": 32, "f16": 16, "bf16": 16}.get(workload.cache_dtype, 8),
        "paged": workload.page > 0,
        "programs_per_split": workload.batch * workload.kv_heads,
    }
