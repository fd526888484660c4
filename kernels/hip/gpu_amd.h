// AMD's face of gpu.h: clang builtins only, the same under hipRTC and under a clang without ROCm.
#pragma once

#ifndef __global__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif

#define INLINE __attribute__((device)) __attribute__((always_inline)) inline
#define KERNEL(THREADS) \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(THREADS, THREADS))) void
#define LDS __attribute__((shared)) __attribute__((aligned(16)))
#define DYNAMIC_LDS(TYPE, NAME) extern __attribute__((shared)) __attribute__((aligned(16))) TYPE NAME[]

#if defined(__GFX9__)
#define GPU_WAVE 64
#else
#define GPU_WAVE 32
#endif

#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
#define GPU_MATRIX GPU_MATRIX_MFMA
#elif defined(__GFX11__)
#define GPU_MATRIX GPU_MATRIX_WMMA
#elif defined(__GFX12__)
#define GPU_MATRIX GPU_MATRIX_WMMA_GFX12
#else
#define GPU_MATRIX GPU_MATRIX_NONE
#endif

#if defined(__gfx950__)
#define GPU_READ_TRANSPOSED 1
#define GPU_LOADS_TO_LDS 1
#else
#define GPU_READ_TRANSPOSED 0
#define GPU_LOADS_TO_LDS 0
#endif

INLINE int thread_index() { return __builtin_amdgcn_workitem_id_x(); }
INLINE int block_index_x() { return __builtin_amdgcn_workgroup_id_x(); }
INLINE int block_index_y() { return __builtin_amdgcn_workgroup_id_y(); }
INLINE int block_index_z() { return __builtin_amdgcn_workgroup_id_z(); }
INLINE int block_count_z() { return __builtin_amdgcn_grid_size_z(); }  // in threads, of which a block has one in z

INLINE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

INLINE void wave_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

// Equal in all lanes, which the compiler cannot know: in a scalar register, so that branches on it need no lane masks.
INLINE int wave_index() { return __builtin_amdgcn_readfirstlane(thread_index() / GPU_WAVE); }

INLINE unsigned shuffle_word(unsigned word, int lane) { return __builtin_amdgcn_ds_bpermute(lane * 4, word); }
INLINE float shuffle(float value, int lane) {
    return __builtin_bit_cast(float, shuffle_word(__builtin_bit_cast(unsigned, value), lane));
}
INLINE unsigned shuffle_word_xor(unsigned word, int mask) {
    return shuffle_word(word, (thread_index() % GPU_WAVE) ^ mask);
}
INLINE float shuffle_xor(float value, int mask) { return shuffle(value, (thread_index() % GPU_WAVE) ^ mask); }

#if GPU_WAVE == 64
INLINE bool wave_any(bool condition) { return __builtin_amdgcn_ballot_w64(condition) != 0; }
#else
INLINE bool wave_any(bool condition) { return __builtin_amdgcn_ballot_w32(condition) != 0; }
#endif

INLINE float larger(float a, float b) { return __builtin_fmaxf(a, b); }
INLINE float exp2_fast(float x) { return __builtin_amdgcn_exp2f(x); }
INLINE float log2_fast(float x) { return __builtin_amdgcn_logf(x); }
INLINE float fast_reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }

#if ELEMENT_BF16
INLINE float to_float(element bits) { return __builtin_bit_cast(float, unsigned(bits) << 16); }
INLINE float low_float(unsigned word) { return __builtin_bit_cast(float, word << 16); }
INLINE float high_float(unsigned word) { return __builtin_bit_cast(float, word & 0xffff0000u); }
// The compiler rounds to nearest even without a branch, by one instruction for two values where there is one (gfx950).
typedef __bf16 Bfloats2 __attribute__((ext_vector_type(2)));
INLINE element to_element(float value) { return __builtin_bit_cast(element, __bf16(value)); }
INLINE unsigned pack(float low, float high) {
    return __builtin_bit_cast(unsigned, Bfloats2{__bf16(low), __bf16(high)});
}
#else
typedef _Float16 Halves2 __attribute__((ext_vector_type(2)));
INLINE float to_float(element bits) { return float(__builtin_bit_cast(_Float16, bits)); }
INLINE element to_element(float value) { return __builtin_bit_cast(element, _Float16(value)); }
INLINE float low_float(unsigned word) { return float(__builtin_bit_cast(Halves2, word)[0]); }
INLINE float high_float(unsigned word) { return float(__builtin_bit_cast(Halves2, word)[1]); }
INLINE unsigned pack(float low, float high) {
    return __builtin_bit_cast(unsigned, Halves2{_Float16(low), _Float16(high)});
}
#endif

#if ELEMENT_BF16 && (defined(__gfx90a__) || defined(__gfx942__))
INLINE unsigned pack_positive(float low, float high) {
    const unsigned half = 0x8000;
    return __builtin_amdgcn_perm(__builtin_bit_cast(unsigned, high) + half, __builtin_bit_cast(unsigned, low) + half,
                                 0x07060302);  // the upper halves
}
#else
INLINE unsigned pack_positive(float low, float high) { return pack(low, high); }
#endif

#if __has_builtin(__builtin_amdgcn_raw_buffer_load_b128)
// Last word of a buffer's description: raw bytes, out of bounds from the limit on (LLVM: AMDGPUUsage, buffer resources;
// instruction set guides of CDNA3, RDNA3 and RDNA4, buffer resource descriptor).
#if defined(__GFX9__)
constexpr int RAW_BUFFER = 0x00027000;
#else
constexpr int RAW_BUFFER = 0x31004000;
#endif
typedef unsigned Unsigned4 __attribute__((ext_vector_type(4)));

INLINE Words<4> load_words4_within(const void* pointer, unsigned bytes, unsigned limit) {
    const auto buffer = __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(pointer), 0, limit, RAW_BUFFER);
    return __builtin_bit_cast(Words<4>, __builtin_amdgcn_raw_buffer_load_b128(buffer, bytes, 0, 0));
}
#else
INLINE Words<4> load_words4_within(const void* pointer, unsigned bytes, unsigned limit) {
    Words<4> words = {};
    if (bytes < limit) words = *reinterpret_cast<const Words<4>*>(static_cast<const char*>(pointer) + bytes);
    return words;
}
#endif

INLINE void copy_async(void* lds, const void* global, bool wanted) {
    Words<4> words = {};
    if (wanted) words = *static_cast<const Words<4>*>(global);
    *static_cast<Words<4>*>(lds) = words;
}

#if GPU_LOADS_TO_LDS
// Not the builtin: behind that, the compiler lets every read of LDS wait for what is on its way to any part of it. The
// instruction takes the address in LDS from m0, which must not be written directly before, nor its scalar registers by
// a vector instruction (where one was spilled) within five cycles; clang looks after neither in assembly.
template <int OFFSET>
INLINE void load_to_lds(element* lds, const void* pointer, unsigned bytes, unsigned limit) {
    const auto address = reinterpret_cast<unsigned long long>(pointer);
    const Unsigned4 buffer = {unsigned(address), unsigned(address >> 32), limit, unsigned(RAW_BUFFER)};
    asm volatile("s_add_u32 m0, %0, %3\n\ts_nop 4\n\tbuffer_load_dwordx4 %1, %2, 0 offen lds"
                 :
                 : "s"((__attribute__((address_space(3))) element*)lds), "v"(bytes), "s"(buffer), "n"(OFFSET)
                 : "memory", "scc", "m0");
}
INLINE void copies_done() { asm volatile("s_waitcnt vmcnt(0)" : : : "memory"); }
#else
INLINE void copies_done() {}
#endif

INLINE void schedule_fence() { __builtin_amdgcn_sched_barrier(0); }

// Matrix instructions, c + a b, on registers as the instruction set guides lay them out (see matrix.h).
#if GPU_MATRIX == GPU_MATRIX_MFMA
typedef float Float4 __attribute__((ext_vector_type(4)));
typedef _Float16 Half4 __attribute__((ext_vector_type(4)));
typedef short Short4 __attribute__((ext_vector_type(4)));

INLINE Floats<4> mfma_16x16x16(Words<2> a, Words<2> b, Floats<4> c) {
    Float4 sum = __builtin_bit_cast(Float4, c);
#if ELEMENT_BF16
    const Short4 left = __builtin_bit_cast(Short4, a), right = __builtin_bit_cast(Short4, b);
    sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(left, right, sum, 0, 0, 0);
#else
    const Half4 left = __builtin_bit_cast(Half4, a), right = __builtin_bit_cast(Half4, b);
    sum = __builtin_amdgcn_mfma_f32_16x16x16f16(left, right, sum, 0, 0, 0);
#endif
    return __builtin_bit_cast(Floats<4>, sum);
}

#if GPU_READ_TRANSPOSED
INLINE Words<2> read_transposed(const element* row) {
    auto at = (__attribute__((address_space(3))) Short4*)row;
    return __builtin_bit_cast(Words<2>, __builtin_amdgcn_ds_read_tr16_b64_v4i16(at));
}
#endif

// 32 columns: a lane has eight elements side by side. Before gfx950 two instructions do it, each for half of them.
INLINE Floats<4> mfma_16x16x32(Words<4> a, Words<4> b, Floats<4> c) {
#if defined(__gfx950__)
    Float4 sum = __builtin_bit_cast(Float4, c);
#if ELEMENT_BF16
    typedef __bf16 Bfloats8 __attribute__((ext_vector_type(8)));
    const Bfloats8 left = __builtin_bit_cast(Bfloats8, a), right = __builtin_bit_cast(Bfloats8, b);
    sum = __builtin_amdgcn_mfma_f32_16x16x32_bf16(left, right, sum, 0, 0, 0);
#else
    typedef _Float16 Half8 __attribute__((ext_vector_type(8)));
    const Half8 left = __builtin_bit_cast(Half8, a), right = __builtin_bit_cast(Half8, b);
    sum = __builtin_amdgcn_mfma_f32_16x16x32_f16(left, right, sum, 0, 0, 0);
#endif
    return __builtin_bit_cast(Floats<4>, sum);
#else
    c = mfma_16x16x16({{a.word[0], a.word[1]}}, {{b.word[0], b.word[1]}}, c);
    return mfma_16x16x16({{a.word[2], a.word[3]}}, {{b.word[2], b.word[3]}}, c);
#endif
}
#elif GPU_MATRIX == GPU_MATRIX_WMMA
typedef float Float8 __attribute__((ext_vector_type(8)));
typedef _Float16 Half16 __attribute__((ext_vector_type(16)));
typedef short Short16 __attribute__((ext_vector_type(16)));

INLINE Floats<8> wmma_16x16x16(Words<8> a, Words<8> b, Floats<8> c) {
    const Float8 sum = __builtin_bit_cast(Float8, c);
#if ELEMENT_BF16
    return __builtin_bit_cast(Floats<8>, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(
                                             __builtin_bit_cast(Short16, a), __builtin_bit_cast(Short16, b), sum));
#else
    return __builtin_bit_cast(Floats<8>, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(
                                             __builtin_bit_cast(Half16, a), __builtin_bit_cast(Half16, b), sum));
#endif
}
#elif GPU_MATRIX == GPU_MATRIX_WMMA_GFX12
typedef float Float8 __attribute__((ext_vector_type(8)));
typedef _Float16 Half8 __attribute__((ext_vector_type(8)));
typedef short Short8 __attribute__((ext_vector_type(8)));

INLINE Floats<8> wmma_16x16x16(Words<4> a, Words<4> b, Floats<8> c) {
    const Float8 sum = __builtin_bit_cast(Float8, c);
#if ELEMENT_BF16
    return __builtin_bit_cast(Floats<8>, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(
                                             __builtin_bit_cast(Short8, a), __builtin_bit_cast(Short8, b), sum));
#else
    return __builtin_bit_cast(Floats<8>, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(
                                             __builtin_bit_cast(Half8, a), __builtin_bit_cast(Half8, b), sum));
#endif
}
#endif
