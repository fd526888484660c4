// One matrix instruction, d = c + a b, on registers that are filled and stored by the layouts of the instruction sets'
// manuals, from lane and register to row, column and k. Where flaw is 1, lanes 16 to 31 of RDNA3's operands are not the
// same again.
#include "gpu.h"

#ifndef THREADS
#define THREADS GPU_WAVE
#endif

#if GPU_EMULATED == 950
constexpr int K = 32;
#else
constexpr int K = 16;
#endif
constexpr int COLUMNS = GPU_MATRIX == GPU_MATRIX_MMA ? 8 : 16;

INLINE unsigned two(const element* at, int distance) { return at[0] | unsigned(at[distance]) << 16; }

KERNEL(THREADS) product(const element* __restrict__ a, const element* __restrict__ b, const float* __restrict__ c,
                        float* __restrict__ d, int flaw) {
    const int lane = thread_index();
    auto a_words = [&](int row, int k) { return two(a + row * K + k, 1); };
    auto b_words = [&](int k, int column) { return two(b + k * COLUMNS + column, COLUMNS); };
#if GPU_MATRIX == GPU_MATRIX_MMA
    // PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type"; a and b by ldmatrix, b transposed.
    const int group = lane / 4, member = lane % 4;
    LDS element a_tile[16][16];
    LDS element b_tile[16][8];
    for (int i = lane; i < 256; i += THREADS) a_tile[i / 16][i % 16] = a[i];
    for (int i = lane; i < 128; i += THREADS) b_tile[i / 8][i % 8] = b[i];
    wave_barrier();
    const int row_of_matrix = lane % 8, matrix = lane / 8;
    const Words<4> left = ldmatrix_x4(&a_tile[row_of_matrix + matrix % 2 * 8][matrix / 2 * 8]);
    const Words<4> right = ldmatrix_x4_transposed(&b_tile[row_of_matrix + matrix % 2 * 8][0]);
    Floats<4> sum;
    auto row = [&](int i) { return i < 2 ? group : group + 8; };
    auto column = [&](int i) { return member * 2 + (i & 1); };
    for (int i = 0; i < 4; i++) sum.value[i] = c[row(i) * 8 + column(i)];
    // The words as ldmatrix must have given them.
    bool same = right.word[0] == b_words(member * 2, group) && right.word[1] == b_words(member * 2 + 8, group);
    for (int i = 0; i < 4; i++) same &= left.word[i] == a_words(group + i % 2 * 8, member * 2 + i / 2 * 8);
    sum = mma_m16n8k16(left, {right.word[0], right.word[1]}, sum);
    for (int i = 0; i < 4; i++) d[row(i) * 8 + column(i)] = same ? sum.value[i] : -1e9f;
#elif GPU_MATRIX == GPU_MATRIX_MFMA
    // AMD's matrix instruction calculator, v_mfma_f32_16x16x16_f16: a[lane % 16][4 (lane / 16) + i]; CDNA4 instruction
    // set guide, v_mfma_f32_16x16x32_f16: a[lane % 16][8 (lane / 16) + i].
    constexpr int OWN = K / 4;
    Words<OWN / 2> left, right;
    for (int i = 0; i < OWN / 2; i++) {
        left.word[i] = a_words(lane % 16, lane / 16 * OWN + i * 2);
        right.word[i] = b_words(lane / 16 * OWN + i * 2, lane % 16);
    }
    Floats<4> sum;
    for (int i = 0; i < 4; i++) sum.value[i] = c[(lane / 16 * 4 + i) * 16 + lane % 16];
#if GPU_EMULATED == 950
    sum = mfma_16x16x32(left, right, sum);
#else
    sum = mfma_16x16x16(left, right, sum);
#endif
    for (int i = 0; i < 4; i++) d[(lane / 16 * 4 + i) * 16 + lane % 16] = sum.value[i];
#elif GPU_MATRIX == GPU_MATRIX_WMMA || GPU_MATRIX == GPU_MATRIX_WMMA_GFX12
    // RDNA3: a lane holds all k, the upper half of the wave the same again; RDNA4: each half of the wave 8 of them.
    constexpr bool halved = GPU_MATRIX == GPU_MATRIX_WMMA_GFX12;
    constexpr int WORDS = halved ? 4 : 8;
    Words<WORDS> left, right;
    for (int i = 0; i < WORDS; i++) {
        const int k = i * 2 + (halved ? lane / 16 * 8 : 0);
        left.word[i] = a_words(lane % 16, k);
        right.word[i] = b_words(k, lane % 16);
    }
    if (flaw == 1 && lane == 20) right.word[3] ^= 1;
    auto row = [&](int i) { return halved ? lane / 16 * 8 + i : 2 * i + lane / 16; };
    Floats<8> sum;
    for (int i = 0; i < 8; i++) sum.value[i] = c[row(i) * 16 + lane % 16];
    sum = wmma_16x16x16(left, right, sum);  // [1]
    for (int i = 0; i < 8; i++) d[row(i) * 16 + lane % 16] = sum.value[i];
#endif
}

#if GPU_READ_TRANSPOSED
// Lanes 0 to 15 read the last 4 of 16 rows, the next 16 lanes those before.
KERNEL(THREADS) transposed(const element* __restrict__ in, element* __restrict__ out) {
    LDS element tile[16][16];
    const int lane = thread_index();
    for (int i = lane; i < 256; i += THREADS) tile[i / 16][i % 16] = in[i];
    barrier();
    const Words<2> column = read_transposed(&tile[(3 - lane / 16) * 4 + lane % 16 / 4][lane % 4 * 4]);
    for (int i = 0; i < 4; i++) out[lane * 4 + i] = column.word[i / 2] >> i % 2 * 16 & 0xffff;
}
#endif

#if GPU_LOADS_TO_LDS
// Lane l takes piece 63 - l of 8 elements, of which `pieces` exist. Flaws: 1, nobody waits; 2, lanes name other places.
KERNEL(THREADS) loaded(const element* __restrict__ in, element* __restrict__ out, int pieces, int flaw) {
    LDS element tile[2 * THREADS * 8];
    const int lane = thread_index();
    load_to_lds<THREADS * 16>(flaw == 2 ? tile + lane % 2 * 8 : tile, in, (63 - lane) * 16, pieces * 16);
    if (flaw != 1) copies_done();
    barrier();
    for (int i = 0; i < 8; i++) out[lane * 8 + i] = tile[(THREADS + lane) * 8 + i];
}
#endif
