"""The steps of the prefill ladder and the kernel of each under a configuration. Names and values only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kernels.configs import ConfigChoice, Problem, Space, hip_space
from kernels.hip.faces import ELEMENT_BYTES, Face, face_of
from kernels.hip.sources import HipKernel, element_define
from pytest_attnperf.workloads.prefill import Prefill

HEAD_DIM_MAX = 256
PROPERTIES = ("head_dim", "rows")
"""rows: B * H * Sq, the work to distribute over compute units."""

Config = Mapping[str, int | bool]


@dataclass(frozen=True)
class WorkgroupSize:
    """Size of a workgroup under a configuration.

    rows       query rows of a workgroup
    threads    of a workgroup
    lds_bytes  LDS that the launch adds
    """

    rows: int
    threads: int
    lds_bytes: int = 0


@dataclass(frozen=True)
class LadderStep:
    """One step of the ladder of HIP prefill kernels: a .hip file and how it is launched.

    name       of the backend, e.g. 'hip.flash'
    idea       what is new in this step, in a few words
    file       '03_flash.hip'
    function   of the kernel in it
    constants  macros that its configuration sets
    launch     (configuration, head_dim, face) -> the size of its workgroups
    scratch    whether it keeps the score matrix in global memory
    matrix     whether it multiplies on matrix units, where there are any
    narrow     beginning of an architecture's name -> the largest head dimension that its registers hold
    further    macros that a configuration may set
    archs      the architectures that have its instructions; empty: all
    """

    name: str
    idea: str
    file: str
    function: str
    constants: tuple[str, ...]
    launch: Callable[[Config, int, Face], WorkgroupSize]
    scratch: bool = False
    matrix: bool = False
    narrow: Mapping[str, int] = field(default_factory=dict)
    further: frozenset[str] = frozenset()
    archs: tuple[str, ...] = ()

    def arch_reasons(self, arch: str) -> list[str]:
        """Returns that an architecture lacks this step's instructions, if so; else empty."""
        if not self.archs or arch in self.archs:
            return []
        return [f"{self.name} uses instructions that only {' and '.join(self.archs)} has, not {arch}; use hip.best"]

    def head_dim_max(self, arch: str) -> int:
        """Returns the largest head dimension that this step's kernel takes on an architecture."""
        return next((most for begin, most in self.narrow.items() if arch.startswith(begin)), HEAD_DIM_MAX)

    @property
    def space(self) -> Space:
        """The launch configuration space of this step's kernel."""
        space = hip_space(self.name.removeprefix("hip."), dict.fromkeys(self.constants, int), PROPERTIES)
        return replace(space, further=self.further)

    def make_kernel(self, workload: Prefill, arch: str, choice: ConfigChoice) -> tuple[HipKernel, WorkgroupSize]:
        """Returns (the kernel with the macros of a problem and a configuration, the size of its workgroups)."""
        launch = self.launch(choice.config, workload.head_dim, face_of(arch))
        defines = problem_defines(workload) | {name: str(value) for name, value in choice.config.items()}
        specific = bool(self.archs)
        return HipKernel(self.file, self.function, launch.threads, defines, launch.lds_bytes, specific), launch


def problem_of(workload: Prefill) -> Problem:
    """Returns the properties by which a configuration is chosen: 'head_dim', and 'rows', which is B * H * Sq."""
    return {"head_dim": workload.head_dim, "rows": workload.batch * workload.heads * workload.seq_q}


def problem_defines(workload: Prefill) -> dict[str, str]:
    """Returns the macros, name -> text, that a problem sets in the kernel of every step."""
    return {
        "HEAD_DIM": str(workload.head_dim),
        "CAUSAL": str(int(workload.causal)),
        "WITH_LSE": str(int(workload.lse)),
        "SOFTMAX_SCALE": f"{1 / math.sqrt(workload.head_dim):.9g}f",
        **element_define(workload.dtype),
    }


def _one_thread_per_row(config: Config, head_dim: int, face: Face) -> WorkgroupSize:
    return WorkgroupSize(config["BLOCK_M"], config["BLOCK_M"])


def _fixed_threads(config: Config, head_dim: int, face: Face) -> WorkgroupSize:
    return WorkgroupSize(config["BLOCK_M"], config["THREADS"])


def _waves_of_16(config: Config, head_dim: int, face: Face) -> WorkgroupSize:
    return WorkgroupSize(config["WAVES"] * 16, config["WAVES"] * face.wave)


def _waves_with_tiles(config: Config, head_dim: int, face: Face) -> WorkgroupSize:
    rows = config["WAVES"] * 16
    queries, tiles = face.tiles_bytes(head_dim, rows, config["BLOCK_N"])
    return WorkgroupSize(rows, config["WAVES"] * face.wave, queries + tiles)


def _waves_with_row_tiles(config: Config, head_dim: int, face: Face) -> WorkgroupSize:
    rows = config["WAVES"] * config["ROW_TILES"] * 16
    queries, tiles = face.tiles_bytes(head_dim, rows, config["BLOCK_N"])
    staged = 0 if face.queries_direct else queries
    lds_bytes = max(staged, tiles) if config["Q_IN_REGISTERS"] else queries + tiles
    return WorkgroupSize(rows, config["WAVES"] * face.wave, lds_bytes)


def _warpgroups_of_64(config: Config, head_dim: int, face: Face) -> WorkgroupSize:
    """Q, and two tiles each of K and V, in panels of 64 columns: the layout of wgmma.h."""
    rows, columns = config["WARPGROUPS"] * 64, -(-head_dim // 64) * 64
    lds_bytes = ELEMENT_BYTES * columns * (rows + 4 * config["BLOCK_N"])
    return WorkgroupSize(rows, config["WARPGROUPS"] * 4 * face.wave, lds_bytes)


_TILES = ("BLOCK_M", "BLOCK_N", "THREADS")
STEPS = (
    LadderStep(
        "hip.naive",
        "one thread per query row, scores in global memory",
        "01_naive.hip",
        "attention_naive",
        ("BLOCK_M",),
        _one_thread_per_row,
        scratch=True,
    ),
    LadderStep(
        "hip.lds_tiles",
        "16 threads per row, tiles of Q, K and V in LDS",
        "02_lds_tiles.hip",
        "attention_lds_tiles",
        _TILES,
        _fixed_threads,
        scratch=True,
    ),
    LadderStep(
        "hip.flash", "online softmax: no score matrix", "03_flash.hip", "attention_flash", _TILES, _fixed_threads
    ),
    LadderStep(
        "hip.vectorised",
        "16-byte loads, no bank conflicts, 4 rows per lane",
        "04_vectorised.hip",
        "attention_vectorised",
        _TILES,
        _fixed_threads,
    ),
    LadderStep(
        "hip.matrix",
        "MFMA, WMMA or mma.sync for both products",
        "05_matrix.hip",
        "attention_matrix",
        ("WAVES", "BLOCK_N"),
        _waves_of_16,
        matrix=True,
    ),
    LadderStep(
        "hip.prefetch",
        "the next tile is on its way while this one is computed",
        "06_prefetch.hip",
        "attention_prefetch",
        ("WAVES", "BLOCK_N"),
        _waves_with_tiles,
        matrix=True,
        narrow={"gfx11": 96, "gfx12": 128},
    ),
    LadderStep(
        "hip.best",
        "32 rows per wave, queries in registers, masks where needed",
        "07_best.hip",
        "attention_best",
        ("WAVES", "ROW_TILES", "BLOCK_N", "Q_IN_REGISTERS"),
        _waves_with_row_tiles,
        matrix=True,
        narrow={"gfx11": 128},
        further=frozenset({"XCDS"}),
    ),
    LadderStep(
        "hip.wgmma",
        "Hopper: tensor cores read LDS by themselves, and work during the softmax",
        "08_wgmma.hip",
        "attention_wgmma",
        ("WARPGROUPS", "BLOCK_N", "Q_IN_REGISTERS"),
        _warpgroups_of_64,
        matrix=True,
        archs=("sm_90",),
    ),
)
"""All steps in order. Each file's comment says what changed since the step before."""
