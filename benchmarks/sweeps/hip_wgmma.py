"""Configurations of the step on warpgroups that are tried."""

from __future__ import annotations

import itertools

from benchmarks.sweeps.sweep import Config, SizeClass, Sweep


def _tiles(warpgroups: tuple[int, ...], blocks_n: tuple[int, ...]) -> tuple[Config, ...]:
    """Every number of warpgroups with every tile of keys, queries in registers or in LDS."""
    return tuple(
        {"WARPGROUPS": count, "BLOCK_N": block_n, "Q_IN_REGISTERS": held}
        for count, block_n, held in itertools.product(warpgroups, blocks_n, (0, 1))
    )


SWEEP = Sweep(
    "wgmma",
    "hip.wgmma",
    (
        SizeClass(
            {"rows_max": 16384, "head_dim_max": 128},
            ("prefill-b1-s512-h8-d64-f16-causal", "prefill-b1-s512-h16-d128-f16-causal"),
            _tiles((1, 2), (64, 128)),
        ),
        SizeClass({"head_dim_max": 64}, ("prefill-b4-s4096-h32-hk8-d64-bf16-causal",), _tiles((1, 2, 3), (64, 128))),
        SizeClass(
            {"head_dim_max": 128},
            ("prefill-b4-s4096-h32-d128-f16-causal", "prefill-b4-s4096-h16-hk4-d128-bf16"),
            _tiles((1, 2, 3), (64, 128)),
        ),
        SizeClass({}, ("prefill-b4-s2048-h8-d256-f16-causal",), _tiles((1, 2), (64,))),
    ),
)
