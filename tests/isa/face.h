// Face of the drawn programs of this folder: the same source computes on an AMD GPU and, with CPU defined, on the host.
// A program is a list of steps. EACH runs its code for every thread; the threads' variables stay in `s`. BARRIER and
// the exchanges between lanes stand between such steps, so that the host can do one step for all threads at a time.
// WAVE is the number of lanes of a wave, THREADS that of threads of a workgroup.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef _Float16 f16;
typedef float f32;
typedef double f64;
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef i16 i16x2 __attribute__((ext_vector_type(2)));
typedef u16 u16x2 __attribute__((ext_vector_type(2)));
typedef f16 f16x2 __attribute__((ext_vector_type(2)));
typedef f32 f32x2 __attribute__((ext_vector_type(2)));
typedef u32 __attribute__((aligned(2))) u32_of_halves;

#ifdef CPU
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static __attribute__((device)) __attribute__((always_inline)) inline
#endif

#ifdef CPU
// Compilers for the host call a library for bfloat16, which not every one has.
struct bf16 {
    u16 bits;
    bf16() = default;
    explicit constexpr bf16(f32 x) : bits(rounded(__builtin_bit_cast(u32, x))) {}
    constexpr operator f32() const { return __builtin_bit_cast(f32, (u32)bits << 16); }
    static constexpr u16 rounded(u32 word) {
        return (word & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (word + 0x7fff + (word >> 16 & 1)) >> 16;
    }
};
#else
typedef __bf16 bf16;
#endif

// Bits of floats. Every NaN counts as the same one, in both directions.
INLINE f32 to_f32(u32 bits) { return (bits & 0x7fffffff) > 0x7f800000 ? __builtin_nanf("") : __builtin_bit_cast(f32, bits); }
INLINE f64 to_f64(u64 bits) {
    return (bits & 0x7fffffffffffffffull) > 0x7ff0000000000000ull ? __builtin_nan("") : __builtin_bit_cast(f64, bits);
}
INLINE f16 to_f16(u16 bits) { return __builtin_bit_cast(f16, (u16)((bits & 0x7fff) > 0x7c00 ? 0x7e00 : bits)); }
INLINE bf16 to_bf16(u16 bits) { return __builtin_bit_cast(bf16, (u16)((bits & 0x7fff) > 0x7f80 ? 0x7fc0 : bits)); }
INLINE u64 bits_of(f32 x) { return x != x ? 0x7fc00000u : __builtin_bit_cast(u32, x); }
INLINE u64 bits_of(f64 x) { return x != x ? 0x7ff8000000000000ull : __builtin_bit_cast(u64, x); }
// clang 22 makes 0 - x of float16 into -x for the GPU: zeros count as one.
INLINE u64 bits_of(f16 x) { return x != x ? 0x7e00u : x == (f16)0 ? 0 : __builtin_bit_cast(u16, x); }
INLINE u64 bits_of(bf16 x) { return (f32)x != (f32)x ? 0x7fc0u : __builtin_bit_cast(u16, x); }
INLINE u64 bits_of(i8 x) { return (u64)(i64)x; }
INLINE u64 bits_of(i16 x) { return (u64)(i64)x; }
INLINE u64 bits_of(i32 x) { return (u64)(i64)x; }
INLINE u64 bits_of(i64 x) { return (u64)x; }
INLINE u64 bits_of(u8 x) { return x; }
INLINE u64 bits_of(u16 x) { return x; }
INLINE u64 bits_of(u32 x) { return x; }
INLINE u64 bits_of(u64 x) { return x; }

// Divisions without the undefined cases.
template <class T> INLINE T quotient(T a, T b) { return b == 0 || b == (T)-1 ? (T)(a ^ b) : (T)(a / b); }
template <class T> INLINE T remainder(T a, T b) { return b == 0 || b == (T)-1 ? (T)(a + b) : (T)(a % b); }

// Bits. Of zero, the number of leading or trailing zeros is the width.
INLINE u32 leading(u32 a) { return a ? __builtin_clz(a) : 32; }
INLINE u32 trailing(u32 a) { return a ? __builtin_ctz(a) : 32; }
INLINE u32 leading64(u64 a) { return a ? __builtin_clzll(a) : 64; }
INLINE u32 trailing64(u64 a) { return a ? __builtin_ctzll(a) : 64; }
INLINE u32 field(u32 a, u32 at, u32 width) { return a >> (at & 31) & ((1u << (width & 31)) - 1); }
INLINE i32 signed_field(i32 a, u32 at, u32 width) { return (i32)((u32)a << (at & 15)) >> (16 + (width & 15)); }
INLINE u32 high_product(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
INLINE i32 high_product(i32 a, i32 b) { return (i32)((i64)a * b >> 32); }

// Conversions to integers where the value fits, else a constant.
INLINE i32 to_i32(f32 x) { return x >= -2147483648.0f && x < 2147483648.0f ? (i32)x : 77; }
INLINE u32 to_u32(f32 x) { return x > -1.0f && x < 4294967296.0f ? (u32)x : 78; }
INLINE i64 to_i64(f32 x) { return x >= -9223372036854775808.0f && x < 9223372036854775808.0f ? (i64)x : 79; }
INLINE i32 to_i32(f64 x) { return x > -2147483649.0 && x < 2147483648.0 ? (i32)x : 80; }
INLINE u32 to_u32(f64 x) { return x > -1.0 && x < 4294967296.0 ? (u32)x : 81; }
INLINE i64 to_i64(f64 x) { return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (i64)x : 82; }
INLINE u64 to_u64(f64 x) { return x > -1.0 && x < 18446744073709551616.0 ? (u64)x : 83; }

// Floats between 2^-20 and 2^20, whose quotients and roots are normal numbers.
INLINE f32 tame(f32 x) {
    const u32 bits = __builtin_bit_cast(u32, x);
    return __builtin_bit_cast(f32, (bits & 0x807fffffu) | ((bits >> 23 & 31) + 112) << 23);
}
INLINE f64 tame(f64 x) {
    const u64 bits = __builtin_bit_cast(u64, x);
    return __builtin_bit_cast(f64, (bits & 0x800fffffffffffffull) | ((bits >> 52 & 31) + 1008) << 52);
}
INLINE f32 larger(f32 a, f32 b) { return __builtin_fmaxf(a, b) + 0.0f; }
INLINE f32 smaller(f32 a, f32 b) { return __builtin_fminf(a, b) + 0.0f; }
INLINE f64 larger(f64 a, f64 b) { return __builtin_fmax(a, b) + 0.0; }
INLINE f32 with_sign(f32 a, f32 b) { return b != b ? a : __builtin_copysignf(a, b); }
INLINE f64 with_sign(f64 a, f64 b) { return b != b ? a : __builtin_copysign(a, b); }

// Lanes of the thread's wave that have a thread.
#define LIVE (THREADS - (tid - lane) < WAVE ? THREADS - (tid - lane) : WAVE)

// Without padding: to copy that would be a read of what nothing wrote.
struct Record {
    u16 small;
    u8 byte, other;
    u32 word;
    f32 number;
};

#ifdef CPU

#define KERNEL(NAME) extern "C" void NAME(const u32* in, u64* out, u8* narrow, u32* sums, u32 k0, u64 k1, f32 k2, u32 groups)
#define BEGIN                                                        \
    for (u32 group = 0; group < groups; ++group) {                   \
        static State states[THREADS];                                \
        static u32 lds[2 * THREADS];                                 \
        static u32 totals[16];
#define END_OF_KERNEL }
#define EACH                                                         \
    for (u32 tid = 0; tid < THREADS; ++tid) {                        \
        State& s = states[tid];                                      \
        const u32 lane = tid % WAVE, thread = group * THREADS + tid; \
        (void)lane, (void)thread;
#define END }
#define BARRIER

#define ATOMIC(NAME, TYPE, COMPUTE) \
    INLINE void NAME(TYPE* p, TYPE b) { TYPE a = *p; *p = COMPUTE; }
ATOMIC(atomic_add, u32, a + b)
ATOMIC(atomic_sub, u32, a - b)
ATOMIC(atomic_and, u32, a & b)
ATOMIC(atomic_or, u32, a | b)
ATOMIC(atomic_xor, u32, a ^ b)
ATOMIC(atomic_min, u32, a < b ? a : b)
ATOMIC(atomic_max, u32, a > b ? a : b)
ATOMIC(atomic_min, i32, a < b ? a : b)
ATOMIC(atomic_max, i32, a > b ? a : b)
ATOMIC(atomic_add, u64, a + b)
ATOMIC(atomic_xor, u64, a ^ b)
ATOMIC(atomic_max, u64, a > b ? a : b)
INLINE u32 fetch_add(u32* p, u32 b) { u32 a = *p; *p = a + b; return a; }
INLINE u32 exchange(u32* p, u32 b) { u32 a = *p; *p = b; return a; }
INLINE u32 compare_exchange(u32* p, u32 expected, u32 b) { u32 a = *p; if (a == expected) *p = b; return a; }
// The same, of memory of the workgroup.
#define local_add atomic_add
#define local_and atomic_and
#define local_or atomic_or
#define local_xor atomic_xor
#define local_min atomic_min
#define local_max atomic_max
#define local_fetch_add fetch_add

// Lanes of one wave: what they hold, and which compute.
struct Lanes {
    u32 value[WAVE];
    bool active[WAVE];
    u32 index;
    u32 of(u32 lane) const { return active[lane] ? value[lane] : 0; }
};
INLINE u32 cpu_permute(const Lanes& all, u32, u32, u32 index) { return all.of(index % WAVE); }
INLINE u32 cpu_first(const Lanes& all, u32, u32, u32) {
    for (u32 at = 0; at < WAVE; ++at)
        if (all.active[at]) return all.value[at];
    return 0;
}
INLINE u32 cpu_swizzle(const Lanes& all, u32 lane, u32, u32 pattern) {
    return all.of((lane & ~31u) | (((lane & 31 & pattern) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31)));
}
INLINE u32 cpu_count(const Lanes& all, u32, u32, u32) {
    u32 count = 0;
    for (u32 at = 0; at < WAVE; ++at) count += all.active[at] && (all.value[at] & 1);
    return count;
}
INLINE u32 cpu_below(const Lanes& all, u32 lane, u32, u32) {
    u32 count = 0;
    for (u32 at = 0; at < lane; ++at) count += all.active[at] && (all.value[at] & 1);
    return count;
}
// Lane from which DPP takes a value, WAVE where there is none: quad_perm, row_shl, row_shr, row_ror, wave_shl:1,
// wave_shr:1, row_mirror, row_half_mirror, row_bcast:15, row_bcast:31, row_share (row_newbcast), row_xmask.
INLINE u32 dpp_source(u32 control, u32 lane) {
    const u32 row = lane & ~15u, at = lane & 15, by = control & 15;
    if (control < 0x100) return (lane & ~3u) | (control >> 2 * (lane & 3) & 3);
    if (control < 0x110) return at + by < 16 ? row + at + by : WAVE;
    if (control < 0x120) return at >= by ? row + at - by : WAVE;
    if (control < 0x130) return row | ((at + 16 - by) & 15);
    if (control == 0x130) return lane + 1;
    if (control == 0x138) return lane ? lane - 1 : WAVE;
    if (control == 0x140) return row | (15 - at);
    if (control == 0x141) return (lane & ~7u) | (7 - (lane & 7));
    if (control == 0x142) return row ? row - 1 : WAVE;
    if (control == 0x143) return lane < 32 ? WAVE : 31;
    if (control < 0x160) return row | by;
    return row | (at ^ by);
}
template <u32 control, u32 rows, u32 banks, bool zero>
INLINE u32 cpu_dpp(const Lanes& all, u32 lane, u32 old, u32) {
    const u32 from = dpp_source(control, lane);
    if (!(rows >> (lane / 16) % 4 & 1) || !(banks >> lane % 16 / 4 & 1)) return old;
    if (from >= WAVE || !all.active[from]) return zero ? 0 : old;
    return all.value[from];
}
template <u32 other>
INLINE u32 cpu_row(const Lanes& all, u32 lane, u32 old, u32 low, u32 high) {
    const u32 at = lane & 15, from = ((lane & ~15u) ^ 16 * other) | ((at < 8 ? low >> 4 * at : high >> 4 * (at - 8)) & 15);
    return all.active[from] ? all.value[from] : old;
}

// s.TO = what a lane gets of the values FROM of the lanes where COND holds.
#define EXCHANGE(COND, TO, FROM, CPU_CALL, GPU_CALL)                         \
    for (u32 first = 0; first < THREADS; first += WAVE) {                    \
        Lanes all = {};                                                      \
        for (u32 lane = 0; lane < WAVE && first + lane < THREADS; ++lane) {  \
            const u32 tid = first + lane;                                    \
            State& s = states[tid];                                          \
            (void)tid;                                                       \
            all.active[lane] = (COND);                                       \
            all.value[lane] = (FROM);                                        \
        }                                                                    \
        for (u32 lane = 0; lane < WAVE && first + lane < THREADS; ++lane) {  \
            const u32 tid = first + lane;                                    \
            State& s = states[tid];                                          \
            (void)tid;                                                       \
            if (all.active[lane]) s.TO = CPU_CALL;                           \
        }                                                                    \
    }

#else

#define KERNEL(NAME)                                                                                       \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(THREADS, THREADS))) void \
        NAME(const u32* in, u64* out, u8* narrow, u32* sums, u32 k0, u64 k1, f32 k2)
#define BEGIN                                                                                              \
    __attribute__((shared)) static u32 lds[2 * THREADS];                                                   \
    __attribute__((shared)) static u32 totals[16];                                                         \
    const u32 tid = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();           \
    const u32 lane = tid % WAVE, thread = group * THREADS + tid;                                           \
    (void)lane, (void)thread, (void)lds, (void)totals;                                                     \
    State s;
#define END_OF_KERNEL
#define EACH {
#define END }
#define BARRIER                                            \
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); \
    __builtin_amdgcn_s_barrier();                          \
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");

#define DEVICE_SCOPE __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT
#define GROUP_SCOPE __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP
#define ATOMIC(NAME, TYPE, FUNCTION, SCOPE) \
    INLINE void NAME(TYPE* p, TYPE b) { (void)FUNCTION(p, b, SCOPE); }
ATOMIC(atomic_add, u32, __hip_atomic_fetch_add, DEVICE_SCOPE)
ATOMIC(atomic_sub, u32, __hip_atomic_fetch_sub, DEVICE_SCOPE)
ATOMIC(atomic_and, u32, __hip_atomic_fetch_and, DEVICE_SCOPE)
ATOMIC(atomic_or, u32, __hip_atomic_fetch_or, DEVICE_SCOPE)
ATOMIC(atomic_xor, u32, __hip_atomic_fetch_xor, DEVICE_SCOPE)
ATOMIC(atomic_min, u32, __hip_atomic_fetch_min, DEVICE_SCOPE)
ATOMIC(atomic_max, u32, __hip_atomic_fetch_max, DEVICE_SCOPE)
ATOMIC(atomic_min, i32, __hip_atomic_fetch_min, DEVICE_SCOPE)
ATOMIC(atomic_max, i32, __hip_atomic_fetch_max, DEVICE_SCOPE)
ATOMIC(atomic_add, u64, __hip_atomic_fetch_add, DEVICE_SCOPE)
ATOMIC(atomic_xor, u64, __hip_atomic_fetch_xor, DEVICE_SCOPE)
ATOMIC(atomic_max, u64, __hip_atomic_fetch_max, DEVICE_SCOPE)
ATOMIC(local_add, u32, __hip_atomic_fetch_add, GROUP_SCOPE)
ATOMIC(local_and, u32, __hip_atomic_fetch_and, GROUP_SCOPE)
ATOMIC(local_or, u32, __hip_atomic_fetch_or, GROUP_SCOPE)
ATOMIC(local_xor, u32, __hip_atomic_fetch_xor, GROUP_SCOPE)
ATOMIC(local_min, u32, __hip_atomic_fetch_min, GROUP_SCOPE)
ATOMIC(local_max, u32, __hip_atomic_fetch_max, GROUP_SCOPE)
INLINE u32 fetch_add(u32* p, u32 b) { return __hip_atomic_fetch_add(p, b, DEVICE_SCOPE); }
INLINE u32 exchange(u32* p, u32 b) { return __hip_atomic_exchange(p, b, DEVICE_SCOPE); }
INLINE u32 compare_exchange(u32* p, u32 expected, u32 b) {
    __hip_atomic_compare_exchange_strong(p, &expected, b, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    return expected;
}
INLINE u32 local_fetch_add(u32* p, u32 b) { return __hip_atomic_fetch_add(p, b, GROUP_SCOPE); }

#if WAVE == 64
INLINE u32 gpu_count(u32 value) { return __builtin_popcountll(__builtin_amdgcn_ballot_w64(value & 1)); }
INLINE u32 gpu_below(u32 value) {
    const u64 all = __builtin_amdgcn_ballot_w64(value & 1);
    return __builtin_amdgcn_mbcnt_hi(all >> 32, __builtin_amdgcn_mbcnt_lo((u32)all, 0));
}
#else
INLINE u32 gpu_count(u32 value) { return __builtin_popcount(__builtin_amdgcn_ballot_w32(value & 1)); }
INLINE u32 gpu_below(u32 value) { return __builtin_amdgcn_mbcnt_lo(__builtin_amdgcn_ballot_w32(value & 1), 0); }
#endif

#define EXCHANGE(COND, TO, FROM, CPU_CALL, GPU_CALL) \
    if (COND) s.TO = GPU_CALL;

#endif
