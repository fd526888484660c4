from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_attnperf.codeobject.issue_model import ESTIMATED
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import KernelCode, LoopEstimate, LoopInstruction
from pytest_attnperf.tools.occupancy.cycles_text import (
    busy_shares,
    cycles_json,
    explain_missing,
    find_limit,
    render_cycles,
    render_estimates,
)

LOOP = LoopEstimate(
    waves=2, cycles=4000.0, peak_cycles=2048.0, matrix_cycles=2048, vector_cycles=1800, lds_cycles=1312, matrix=128,
    valu=314, transcendental=34, salu=68, lds=48, loads=8, waits=35, barriers=2, flops=1 << 20, lds_reads=32,
    lds_writes=12, lds_read_bytes=32768, lds_write_bytes=8192, load_bytes=8192, load_cycles=512,
    heaviest=(
        LoopInstruction("v_mfma_f32_16x16x16_f16", 128, 2400.0, "gpu_amd.h", 137, "sum = mfma(left, right, sum);"),
        LoopInstruction("s_waitcnt vmcnt(0)", 1, 800.0, "", 0, ""),
    ),
)  # fmt: skip
"""A loop of 64 keys."""

CODE = KernelCode(
    name="k", arch="gfx942", vgprs=218, agprs=0, unified_vgprs=218, sgprs=76, vgpr_spills=0, sgpr_spills=0,
    scratch_bytes=0, lds_static_bytes=0, lds_dynamic_bytes=32768, kernarg_bytes=64, threads=256, max_threads=256,
    wave_size=64, wgp_mode=None, dynamic_stack=False, code_bytes=4096, isa_hash="00", key_loop=LOOP,
    instructions={"matrix": 300}, in_loops={"matrix": 256},
)  # fmt: skip


def rows(text: str) -> dict[str, list[str]]:
    """Words behind the first one of each line of the table."""
    return {line[:18].strip(): line[18:].split() for line in text.split("\n\n")[1].splitlines()}


def test_figures_are_per_32_keys_where_keys_are_known() -> None:
    """64 keys an iteration: half of everything; without them per iteration, and both are said."""
    known, unknown = render_cycles(CODE, 64), render_cycles(CODE)
    assert rows(known)["MFMA"] == ["64", "1,024"]
    assert rows(known)["barriers"] == ["1"]
    assert rows(known)["LDS reads"] == ["16", "16,384"]
    assert rows(known)["exp and others"] == ["17", "272"]
    assert rows(known)["VALU"] == ["157", "628"]
    assert rows(unknown)["MFMA"] == ["128", "2,048"]
    assert "a wave, per 32 keys" in known
    assert "62.5 a key" in known
    assert "a wave, per iteration" in unknown
    assert "keys of an iteration: not visible in an object" in unknown
    assert "a key;" not in unknown


def test_keys_that_a_kernel_declares_need_not_be_given() -> None:
    """What is given counts, if both are; products are counted once, and how often they are computed is told."""
    declared = replace(CODE, key_loop=replace(LOOP, keys=64, repeated=2.0))
    text = render_cycles(declared)
    assert rows(text) == rows(render_cycles(CODE, 64))
    assert "62.5 a key; 26 % of MFMA peak; each product is computed 2 times\n" in text
    assert "125.0 a key" in render_cycles(declared, 32)
    found = cycles_json(declared)
    assert (found["keys_per_iteration"], found["matrix_peak_share"], found["products_computed"]) == (64, 0.256, 2.0)
    assert cycles_json(CODE, 64)["products_computed"] is None


def test_every_estimate_is_called_one() -> None:
    """In text and in JSON, with what is not visible: conflicts."""
    text, found = render_cycles(CODE), cycles_json(CODE)
    assert f"51 % of MFMA peak, repeated products included\n({ESTIMATED})" in text
    assert "LDS bank conflicts: not visible in an object" in text
    assert (found["estimated"], found["lds_bank_conflicts"]) == (ESTIMATED, None)


def test_registers_waves_and_spills_are_told() -> None:
    """Beside the launch, which decides the waves."""
    spilled = replace(CODE, vgpr_spills=27, sgpr_spills=1, scratch_bytes=112, threads=0)
    assert "gfx942: 2 of 8 waves per SIMD, limited by VGPRs and LDS" in render_cycles(CODE)
    assert "256 threads, 218 VGPRs, 0 AGPRs, 76 SGPRs, 32,768 bytes of LDS, nothing spilled" in render_cycles(CODE)
    assert "256 threads (the most it was compiled for), " in render_cycles(spilled)
    assert "27 VGPRs and 1 SGPR spilled, 112 bytes of scratch" in render_cycles(spilled)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "latency"),
        ({"cycles": 2100.0}, "VALU"),
        ({"cycles": 2400.0, "vector_cycles": 800}, "latency"),
        ({"cycles": 2100.0, "vector_cycles": 800}, "MFMA"),
        ({"lds_cycles": 3900}, "LDS"),
        ({"load_cycles": 3700}, "memory"),
    ],
)
def test_a_unit_that_always_works_limits(changed: dict[str, float], expected: str) -> None:
    """From 90 % on; else it is latency, because some wave could work and waits."""
    loop = replace(LOOP, **changed)  # type: ignore[arg-type]
    assert find_limit(loop) == expected
    assert f"limited by {expected}" in render_cycles(replace(CODE, key_loop=loop))


def test_matrix_instructions_are_issued_through_the_valu() -> None:
    """Four cycles each, beside the cycles of vector instructions."""
    assert busy_shares(LOOP)["VALU"] == (1800 + 4 * 128) / 4000
    assert busy_shares(LOOP)["MFMA"] == 2048 / 4000


def test_the_heaviest_come_with_their_lines() -> None:
    """Their share of a wave's time, and a word where there is no line table."""
    text = render_cycles(CODE)
    assert "2,400   30 %    128  v_mfma_f32_16x16x16_f16" in text
    assert "gpu_amd.h:137  sum = mfma(left, right, sum);" in text
    bare = replace(LOOP, heaviest=LOOP.heaviest[1:])
    assert "the object has no line table (compile with -g)" in render_cycles(replace(CODE, key_loop=bare))
    assert "line table" not in text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arch": "gfx1100"}, "the issue model knows gfx90a, gfx942, gfx950, not gfx1100; RDNA's WMMA"),
        ({"arch": "sm_90"}, "the issue model knows gfx90a, gfx942, gfx950, not sm_90"),
        ({"instructions": {}, "undecoded": "llvm-objdump is missing"}, "not known: llvm-objdump is missing"),
        ({"instructions": {}}, "not known: it was not disassembled"),
        ({"instructions": {"valu": 3}}, "it has no matrix instructions"),
        ({"in_loops": {"valu": 3}}, "its matrix instructions stand in no loop"),
        ({"threads": 0, "max_threads": 0}, "its workgroup size is not known; give --threads"),
        ({"lds_dynamic_bytes": 1 << 20}, "not one workgroup fits"),
        ({"vgprs": 300}, "no launch succeeds: vgprs 300"),
        ({}, "has another loop inside, whose number of rounds no object tells"),
    ],
)
def test_what_cannot_be_estimated_is_told(changed: dict[str, object], said: str) -> None:
    """No figure, but the reason; a kernel alone is an error, beside others a line."""
    code = replace(CODE, key_loop=None, **changed)  # type: ignore[arg-type]
    assert said in explain_missing(code)
    assert f"no estimate: {explain_missing(code)}" in render_cycles(code)
    with pytest.raises(CodeObjectError, match="nothing can be estimated: k for "):
        render_estimates([code, code])
    assert "per iteration" in render_estimates([code, CODE])
    found = cycles_json(code)
    assert (found["iteration"], found["matrix_peak_share"], found["heaviest"]) == (None, None, [])


def test_json_has_units_in_its_keys() -> None:
    """One kernel is an object, several a list; counts, cycles and bytes are those of the estimate."""
    one = json.loads(render_estimates([CODE], 64, as_json=True))
    assert (one["keys_per_iteration"], one["cycles_per_key"], one["matrix_peak_share"]) == (64, 62.5, 0.512)
    assert one["iteration"]["matrix_instructions"] == 128
    assert one["iteration"]["lds_read_bytes"] == 32768
    assert one["iteration"]["simd_cycles"] == 4000.0
    assert one["heaviest"][0]["line"] == 137
    assert (one["not_estimated"], one["limited_by"], one["waves_per_simd"]) == ("", "latency", 2.0)
    assert [each["name"] for each in json.loads(render_estimates([CODE, CODE], as_json=True))] == ["k", "k"]
