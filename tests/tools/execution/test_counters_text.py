from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.errors import UsageError
from pytest_attnperf.isa.launch import Execution
from pytest_attnperf.isa.recording import Recorder, Tally, WaveTrace
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.tools.execution.counters_text import format_counters

CODE = KernelCode(
    name="k", arch="gfx942", vgprs=128, agprs=0, unified_vgprs=128, sgprs=40, vgpr_spills=0, sgpr_spills=0,
    scratch_bytes=0, lds_static_bytes=0, lds_dynamic_bytes=20480, kernarg_bytes=64, threads=256, max_threads=256,
    wave_size=64, wgp_mode=None, dynamic_stack=False, code_bytes=4096, isa_hash="00",
)  # fmt: skip


def make_execution(source: Path, arch: str = "gfx942") -> Execution:
    """A launch of five instructions of two lines."""
    texts = (
        ("v_mfma_f32_32x32x8_f16", "v[0:15], v[64:65], v[66:67], v[0:15]", 1, Tally(10, 640)),
        ("ds_read_b128", "v[0:3], v4", 2, Tally(20, 1280, lds_bytes=20480, lds_cycles=160, lds_conflict_cycles=480)),
        ("global_load_dwordx4", "v[0:3], v[4:5], off", 2, Tally(5, 160, bytes=2560, segments=80)),
        ("s_waitcnt", "vmcnt(0)", 2, Tally(15, 960, completed=5, distance=3)),
        ("v_exp_f32_e32", "v0, v1", 1, Tally(0)),
    )
    listed = [Instruction(name, text, 8 * at, place=(str(source), line)) for at, (name, text, line, _) in
              enumerate(texts)]  # fmt: skip
    found = Recorder(arch, listed)
    found.tallies = [tally for *_, tally in texts]
    found.traces = [WaveTrace((0, 0, 0), 0, [0, 1, 2, 3], {1: 24})]
    return Execution((), (), 50, 0.1, replace(CODE, arch=arch), found)


def test_counters_as_text(tmp_path: Path) -> None:
    """Mix, traffic, waits and lines stand in the text, named as counted; what never ran does not."""
    source = tmp_path / "flash.hip"
    source.write_text("sum += q * k;\nload(k);\n")
    text = format_counters(make_execution(source))
    assert text.startswith("50 instructions, 95 % of their lanes active (counted by the interpreter of machine code")
    assert "LDS: 20,480 bytes in 640 cycles, 480 of them for bank conflicts (75 %)" in text
    assert "loads: 2,560 bytes in 80 pieces of 64 bytes (50 % of them)" in text
    assert "waits: 15, 15 of them where an access was issued fewer than 20 instructions before" in text
    assert re.search(r"^LDS +20  40.0 %$", text, re.MULTILINE)
    assert re.search(r"^ +40 +160 +480 +2,560 +15  flash.hip:2  load\(k\);$", text, re.MULTILINE)
    assert re.search(r"^ +10 +10 +flash.hip:1  sum \+= q \* k;$", text, re.MULTILINE)
    assert "VALU   " not in text


def test_an_estimate_is_named_as_one(tmp_path: Path) -> None:
    """Cycles stand beside the words that they are estimated; RDNA has none."""
    text = format_counters(make_execution(tmp_path / "k.hip"))
    assert "cycles of a SIMD for 3 workgroups at once (estimated from executed instructions, +-30 %" in text
    assert re.search(r"busy: MFMA \d+ %, VALU \d+ %, LDS \d+ %, memory \d+ %; \d+ % of MFMA peak", text)
    assert "cycles of a SIMD" not in format_counters(make_execution(tmp_path / "k.hip", "gfx1100"))


def test_what_was_not_counted_is_refused(tmp_path: Path) -> None:
    """A launch without a record has no counters."""
    with pytest.raises(UsageError, match="record=True"):
        format_counters(replace(make_execution(tmp_path / "k.hip"), record=None))
