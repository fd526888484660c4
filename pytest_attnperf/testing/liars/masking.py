"""Lies about which query sees which key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_attnperf.testing.liars.honest import attend, prepare_attention
from pytest_attnperf.testing.liars.liar import OFF, make_liar
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from pytest_attnperf.backends import Tensors

LONG = Prefill(1, 1, 8, 64, seq_kv=32768, kv_heads=1, dtype="bf16")
LONGER = Prefill(1, 1, 8, 16, seq_kv=131072, kv_heads=1, dtype="bf16")
MEDIUM = Prefill(1, 4, 4, 64, seq_kv=1024, kv_heads=2, dtype="bf16")
WIDE = Prefill(1, 24, 2, 32, seq_kv=88, dtype="bf16", causal=True)
SQUARE = Prefill(2, 48, 4, 32, kv_heads=2, causal=True)
WINDOW = Prefill(1, 96, 2, 32, causal=True, window=24)
TALL = Prefill(2, 48, 4, 32, seq_kv=32, kv_heads=2, causal=True, lse=True)


def _counts_key_twice(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    import torch

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend(q, torch.cat([k, k[:, -1:]], 1), torch.cat([v, v[:, -1:]], 1))[0]

    return call


MASKING = (
    make_liar(
        "drops_last_key",
        "The last of 32,768 keys is never read.",
        LONG,
        partial(prepare_attention, hide_last_keys=1),
        OFF,
    ),
    make_liar(
        "drops_last_page",
        "The last page of 16 among 131,072 keys is never read.",
        LONGER,
        partial(prepare_attention, hide_last_keys=16),
        OFF,
    ),
    make_liar("counts_key_twice", "The last key enters the softmax twice.", MEDIUM, _counts_key_twice, OFF),
    make_liar(
        "ignores_mask_on_last_column",
        "Every row sees the last key, whatever the causal mask says.",
        SQUARE,
        partial(prepare_attention, show_last_keys=1),
        OFF,
    ),
    make_liar(
        "top_left_alignment",
        "The causal mask starts at the first key, where it has to end at the last.",
        WIDE,
        partial(prepare_attention, diagonal=0),
        OFF,
    ),
    make_liar(
        "window_one_key_short",
        "The sliding window ends one key too early.",
        WINDOW,
        partial(prepare_attention, window=WINDOW.window - 1),
        OFF,
    ),
    make_liar(
        "window_one_key_long",
        "The sliding window lets one key too many through.",
        WINDOW,
        partial(prepare_attention, window=WINDOW.window + 1),
        OFF,
    ),
    make_liar(
        "masked_rows_nan",
        "Rows that see no key come out as 0 / 0.",
        TALL,
        partial(prepare_attention, zero_empty_rows=False),
        r"'out' holds \d+ NaN",
    ),
)
