from __future__ import annotations

import pytest

from pytest_attnperf.isa.operands import decode
from pytest_attnperf.isa.spellings import rename
from tests.isa.one_wave import instruction


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("global_load_b128", "global_load_dwordx4"),
        ("buffer_load_d16_hi_u8", "buffer_load_ubyte_d16_hi"),
        ("global_store_d16_hi_b16", "global_store_short_d16_hi"),
        ("scratch_store_b32", "scratch_store_dword"),
        ("s_load_b96", "s_load_dwordx3"),
        ("s_buffer_load_b96", "s_buffer_load_b96"),
        ("ds_load_2addr_stride64_b64", "ds_read2st64_b64"),
        ("ds_store_b16_d16_hi", "ds_write_b16_d16_hi"),
        ("ds_bpermute_b32", "ds_bpermute_b32"),
        ("s_and_not1_saveexec_b32", "s_andn2_saveexec_b32"),
        ("s_sub_co_ci_u32", "s_subb_u32"),
        ("s_addk_co_i32", "s_addk_i32"),
        ("s_ctz_i32_b64", "s_ff1_i32_b64"),
        ("v_subrev_nc_u32", "v_subrev_u32"),
        ("v_subrev_co_ci_u32", "v_subbrev_co_u32"),
        ("v_mad_co_i64_i32", "v_mad_i64_i32"),
        ("v_max3_num_f32", "v_max3_f32"),
        ("v_maxmin_num_f32", "v_maxmin_f32"),
        ("v_cvt_pk_rtz_f16_f32", "v_cvt_pkrtz_f16_f32"),
        ("v_maximum_f32", "v_maximum_f32"),
    ],
)
def test_renamed_instructions(new: str, old: str) -> None:
    """A name of gfx11 or gfx12 becomes that of gfx9; one that has no other stays."""
    assert rename(new) == old


def test_gfx9_keeps_its_names() -> None:
    """Names are changed where the architecture has the new ones: v_add_nc_u32 is unknown on gfx9."""
    text = instruction("v_add_nc_u32_e32 v0, v1, v2")
    assert decode(text, "gfx942").name == "v_add_nc_u32"
    assert decode(text, "gfx1100", 32).name == "v_add_u32"
