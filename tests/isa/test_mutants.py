from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.instructions import Instruction
from tests.isa.attention import Compiled, Problem, compile_build
from tests.isa.mutants import Mutant, is_found, list_mutants, with_neighbour

RUNS = (
    (Problem(50, 83, heads=1, spread=40.0), 0),
    (Problem(150, 165, heads=1), 1),
    (Problem(150, 165, heads=1, spread=40.0), 2),
    (Problem(33, 200, heads=2), 0),
    (Problem(64, 64, heads=1), 0),
    (Problem(129, 131, heads=1), 1),
)
"""Problems, each with a seed of the waves' order: ragged blocks and whole ones, several tiles of keys, several waves,
and scores so far apart that the running maximum rises."""

COVERED = "a wait that another one covers: nothing reads or overwrites what it waits for before that"
PRELOADED = "stands in front of the kernel's entry, for hardware that preloads no arguments"

EXPLAINED = {
    "hip.best-d64_f16_causal-gfx942": {
        ("dropped", "s_waitcnt", "gpu_amd.h:47"): (1, COVERED),
        ("dropped", "s_waitcnt", "gpu.h:96"): (1, COVERED),
    },
    "hip.best-d128_f16_lse-gfx942": {("dropped", "s_waitcnt", "gpu.h:96"): (1, COVERED)},
    "triton.prefill_forward-d64-f16-causal-ragged-gfx942": {
        ("dropped", "s_waitcnt", "forward.py:173"): (1, PRELOADED),
        ("dropped", "s_waitcnt", "standard.py:287"): (1, COVERED),
    },
}
"""Kernel -> mutants that stay right by change, mnemonic and source line: how many there may be, and why."""

FOUND_AT_LEAST = 0.98


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled kernels are kept."""
    return tmp_path_factory.mktemp("mutants")


@pytest.mark.soak
@pytest.mark.parametrize("name", EXPLAINED)
def test_every_mutant_is_found_or_explained(kernels: Path, name: str) -> None:
    """Each barrier, wait, matrix instruction, shuffle and LDS store, left out or with its register changed, one at a
    time: at least 98 % make the result wrong or a fault, and each other one is a wait that is explained."""
    kernel = compile_build(name, kernels)
    for problem, seed in RUNS:
        assert kernel.run(problem, seed=seed).right
    mutants = list(list_mutants(kernel))
    missed = Counter(mutant.key for mutant in mutants if not is_found(kernel, mutant, RUNS))
    unexplained = {key: count for key, count in missed.items() if count > EXPLAINED[name].get(key, (0, ""))[0]}
    assert not unexplained, f"{len(mutants)} mutants"
    assert missed.total() <= (1 - FOUND_AT_LEAST) * len(mutants), missed


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("v_mfma_f32_16x16x16_f16 v[4:7], v[0:1], v[2:3], 0", "v[6:9], v[0:1], v[2:3], 0"),
        ("v_mfma_f32_16x16x16_f16 a[252:255], v[0:1], v[2:3], 0", "a[250:253], v[0:1], v[2:3], 0"),
        ("ds_bpermute_b32 v3, v1, v0", "v4, v1, v0"),
        ("ds_bpermute_b32 v255, v1, v0", "v254, v1, v0"),
        ("ds_write_b64 v8, v[2:3] offset:16", "v8, v[4:5] offset:16"),
        ("ds_write_b32 v1, v2", "v1, v3"),
    ],
)
def test_neighbours_of_a_register(text: str, changed: str) -> None:
    """The register that is written changes, of an LDS store the one that is stored; pairs stay aligned, and the last
    register's neighbour is the one below."""
    mnemonic, _, operands = text.partition(" ")
    assert with_neighbour(Instruction(mnemonic, operands, 0, None)) == changed


def test_a_mutant_changes_one_instruction(kernels: Path) -> None:
    """The list names waits once and matrix instructions twice; an edit leaves the rest as it is."""
    kernel: Compiled = compile_build("hip.flash-d64_f16_causal-gfx942", kernels)
    mutants = list(list_mutants(kernel))
    changes = Counter((mutant.instruction.mnemonic, mutant.change) for mutant in mutants)
    assert changes["s_barrier", "dropped"] > 0 == changes["s_barrier", "register"]
    assert changes["ds_bpermute_b32", "dropped"] == changes["ds_bpermute_b32", "register"] > 0
    mutant: Mutant = next(one for one in mutants if one.change == "register")
    before = (*tuple(Instruction("s_nop", "0", at, None) for at in range(mutant.place)), mutant.instruction)
    after = mutant.edit(before)
    assert after[:-1] == before[:-1]
    assert after[-1].operands != before[-1].operands
