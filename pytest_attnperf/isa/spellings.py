"""Names of gfx11 and gfx12 for what earlier architectures have under another name, so that semantics stand once.

Source: LLVM's definitions, which name the instruction that each renamed one was (`VOP2_Real_gfx11` and its like take
both names).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

WITHOUT_OPERANDS = frozenset(
    {
        *("s_delay_alu", "s_clause", "s_set_inst_prefetch_distance", "s_waitcnt_depctr", "s_wait_alu", "s_sendmsg"),
        "s_code_end",
    }
)
"""Instructions whose operands have a form of their own, which who executes them reads."""

_BYTES = {
    "u8": "ubyte", "i8": "sbyte", "u16": "ushort", "i16": "sshort", "b8": "byte", "b16": "short", "b32": "dword",
    "b64": "dwordx2", "b96": "dwordx3", "b128": "dwordx4", "b256": "dwordx8", "b512": "dwordx16",
    "d16_b16": "short_d16", "d16_hi_b16": "short_d16_hi", "d16_u8": "ubyte_d16", "d16_hi_u8": "ubyte_d16_hi",
    "d16_i8": "sbyte_d16", "d16_hi_i8": "sbyte_d16_hi", "d16_hi_b8": "byte_d16_hi",
}  # fmt: skip

_MEMORY = re.compile(r"(global|buffer|flat|scratch|s)_(load|store)_(\w+)")
_LDS = re.compile(r"ds_(load|store)_(2addr_)?(stride64_)?(\w+)")

_PARTS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"s_(and|or)_not1_", r"s_\1n2_"),
        (r"s_(and|or)_not0_", r"s_\1n1_"),
        (r"s_ctz_i32_", "s_ff1_i32_"),
        (r"s_clz_i32_u", "s_flbit_i32_b"),
        (r"s_(add|sub|addk)_co_(u32|i32)", r"s_\1_\2"),
        (r"s_add_co_ci_u32", "s_addc_u32"),
        (r"s_sub_co_ci_u32", "s_subb_u32"),
        (r"v_(add|sub|subrev)_nc_([ui])(16|32)", r"v_\1_\2\3"),
        (r"v_add_co_ci_u32", "v_addc_co_u32"),
        (r"v_(sub|subrev)_co_ci_u32", r"v_\1b_co_u32"),
        (r"v_mad_co_(u64_u32|i64_i32)", r"v_mad_\1"),
        (r"v_(max|min|max3|min3|med3|maxmin|minmax|pk_max|pk_min)_num_f(16|32|64)", r"v_\1_f\2"),
    )
)

_WHOLE: Mapping[str, str] = {
    "v_subrevb_co_u32": "v_subbrev_co_u32",
    "v_cvt_pk_rtz_f16_f32": "v_cvt_pkrtz_f16_f32",
    "v_clz_i32_u32": "v_ffbh_u32",
    "v_ctz_i32_b32": "v_ffbl_b32",
    "v_cls_i32": "v_ffbh_i32",
    "s_cls_i32": "s_flbit_i32",
    "s_cls_i32_i64": "s_flbit_i32_i64",
}


@lru_cache(maxsize=4096)
def rename(name: str) -> str:
    """Returns the name that the same instruction has on gfx9: 'global_load_dword' of 'global_load_b32'; `name` itself
    where it has no other."""
    if (found := _MEMORY.fullmatch(name)) and found[3] in _BYTES:
        return f"{found[1]}_{found[2]}_{_BYTES[found[3]]}"
    if found := _LDS.fullmatch(name):
        verb = {"load": "read", "store": "write"}[found[1]]
        return f"ds_{verb}{'2' if found[2] else ''}{'st64' if found[3] else ''}_{found[4]}"
    for pattern, text in _PARTS:
        name = pattern.sub(text, name)
    return _WHOLE.get(name, name)
