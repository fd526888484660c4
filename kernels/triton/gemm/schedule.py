"""When stream-K is faster than whole tiles of the same size: a rule from times on an H200. Pure arithmetic.

Where tiles do not fill the last wave of programs, stream-K gives every program the same work. But its stretches begin
at a different K in every program, which then read different parts of a and b at a time instead of sharing them in the
L2 cache. Times of `triton.gemm_data_parallel` divided by those of `triton.gemm_stream_k` (tiles of 128 x 128 x 64, f16,
132 programs, the lower of two runs):

    tiles   waves   K = 1024   4096   8192   16384
       64    0.48       0.60   0.91   1.02    1.16
      144    1.09       0.84   0.97   1.04    0.88
      196    1.48       0.74   0.84   0.89    0.70
      256    1.94       0.65   0.70   0.70    0.51
      289    2.19       0.79   0.91   0.82    0.76
      400    3.03       0.92   1.05   1.08    1.08
     1600   12.12       0.94   1.01
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.triton.gemm.space import STREAM_K_SPACE, problem_of

if TYPE_CHECKING:
    from pytest_attnperf.workloads.gemm import Gemm

TILES_K_MIN = 64
"""Least K tiles for which adding fragments in a second kernel is worth its time, after two waves or more."""

TILES_K_MIN_ALONE = 128
"""The same where all tiles together fill at most half of a wave."""

WAVES_MAX = 12
"""Most whole waves: what is gained in the last one becomes nothing beside more, and none was timed."""

LAST_WAVE_MAX = 8
"""Stream-K needs a last wave that fills at most one in so many programs: its stretches then begin near each other."""


def prefers_stream_k(tiles: int, programs: int, tiles_k: int) -> bool:
    """Returns whether stream-K is expected to be faster than whole tiles, for a result of `tiles` tiles on as many
    programs as multiprocessors, and sums of `tiles_k` K tiles."""
    waves, last = divmod(tiles, programs)
    if waves == 0:
        return 2 * tiles <= programs and tiles_k >= TILES_K_MIN_ALONE
    return 2 <= waves <= WAVES_MAX and 0 < last * LAST_WAVE_MAX <= programs and tiles_k >= TILES_K_MIN


def recommend(workload: Gemm, arch: str, programs: int) -> str:
    """Returns the faster backend of two that compute the same tiles, 'triton.gemm_stream_k' or
    'triton.gemm_data_parallel', on `programs` multiprocessors of `arch`. It is known of an H200 only."""
    config = STREAM_K_SPACE.choose(arch, problem_of(workload)).config
    tiles = -(-workload.size_m // config["BLOCK_M"]) * -(-workload.size_n // config["BLOCK_N"])
    streamed = prefers_stream_k(tiles, programs, -(-workload.size_k // config["BLOCK_K"]))
    return "triton.gemm_stream_k" if streamed else "triton.gemm_data_parallel"
