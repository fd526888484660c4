// NVIDIA's face of gpu.h: no cuda_fp16.h, so that NVRTC needs no include folder; sm_80 or newer.
#pragma once

#define INLINE __device__ __forceinline__
// With one block per multiprocessor as the least, registers are handed out freely: fewer would spill the accumulators.
#define KERNEL(THREADS) extern "C" __global__ void __launch_bounds__(THREADS, 1)
#define LDS __shared__ __align__(16)
#ifndef DYNAMIC_LDS_ALIGNMENT
#define DYNAMIC_LDS_ALIGNMENT 16
#endif
#define DYNAMIC_LDS(TYPE, NAME)                                                      \
    extern __shared__ __align__(DYNAMIC_LDS_ALIGNMENT) unsigned char NAME##_bytes[]; \
    TYPE* NAME = reinterpret_cast<TYPE*>(NAME##_bytes)

#define GPU_WAVE 32
#define GPU_MATRIX GPU_MATRIX_MMA
#define GPU_READ_TRANSPOSED 0
#define GPU_LOADS_TO_LDS 0

INLINE int thread_index() { return threadIdx.x; }
INLINE int block_index_x() { return blockIdx.x; }
INLINE int block_index_y() { return blockIdx.y; }
INLINE int block_index_z() { return blockIdx.z; }
INLINE int block_count_z() { return gridDim.z; }
INLINE int wave_index() { return thread_index() / GPU_WAVE; }

INLINE void barrier() { __syncthreads(); }
INLINE void wave_barrier() { __syncwarp(); }

INLINE float shuffle(float value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
INLINE unsigned shuffle_word(unsigned word, int lane) { return __shfl_sync(0xffffffffu, word, lane); }
INLINE unsigned shuffle_word_xor(unsigned word, int mask) { return __shfl_xor_sync(0xffffffffu, word, mask); }
INLINE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

INLINE bool wave_any(bool condition) { return __any_sync(0xffffffffu, condition); }
INLINE float larger(float a, float b) { return fmaxf(a, b); }
INLINE float exp2_fast(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
INLINE float log2_fast(float x) {
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
INLINE float fast_reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

#if ELEMENT_BF16
INLINE float to_float(element bits) { return __uint_as_float(unsigned(bits) << 16); }
INLINE float low_float(unsigned word) { return __uint_as_float(word << 16); }
INLINE float high_float(unsigned word) { return __uint_as_float(word & 0xffff0000u); }
INLINE element to_element(float value) {
    element bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
INLINE unsigned pack(float low, float high) {
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
#else
INLINE float to_float(element bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
INLINE float low_float(unsigned word) { return to_float(element(word & 0xffffu)); }
INLINE float high_float(unsigned word) { return to_float(element(word >> 16)); }
INLINE element to_element(float value) {
    element bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
INLINE unsigned pack(float low, float high) {
    unsigned word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
#endif

INLINE unsigned pack_positive(float low, float high) { return pack(low, high); }

INLINE Words<4> load_words4_within(const void* pointer, unsigned bytes, unsigned limit) {
    Words<4> words = {{0, 0, 0, 0}};
    if (bytes < limit) words = *reinterpret_cast<const Words<4>*>(static_cast<const char*>(pointer) + bytes);
    return words;
}

INLINE unsigned lds_address(const void* pointer) { return unsigned(__cvta_generic_to_shared(pointer)); }

INLINE void copy_async(void* lds, const void* global, bool wanted) {
    const int bytes = wanted ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(lds_address(lds)), "l"(global), "r"(bytes)
                 : "memory");
}
INLINE void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }
INLINE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int GROUPS>
INLINE void copies_done_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}
INLINE void schedule_fence() {}

// Four 8 x 8 matrices of elements; lane l names row l % 8 of matrix l / 8 (16 bytes) and gets of each matrix row l / 4
// the elements 2 (l % 4) and the one after; transposed: of column l / 4.
INLINE Words<4> ldmatrix_x4(const element* row) {
    Words<4> m;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m.word[0]), "=r"(m.word[1]), "=r"(m.word[2]), "=r"(m.word[3])
                 : "r"(lds_address(row)));
    return m;
}
INLINE Words<4> ldmatrix_x4_transposed(const element* row) {
    Words<4> m;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m.word[0]), "=r"(m.word[1]), "=r"(m.word[2]), "=r"(m.word[3])
                 : "r"(lds_address(row)));
    return m;
}

// c + a b, registers as the PTX manual lays them out for mma.m16n8k16 (see matrix.h).
INLINE Floats<4> mma_m16n8k16(Words<4> a, Words<2> b, Floats<4> c) {
#if ELEMENT_BF16
#define MMA_TYPES "bf16.bf16"
#else
#define MMA_TYPES "f16.f16"
#endif
    asm("mma.sync.aligned.m16n8k16.row.col.f32." MMA_TYPES ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c.value[0]), "+f"(c.value[1]), "+f"(c.value[2]), "+f"(c.value[3])
        : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]));
    return c;
#undef MMA_TYPES
}
