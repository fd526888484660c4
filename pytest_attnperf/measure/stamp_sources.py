"""The kernel that takes a clock stamp, for both vendors. See `clock_stamps`.

Arguments: the ring, 64-bit integers of (stamps, slots, 2), and the number of the stamp as a 32-bit integer. The one
thread of each block writes (cycles, constant clock) to slot `where it runs` of that stamp, both in one 16-byte store:
two blocks on one multiprocessor then cannot mix theirs. A place beyond the slots writes nothing.
"""

from __future__ import annotations

KERNEL = "attnperf_clock_stamp"

NVIDIA_SLOTS = 256
"""One per streaming multiprocessor; the largest GPU known has fewer than 200."""

AMD_SLOTS = 2048
"""8 accelerator complex dies (XCC) of 256 places each (CDNA), or 1024 places (RDNA)."""

PTX = f"""
.version 6.3
.target sm_70
.address_size 64

.visible .entry {KERNEL}(.param .u64 ring, .param .u32 number)
{{
    .reg .pred %beyond;
    .reg .b32 %slot, %number, %index;
    .reg .b64 %ring, %offset, %address, %cycles, %nanoseconds;

    mov.u32 %slot, %smid;
    setp.ge.u32 %beyond, %slot, {NVIDIA_SLOTS};
    @%beyond bra DONE;
    ld.param.u64 %ring, [ring];
    ld.param.u32 %number, [number];
    cvta.to.global.u64 %ring, %ring;
    mad.lo.u32 %index, %number, {NVIDIA_SLOTS}, %slot;
    mul.wide.u32 %offset, %index, 16;
    add.u64 %address, %ring, %offset;
    mov.u64 %cycles, %clock64;
    mov.u64 %nanoseconds, %globaltimer;
    st.global.v2.u64 [%address], {{%cycles, %nanoseconds}};
DONE:
    ret;
}}
"""

HIP = f"""
/* No header and no HIP name: the same text goes through hipRTC and through a bare clang.
   s_getreg takes id | offset << 6 | (size - 1) << 11. */
typedef unsigned long long Pair __attribute__((ext_vector_type(2)));

static __attribute__((device)) unsigned place()
{{
#if defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
    /* HW_ID1: SIMD 9:8, WGP 13:10, SA 16, SE 20:18 */
    unsigned id = __builtin_amdgcn_s_getreg(23 | (31 << 11));
    return ((id >> 8) & 63) | (((id >> 16) & 1) << 6) | (((id >> 18) & 7) << 7);
#else
    /* HW_ID: CU 11:8, SH 12, SE 14:13, and 15:13 where there is one die; XCC_ID 3:0 */
#if defined(__gfx942__) || defined(__gfx950__)
    unsigned id = __builtin_amdgcn_s_getreg(4 | (8 << 6) | (6 << 11));
    return id | (__builtin_amdgcn_s_getreg(20 | (3 << 11)) << 8);
#else
    return __builtin_amdgcn_s_getreg(4 | (8 << 6) | (7 << 11));
#endif
#endif
}}

static __attribute__((device)) unsigned long long constant_clock()
{{
#if defined(__GFX11__) || defined(__GFX12__)
    return __builtin_amdgcn_s_sendmsg_rtnl(0x83); /* MSG_RTN_GET_REALTIME */
#else
    return __builtin_amdgcn_s_memrealtime();
#endif
}}

extern "C" __attribute__((global)) void {KERNEL}(unsigned long long* ring, int number)
{{
    unsigned slot = place();
    if (slot >= {AMD_SLOTS}u)
        return;
    Pair stamp;
    stamp.x = __builtin_readcyclecounter(); /* s_memtime; SHADER_CYCLES on gfx11 and gfx12 */
    stamp.y = constant_clock();
    ((Pair*)ring)[(unsigned long long)number * {AMD_SLOTS}u + slot] = stamp;
}}
"""
