// The emulator's face of gpu.h: every call below ends in the runtime of emulated/, which runs the threads of a block in
// turn on one CPU thread. GPU_EMULATED names the GPU whose wave and matrix instructions are imitated.
//
// Collectives (barriers, shuffles, matrix instructions) carry the place of their call: all lanes of a wave, or all
// threads of a block, must arrive at the same one.
#pragma once

#if !defined(__clang__)
#error "the emulator needs clang"
#endif

#define INLINE __attribute__((always_inline)) inline
#define KERNEL(THREADS) extern "C" __attribute__((noinline)) void
// `used`: another thread may write it during any call, so nothing may be concluded from this function alone.
#define LDS static __attribute__((used, section("emulated_lds"), aligned(16)))
#define DYNAMIC_LDS(TYPE, NAME) TYPE* const NAME = static_cast<TYPE*>(emulated_dynamic_lds())

#if GPU_EMULATED == 942 || GPU_EMULATED == 950
#define GPU_WAVE 64
#define GPU_MATRIX GPU_MATRIX_MFMA
#elif GPU_EMULATED == 1100
#define GPU_WAVE 32
#define GPU_MATRIX GPU_MATRIX_WMMA
#elif GPU_EMULATED == 1201
#define GPU_WAVE 32
#define GPU_MATRIX GPU_MATRIX_WMMA_GFX12
#elif GPU_EMULATED == 1030
#define GPU_WAVE 32
#define GPU_MATRIX GPU_MATRIX_NONE
#elif GPU_EMULATED == 90
#define GPU_WAVE 32
#define GPU_MATRIX GPU_MATRIX_MMA
#else
#error "GPU_EMULATED is 942, 950, 1100, 1201, 1030 or 90"
#endif

#define GPU_READ_TRANSPOSED (GPU_EMULATED == 950)
#define GPU_LOADS_TO_LDS (GPU_EMULATED == 950)

// Where a collective was called. `convergent` keeps the compiler from moving or merging calls across branches;
// `noescape` keeps registers that are passed by address from counting as memory.
#define EMULATED_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define EMULATED_COLLECTIVE __attribute__((convergent))
#define EMULATED_REGISTERS __attribute__((noescape))

// In the order of `MatrixKind` of the runtime.
enum EmulatedMatrix { EMULATED_MFMA, EMULATED_WMMA, EMULATED_WMMA_GFX12, EMULATED_MMA, EMULATED_MFMA_32 };

extern "C" {
__attribute__((const)) int emulated_thread_index();
__attribute__((const)) int emulated_block_index(int axis);
__attribute__((const)) int emulated_block_count(int axis);
__attribute__((const)) void* emulated_dynamic_lds();
EMULATED_COLLECTIVE void emulated_barrier(const char* file, int line);
EMULATED_COLLECTIVE void emulated_wave_barrier(const char* file, int line);
EMULATED_COLLECTIVE unsigned emulated_shuffle(unsigned word, int lane, const char* file, int line);
EMULATED_COLLECTIVE void emulated_matrix(EmulatedMatrix kind, bool bf16, const unsigned* EMULATED_REGISTERS a,
                                         const unsigned* EMULATED_REGISTERS b, float* EMULATED_REGISTERS c,
                                         const char* file, int line);
EMULATED_COLLECTIVE void emulated_ldmatrix(bool transposed, const void* row, unsigned* EMULATED_REGISTERS words,
                                           const char* file, int line);
EMULATED_COLLECTIVE void emulated_read_transposed(const void* row, unsigned* EMULATED_REGISTERS words,
                                                  const char* file, int line);
void emulated_copy_async(void* lds, const void* global, bool wanted);
void emulated_copies_done();
float exp2f(float);
float log2f(float);
}

INLINE int thread_index() { return emulated_thread_index(); }
INLINE int block_index_x() { return emulated_block_index(0); }
INLINE int block_index_y() { return emulated_block_index(1); }
INLINE int block_index_z() { return emulated_block_index(2); }
INLINE int block_count_z() { return emulated_block_count(2); }
INLINE int wave_index() { return thread_index() / GPU_WAVE; }

INLINE void barrier(EMULATED_PLACE) { emulated_barrier(file, line); }
INLINE void wave_barrier(EMULATED_PLACE) { emulated_wave_barrier(file, line); }

INLINE unsigned shuffle_word(unsigned word, int lane, EMULATED_PLACE) {
    return emulated_shuffle(word, lane, file, line);
}
INLINE unsigned shuffle_word_xor(unsigned word, int mask, EMULATED_PLACE) {
    return emulated_shuffle(word, (thread_index() % GPU_WAVE) ^ mask, file, line);
}
INLINE bool wave_any(bool condition, EMULATED_PLACE) {
    unsigned any = condition;
    for (int mask = 1; mask < GPU_WAVE; mask *= 2) any |= shuffle_word_xor(any, mask, file, line);
    return any;
}
INLINE float larger(float a, float b) { return __builtin_fmaxf(a, b); }
INLINE float shuffle(float value, int lane, EMULATED_PLACE) {
    return __builtin_bit_cast(float, shuffle_word(__builtin_bit_cast(unsigned, value), lane, file, line));
}
INLINE float shuffle_xor(float value, int mask, EMULATED_PLACE) {
    return __builtin_bit_cast(float, shuffle_word_xor(__builtin_bit_cast(unsigned, value), mask, file, line));
}

INLINE float exp2_fast(float x) { return exp2f(x); }
INLINE float log2_fast(float x) { return log2f(x); }
INLINE float fast_reciprocal(float x) { return 1.0f / x; }

#if ELEMENT_BF16
INLINE float to_float(element bits) { return __builtin_bit_cast(float, unsigned(bits) << 16); }
// Round to nearest even; NaN stays NaN because its quiet bit is set.
INLINE element to_element(float value) {
    const unsigned bits = __builtin_bit_cast(unsigned, value);
    const unsigned rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return value != value ? element(bits >> 16 | 0x40u) : element(rounded);
}
#else
INLINE float to_float(element bits) { return float(__builtin_bit_cast(_Float16, bits)); }
INLINE element to_element(float value) { return __builtin_bit_cast(element, _Float16(value)); }
#endif
INLINE unsigned pack(float low, float high) { return to_element(low) | unsigned(to_element(high)) << 16; }
#if ELEMENT_BF16 && GPU_EMULATED == 942
INLINE unsigned pack_positive(float low, float high) {
    const unsigned half = 0x8000;
    return (__builtin_bit_cast(unsigned, low) + half) >> 16 |
           ((__builtin_bit_cast(unsigned, high) + half) & 0xffff0000u);
}
#else
INLINE unsigned pack_positive(float low, float high) { return pack(low, high); }
#endif
INLINE float low_float(unsigned word) { return to_float(element(word & 0xffffu)); }
INLINE float high_float(unsigned word) { return to_float(element(word >> 16)); }

INLINE Words<4> load_words4_within(const void* pointer, unsigned bytes, unsigned limit) {
    Words<4> words = {{0, 0, 0, 0}};
    if (bytes < limit) words = *reinterpret_cast<const Words<4>*>(static_cast<const char*>(pointer) + bytes);
    return words;
}

// On every face: the bytes arrive at copies_done() and not before.
INLINE void copy_async(void* lds, const void* global, bool wanted) { emulated_copy_async(lds, global, wanted); }
#if GPU_LOADS_TO_LDS
template <int OFFSET>
INLINE void load_to_lds(element* lds, const void* pointer, unsigned bytes, unsigned limit, EMULATED_PLACE) {
    // Whatever the others name, all lanes write behind the address of the first.
    const auto own = reinterpret_cast<unsigned long long>(lds);
    const unsigned long long low = shuffle_word(unsigned(own), 0, file, line);
    const unsigned long long high = shuffle_word(unsigned(own >> 32), 0, file, line);
    char* first = reinterpret_cast<char*>(high << 32 | low) + OFFSET;
    const bool there = bytes < limit;
    emulated_copy_async(first + thread_index() % GPU_WAVE * 16, static_cast<const char*>(pointer) + (there ? bytes : 0),
                        there);
}
#endif
INLINE void copies_done() { emulated_copies_done(); }
INLINE void copies_commit() {}
template <int GROUPS>
INLINE void copies_done_but() {
    emulated_copies_done();  // also those that need not be: what is read too early is found by copies_done() alone
}
INLINE void schedule_fence() {}

// Matrix instructions, c + a b; emulated/wave_operations.h states where each register lies in its matrix.
#if GPU_MATRIX == GPU_MATRIX_MFMA
INLINE Floats<4> mfma_16x16x16(Words<2> a, Words<2> b, Floats<4> c, EMULATED_PLACE) {
    emulated_matrix(EMULATED_MFMA, ELEMENT_BF16, a.word, b.word, c.value, file, line);
    return c;
}
INLINE Floats<4> mfma_16x16x32(Words<4> a, Words<4> b, Floats<4> c, EMULATED_PLACE) {
#if GPU_EMULATED == 950
    emulated_matrix(EMULATED_MFMA_32, ELEMENT_BF16, a.word, b.word, c.value, file, line);
    return c;
#else
    c = mfma_16x16x16({{a.word[0], a.word[1]}}, {{b.word[0], b.word[1]}}, c, file, line);
    return mfma_16x16x16({{a.word[2], a.word[3]}}, {{b.word[2], b.word[3]}}, c, file, line);
#endif
}
INLINE Words<2> read_transposed(const element* row, EMULATED_PLACE) {
    Words<2> column;
    emulated_read_transposed(row, column.word, file, line);
    return column;
}
#elif GPU_MATRIX == GPU_MATRIX_WMMA
INLINE Floats<8> wmma_16x16x16(Words<8> a, Words<8> b, Floats<8> c, EMULATED_PLACE) {
    emulated_matrix(EMULATED_WMMA, ELEMENT_BF16, a.word, b.word, c.value, file, line);
    return c;
}
#elif GPU_MATRIX == GPU_MATRIX_WMMA_GFX12
INLINE Floats<8> wmma_16x16x16(Words<4> a, Words<4> b, Floats<8> c, EMULATED_PLACE) {
    emulated_matrix(EMULATED_WMMA_GFX12, ELEMENT_BF16, a.word, b.word, c.value, file, line);
    return c;
}
#elif GPU_MATRIX == GPU_MATRIX_MMA
INLINE Floats<4> mma_m16n8k16(Words<4> a, Words<2> b, Floats<4> c, EMULATED_PLACE) {
    emulated_matrix(EMULATED_MMA, ELEMENT_BF16, a.word, b.word, c.value, file, line);
    return c;
}
INLINE Words<4> ldmatrix_x4(const element* row, EMULATED_PLACE) {
    Words<4> matrices;
    emulated_ldmatrix(false, row, matrices.word, file, line);
    return matrices;
}
INLINE Words<4> ldmatrix_x4_transposed(const element* row, EMULATED_PLACE) {
    Words<4> matrices;
    emulated_ldmatrix(true, row, matrices.word, file, line);
    return matrices;
}
#endif
