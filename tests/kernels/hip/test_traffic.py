from __future__ import annotations

import pytest
import torch

from kernels.configs import ConfigChoice, ConfigRule
from kernels.hip.emulator import load
from kernels.hip.faces import face_of
from kernels.hip.prefill import make_launcher
from kernels.hip.steps import STEPS, LadderStep
from kernels.hip.traffic import count_traffic_bytes
from pytest_attnperf.workloads.prefill import Prefill

ARCH = "gfx942"
CONFIGS = {
    "hip.naive": {"BLOCK_M": 64},
    "hip.lds_tiles": {"BLOCK_M": 16, "BLOCK_N": 64, "THREADS": 256},
    "hip.flash": {"BLOCK_M": 16, "BLOCK_N": 64, "THREADS": 256},
    "hip.vectorised": {"BLOCK_M": 16, "BLOCK_N": 64, "THREADS": 128},
    "hip.matrix": {"WAVES": 1, "BLOCK_N": 32},
    "hip.prefetch": {"WAVES": 1, "BLOCK_N": 32},
    "hip.best": {"WAVES": 1, "ROW_TILES": 1, "BLOCK_N": 32, "Q_IN_REGISTERS": 1},
    "hip.wgmma": {"WARPGROUPS": 1, "BLOCK_N": 64, "Q_IN_REGISTERS": 1},
}


def measure_bytes(step: LadderStep, workload: Prefill) -> tuple[int, int]:
    """Returns (bytes that the emulated threads of one call touch, bytes by the formula for single lanes)."""
    arch = next(iter(step.archs), ARCH)
    kernel, launch = step.make_kernel(workload, arch, ConfigChoice(arch, ConfigRule({}, CONFIGS[step.name], "test")))
    loaded = load(kernel, arch=arch)
    inputs = workload.make_inputs(0, "cpu", planted=False)
    count = workload.heads * workload.batch * workload.seq_q * workload.seq_kv
    make_launcher(loaded, workload, launch, torch.empty(count, dtype=torch.float32))(*inputs)
    return loaded.traffic_bytes, count_traffic_bytes(step, workload, CONFIGS[step.name], launch.rows, wave=1)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_formula_is_what_the_kernel_touches(step: LadderStep) -> None:
    """In whole tiles every byte that the emulated kernel loads and stores is in the formula, and no other."""
    touched, counted = measure_bytes(step, Prefill.parse_line("b=2,s=64,h=2,hk=1,d=64,f16,causal,lse"))
    assert counted == touched


@pytest.mark.parametrize("step", [STEPS[0], STEPS[1], STEPS[4]], ids=lambda step: step.name)
def test_formula_holds_where_no_tile_divides(step: LadderStep) -> None:
    """It is exact with odd lengths and more keys than queries, too."""
    touched, counted = measure_bytes(step, Prefill.parse_line("b=1,s=33,kv=75,h=2,d=40,f16,causal"))
    assert counted == touched


def test_wave_reads_a_common_address_once() -> None:
    """Step 1's lanes share the rows of k and v, not their scores: a wave of 64 lanes counts k and v once."""
    workload = Prefill.parse_line("b=1,s=64,h=1,d=64,f16")
    alone, shared = (
        count_traffic_bytes(STEPS[0], workload, CONFIGS["hip.naive"], 64, wave) for wave in (1, face_of(ARCH).wave)
    )
    keys_and_values = 2 * 2 * 64 * 64
    assert alone - shared == 63 * keys_and_values
