from __future__ import annotations

import pytest

from pytest_attnperf.isa.faults import UnknownInstructionError
from pytest_attnperf.isa.operands import ACCUMULATORS, EXEC, VCC, decode
from pytest_attnperf.isa.program import make_step
from tests.isa.one_wave import instruction


def test_operands_are_read() -> None:
    """Registers, ranges, special registers, constants and source modifiers of LLVM's text."""
    found = decode(instruction("v_fma_f32 v1, -v2, |s3|, 0.15915494")).operands
    assert [(one.kind, one.first, one.count, one.negative, one.absolute) for one in found] == [
        ("v", 1, 1, False, False),
        ("v", 2, 1, True, False),
        ("s", 3, 1, False, True),
        ("float", 0, 1, False, False),
    ]
    found = decode(instruction("x a[4:7], s[8:11], vcc, exec_hi, -16, 0xff, -|v0|, off")).operands
    assert [(one.kind, one.first, one.count) for one in found] == [
        ("v", ACCUMULATORS + 4, 4),
        ("s", 8, 4),
        ("s", VCC, 2),
        ("s", EXEC + 1, 1),
        ("integer", -16, 1),
        ("bits", 255, 1),
        ("v", 0, 1),
        ("off", 0, 1),
    ]


def test_modifiers_are_read() -> None:
    """Flags, numbers, words and lists behind the last operand, or alone."""
    found = decode(instruction("v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7] op_sel:[0,1,0] op_sel_hi:[1,0,1]"))
    assert (len(found.operands), found.modifiers) == (4, {"op_sel": (0, 1, 0), "op_sel_hi": (1, 0, 1)})
    found = decode(instruction("v_or_b32_sdwa v1, v2, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1"))
    assert found.modifiers == {}
    assert [(one.part, one.unused) for one in found.operands] == [("", "UNUSED_PAD"), ("WORD_1", ""), ("", "")]
    found = decode(instruction("global_load_dword v1, v[2:3], off offset:-8 sc0 nt"))
    assert found.modifiers == {"offset": -8, "sc0": True, "nt": True}
    assert decode(instruction("s_waitcnt vmcnt(3) lgkmcnt(0)")).modifiers == {"vmcnt": 3, "lgkmcnt": 0}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("v_magic_f32 v0, v1", "opcode"),
        ("v_add_f32_e32 v0, q1, v2", "'q1'"),
        ("v_add_f32_e64 v0, v1, v2 fancy:3", "'fancy:3'"),
        ("v_xor_b32_e64 v0, v1, v2 clamp", "'clamp'"),
        ("v_mov_b32_dpp v0, v1 row_mask:0xf bank_mask:0xf", "DPP"),
        ("v_and_b32_sdwa v0, v1, v2 dst_sel:WORD_2 dst_unused:UNUSED_PRESERVE src0_sel:DWORD", "part 'WORD_2'"),
        ("s_waitcnt depctr(3)", "'depctr(3)'"),
        ("ds_mskor_b32 v0, v1, v2", "opcode"),
        ("global_atomic_csub v0, v1, s[2:3]", "opcode"),
        ("buffer_load_dword v0, v1, s[4:7], 0 idxen", "'idxen'"),
        ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0 cbsz:1", "cbsz:1"),
        ("v_mfma_f32_32x32x9_f16 v[0:15], v16, v17, 0", "matrix instruction"),
        ("v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10", "matrix instruction"),
        ("v_cvt_sr_fp8_f32 v0, v1, v2", "opcode"),
        ("s_cbranch_scc1 7", "branch out of the kernel"),
        ("v_pk_add_f32 v[0:1], v[2:3], 1.0", "upper half of the constant"),
        ("v_cndmask_b32_e64 v0, v1", "2 operands"),
    ],
)
def test_what_is_unknown_stops_and_names_itself(text: str, named: str) -> None:
    """An unknown opcode, operand or modifier raises an error with its name, the address and the source line."""
    with pytest.raises(UnknownInstructionError) as caught:
        make_step(instruction(text))
    message = str(caught.value)
    assert named in message
    assert "at 0x100, kernel.hip:12" in message
