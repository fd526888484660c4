// Step 3: online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867; FlashAttention, arXiv:2205.14135), so that the
// scores never leave the workgroup.
//
// Workgroup  THREADS threads own BLOCK_M query rows of one head; grid (ceil(seq_q / BLOCK_M), heads, batch)
// LDS        as step 2; `weights` holds the scores of a tile first and what they weigh then; a factor per row
// Thread     scores: SCORE_ROWS rows x 1 key. Softmax: one of 16 lanes of a row. Output: OUT_ROWS rows x 2 dimensions,
//            HEAD_DIM / 16 floats in registers from the first tile to the last
// HEAD_DIM   a multiple of 8
//
// New        one loop over the keys instead of two. A row keeps the largest score so far and the sum of
//            exp2(score - largest); where a tile has a larger one, the sum and the output are scaled by
//            exp2(old largest - new largest). `scores` is not used
// Still slow every access to LDS and memory is for one word, each word that is read from LDS serves few products, and
//            four barriers a tile keep all threads in step for few rows
#include "gpu.h"

#ifndef BLOCK_M
#define BLOCK_M 16
#endif
#ifndef BLOCK_N
#if HEAD_DIM <= 128
#define BLOCK_N 64
#else
#define BLOCK_N 32
#endif
#endif
#ifndef THREADS
#define THREADS 256
#endif

static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM <= 256, "lanes of a row are laid out for these");
static_assert(THREADS == BLOCK_M * 16 && THREADS % BLOCK_N == 0, "16 lanes to a row in softmax, whole rows of scores");

struct alignas(16) Four {
    float value[4];
};

constexpr float SCALE_LOG2 = SOFTMAX_SCALE * 1.4426950408889634f;  // log2(e): exp(x) = exp2(x log2(e))
constexpr int WORDS = HEAD_DIM / 2;                                // 32-bit words of a row, two elements each
constexpr int SCORE_ROWS = BLOCK_M * BLOCK_N / THREADS;
constexpr int COLUMNS = WORDS <= 16 ? 16 : WORDS <= 32 ? 32 : WORDS <= 64 ? 64 : 128;  // threads along a row of v
constexpr int OUT_ROWS = BLOCK_M * COLUMNS / THREADS;

static_assert(THREADS % COLUMNS == 0 && BLOCK_N % 16 == 0, "whole rows of v, keys for each of 16 lanes");

// A word of a row; behind the last of `row_count` rows 0, by way of a row that exists, so that no load needs a branch.
INLINE unsigned word_of(const element* __restrict__ rows, long long row_stride, int row_count, int row, int word) {
    const element* start = rows + smaller(row, row_count - 1) * row_stride;
    const unsigned found = reinterpret_cast<const unsigned*>(start)[word];
    return row < row_count ? found : 0;
}

// BLOCK_N rows of k or v into LDS, a word per thread at a time.
INLINE void load_tile(unsigned (&tile)[BLOCK_N][WORDS + 1], const element* __restrict__ rows, long long row_stride,
                      int row_count) {
    constexpr int COUNT = BLOCK_N * WORDS;
#pragma unroll 4
    for (int first = 0; first < COUNT; first += THREADS) {
        const int i = first + thread_index();
        if (COUNT % THREADS && i >= COUNT) break;
        tile[i / WORDS][i % WORDS] = word_of(rows, row_stride, row_count, i / WORDS, i % WORDS);
    }
}

KERNEL(THREADS) attention_flash(const element* __restrict__ q, const element* __restrict__ k,
                                const element* __restrict__ v, element* __restrict__ out, float* __restrict__ lse,
                                float* __restrict__ scores, int seq_q, int seq_kv, int heads, int kv_heads) {
    LDS Four query[BLOCK_M][HEAD_DIM / 4];
    LDS unsigned tile[BLOCK_N][WORDS + 1];
    LDS Four weights[BLOCK_M][BLOCK_N / 4 + 1];
    LDS float row_scale[BLOCK_M];

    const int thread = thread_index(), first_row = block_index_x() * BLOCK_M;
    const int head = block_index_y(), kv_head = head / (heads / kv_heads);
    const long long batch = block_index_z(), row_stride = heads * HEAD_DIM, key_stride = kv_heads * HEAD_DIM;
    const long long q_start = (batch * seq_q + first_row) * row_stride + head * HEAD_DIM;
    const long long kv_start = batch * seq_kv * key_stride + kv_head * HEAD_DIM;
    const int rows = smaller(BLOCK_M, seq_q - first_row);
    const int keys_end = CAUSAL ? first_row + rows + seq_kv - seq_q : seq_kv;  // that the last row sees

    for (int i = thread; i < BLOCK_M * WORDS; i += THREADS) {
        const int row = i / WORDS, word = i % WORDS;
        const unsigned pair = word_of(q + q_start, row_stride, rows, row, word);
        query[row][word / 2].value[word % 2 * 2] = low_float(pair) * SCALE_LOG2;
        query[row][word / 2].value[word % 2 * 2 + 1] = high_float(pair) * SCALE_LOG2;
    }

    // Who does what: scores (neighbouring threads have neighbouring keys, whole waves the same rows), softmax, output.
    const int key = thread % BLOCK_N, score_row = thread / BLOCK_N * SCORE_ROWS;
    const int row = thread / 16, lane = thread % 16;
    const int visible = row >= rows ? 0 : CAUSAL ? first_row + row + 1 + seq_kv - seq_q : seq_kv;
    const int column = smaller(thread % COLUMNS, WORDS - 1), out_row = thread / COLUMNS * OUT_ROWS;

    float running_max = NO_SCORE, running_sum = 0;  // the sum over the keys of this lane only
    float accumulator[OUT_ROWS][2] = {};
    for (int first = 0; first < keys_end; first += BLOCK_N) {
        barrier();
        load_tile(tile, k + kv_start + first * key_stride, key_stride, seq_kv - first);
        barrier();
        float score[SCORE_ROWS] = {};
#pragma unroll 2
        for (int word = 0; word < WORDS; word += 2) {
            const unsigned low = tile[key][word], high = tile[key][word + 1];
            const float k0 = low_float(low), k1 = high_float(low), k2 = low_float(high), k3 = high_float(high);
#pragma unroll
            for (int i = 0; i < SCORE_ROWS; ++i) {
                const Four four = query[score_row + i][word / 2];
                score[i] += four.value[0] * k0 + four.value[1] * k1 + four.value[2] * k2 + four.value[3] * k3;
            }
        }
#pragma unroll
        for (int i = 0; i < SCORE_ROWS; ++i) weights[score_row + i][key / 4].value[key % 4] = score[i];
        barrier();

        load_tile(tile, v + kv_start + first * key_stride, key_stride, seq_kv - first);
        float own[BLOCK_N / 16], largest = running_max;
#pragma unroll
        for (int i = 0; i < BLOCK_N / 16; ++i) {
            const int at = i * 16 + lane;
            own[i] = first + at < visible ? weights[row][at / 4].value[at % 4] : NO_SCORE;
            largest = larger(largest, own[i]);
        }
        largest = lanes_max<16>(largest);
        const float scale = exp2_fast(running_max - largest);
        running_max = largest;
        running_sum *= scale;
#pragma unroll
        for (int i = 0; i < BLOCK_N / 16; ++i) {
            const int at = i * 16 + lane;
            const float weight = first + at < visible ? exp2_fast(own[i] - largest) : 0.0f;
            running_sum += weight;
            weights[row][at / 4].value[at % 4] = weight;
        }
        if (lane == 0) row_scale[row] = scale;
        barrier();

#pragma unroll
        for (int r = 0; r < OUT_ROWS; ++r) {
            const float scale_of_row = row_scale[out_row + r];
            accumulator[r][0] *= scale_of_row;
            accumulator[r][1] *= scale_of_row;
        }
#pragma unroll 2
        for (int i = 0; i < BLOCK_N; i += 4) {
            unsigned words[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) words[j] = tile[i + j][column];
#pragma unroll
            for (int r = 0; r < OUT_ROWS; ++r) {
                const Four four = weights[out_row + r][i / 4];
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    accumulator[r][0] += four.value[j] * low_float(words[j]);
                    accumulator[r][1] += four.value[j] * high_float(words[j]);
                }
            }
        }
    }

    running_sum = lanes_sum<16>(running_sum);
    barrier();
    if (lane == 0) row_scale[row] = running_sum > 0 ? fast_reciprocal(running_sum) : 0.0f;
    barrier();
#pragma unroll
    for (int r = 0; r < OUT_ROWS; ++r) {
        unsigned* words = reinterpret_cast<unsigned*>(out + q_start + (out_row + r) * row_stride);
        const float scale = row_scale[out_row + r];
        if (out_row + r < rows && thread % COLUMNS < WORDS) {
            words[column] = pack(accumulator[r][0] * scale, accumulator[r][1] * scale);
        }
    }
#if WITH_LSE
    constexpr float LN2 = 0.6931471805599453f;
    if (lane == 0 && row < rows) {
        const float value = (running_max + log2_fast(running_sum)) * LN2;  // log2(0) is -infinity
        lse[(batch * heads + head) * seq_q + first_row + row] = value;
    }
#endif
}
