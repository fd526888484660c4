// What the kernels of this folder use of a GPU, under one name on AMD, on NVIDIA and in the emulator that runs them on
// a CPU. No other header is needed: hipRTC, NVRTC, nvcc and a clang without ROCm all take these files as they are.
//
// Set by whoever compiles a kernel:
//   ELEMENT_BF16   1: elements in memory are bf16, 0: fp16
//
// Constants
//   GPU_WAVE       lanes of a wave: 64 on CDNA (gfx9), 32 on RDNA and NVIDIA
//   GPU_MATRIX     which matrix instructions there are: one of the GPU_MATRIX_... below
//   GPU_READ_TRANSPOSED   1 on gfx950, which has read_transposed
//   GPU_LOADS_TO_LDS      1 on gfx950, which has load_to_lds
//
// A kernel is written
//   KERNEL(THREADS) name(const element* __restrict__ q, ..., int seq_q) { ... }
// with pointers first and 32-bit integers after them, which is all that the launchers pass; constants are macros.
//
//   int thread_index()                    0 ... THREADS - 1
//   int block_index_x(), _y(), _z()
//   int block_count_z()                   of the grid
//   LDS element tile[16][64];             memory of the workgroup, inside a kernel's body ("shared" on NVIDIA)
//   DYNAMIC_LDS(element, tiles);          the same with its size from the launch, 16-byte aligned; on NVIDIA to
//                                         DYNAMIC_LDS_ALIGNMENT where a kernel defines it
//   barrier()                             of the workgroup; LDS and global writes before it are seen after it
//   wave_barrier()                        of the wave, the same for its own lanes
//   shuffle_xor(value, mask)              the float of lane (own lane ^ mask); every lane of the wave must call it
//   shuffle(value, lane)                  the float of any lane
//   shuffle_word, shuffle_word_xor        the same of 32 bits
//   wave_any(condition)                   whether it holds in any lane of the wave; every lane must call it
//   larger(a, b)                          the other one where one is NaN
//   exp2_fast(x), log2_fast(x)            one instruction each, some 2^-22 relative; exp2_fast(-inf) is 0
//   fast_reciprocal(x)
//
//   element                               16 bits as stored; to_float, to_element (round to nearest even)
//   pack(low, high)                       two floats as elements in a 32-bit word, the first in the lower half
//   pack_positive(low, high)              the same of floats from 0 on; to bf16 on CDNA before gfx950 by 3 instructions
//                                         instead of 11: halves are rounded up, and NaN may become a number
//   low_float(word), high_float(word)     and back
//   Words<N>, Floats<N>                   N registers of 32 bits
//   load_words4(pointer)                  16 bytes at a 16-byte aligned address; store_words4(pointer, words)
//   load_words4_within(pointer, bytes, limit)
//                                         the same `bytes` beyond a pointer that is equal in all lanes, zeros from
//                                         `limit` on; no branch on AMD, so that nothing waits for the words before
//                                         they are used
//
//   read_transposed(pointer)              on gfx950, from LDS: of 16 lanes, 4 neighbours name 16 elements of a row, 4
//                                         each; lane l gets column l of the 4 rows. Every lane must call it
//   schedule_fence()                      AMD's compiler moves nothing across: loads stand before products
//
//   copy_async(lds, global, wanted)       16 bytes to LDS without passing through registers, zeros where not wanted;
//   copies_done()                         ... all of this thread's copies are there (a barrier() shows them to others)
//                                         on AMD the copy is done at once
//   copies_commit(), copies_done_but<N>() on NVIDIA: ends a group of this thread's copies; until at most N groups, the
//                                         last ones, are on their way
//   load_to_lds<OFFSET>(lds, pointer, bytes, limit)
//                                         on gfx950: as load_words4_within, but to LDS without passing through
//                                         registers, there after copies_done(): lane l's words OFFSET + 16 l bytes
//                                         beyond `lds`, which is equal in all lanes. Every lane must call it
#pragma once

#ifndef ELEMENT_BF16
#define ELEMENT_BF16 0
#endif

// In front of loops over registers: arrays of registers exist only while every index is known to the compiler.
#define UNROLL _Pragma("unroll")

#define GPU_MATRIX_NONE 0
#define GPU_MATRIX_MFMA 1        // CDNA: v_mfma_f32_16x16x16, a wave of 64
#define GPU_MATRIX_WMMA 2        // RDNA3: v_wmma_f32_16x16x16, operands held twice
#define GPU_MATRIX_WMMA_GFX12 3  // RDNA4: the same, operands held once
#define GPU_MATRIX_MMA 4         // NVIDIA since sm_80: mma.sync.m16n8k16

typedef unsigned short element;

template <int N>
struct alignas(N % 4 == 0 ? 16 : N % 2 == 0 ? 8 : 4) Words {
    unsigned word[N];
};

template <int N>
struct Floats {
    float value[N];
};

#if defined(GPU_EMULATED)
#include "gpu_emulated.h"
#elif defined(__CUDACC__) || defined(__CUDA__) || defined(__CUDACC_RTC__)
#include "gpu_nvidia.h"
#else
#include "gpu_amd.h"
#endif

// Whether copy_async is on its way while the thread goes on; else it is done at once, and prefetching takes registers.
constexpr bool ASYNC_COPIES = GPU_MATRIX == GPU_MATRIX_MMA;

INLINE int lane_index() { return thread_index() % GPU_WAVE; }

INLINE Words<4> load_words4(const void* pointer) {
    return *static_cast<const Words<4>*>(__builtin_assume_aligned(pointer, 16));
}
INLINE void store_words4(void* pointer, Words<4> words) {
    *static_cast<Words<4>*>(__builtin_assume_aligned(pointer, 16)) = words;
}

INLINE int smaller(int a, int b) { return a < b ? a : b; }

// Over `LANES` neighbouring lanes, a power of two.
template <int LANES>
INLINE float lanes_max(float value) {
    UNROLL for (int mask = LANES / 2; mask; mask /= 2) value = larger(value, shuffle_xor(value, mask));
    return value;
}

template <int LANES>
INLINE float lanes_sum(float value) {
    UNROLL for (int mask = LANES / 2; mask; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}

// Smaller than any score, and finite: exp2(x - x) of rows that have seen no key yet must not become NaN.
constexpr float NO_SCORE = -1e30f;
