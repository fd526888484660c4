// Step 4: 16 bytes at a time, and a tile of rows and keys in the registers of each thread.
//
// Workgroup  THREADS threads own BLOCK_M query rows of one head; grid (ceil(seq_q / BLOCK_M), heads, batch)
// Thread     one of 32 lanes of a group of ROWS rows. Scores: ROWS rows x KEYS keys (lane, lane + 32 ...). Output: ROWS
//            rows x HEAD_DIM / 16 dimensions, of every other key; the other half of the lanes has the keys between
// LDS        the query tile as floats, scaled once; one tile of BLOCK_N keys, then values; weights [group][key][row]
// HEAD_DIM   a multiple of 8
//
// New        global memory and LDS are read 16 bytes at a time, and v is on its way while the scores are computed
//            A thread multiplies what it reads from LDS with ROWS or KEYS values: a read serves 6 products of scores
//            and 16 of output at a HEAD_DIM of 128, in step 3 it serves 3 and 4
//            The scores of a row lie in one wave, in registers: its largest and its sum need shuffles only
// Banks      LDS has 32 banks of 4 bytes (CDNA2, CDNA3, RDNA, NVIDIA; 64 on CDNA4); lanes that read different words of
//            one bank wait for each other. Lanes read neighbouring keys: rows of 64 or 128 elements are 32 or 64 words,
//            so that all would begin in bank 0. An odd number of 16-byte units from row to row lets 8 lanes (of 64
//            banks: 16) read every bank once; the padding is never read. Weights lie in the order they are read in
// Still slow every product is an instruction of its own: a matrix instruction does hundreds
#include "gpu.h"

#ifndef BLOCK_M
#if HEAD_DIM <= 128
#define BLOCK_M 32
#else
#define BLOCK_M 16
#endif
#endif
#ifndef BLOCK_N
#if HEAD_DIM <= 128
#define BLOCK_N 64
#else
#define BLOCK_N 32
#endif
#endif
#ifndef THREADS
#define THREADS (BLOCK_M * 8)
#endif

static_assert(HEAD_DIM % 8 == 0 && BLOCK_N % 32 == 0, "16-byte loads; 32 lanes share the keys");

struct alignas(16) Four {
    float value[4];
};

constexpr float SCALE_LOG2 = SOFTMAX_SCALE * 1.4426950408889634f;  // log2(e): exp(x) = exp2(x log2(e))
constexpr int ROWS = 4, KEYS = BLOCK_N / 32;
constexpr int GROUPS = BLOCK_M / ROWS;
constexpr int PARTS = HEAD_DIM / 8;                               // 16-byte parts of a row
constexpr int TILE_PARTS = PARTS | 1;                             // from a row of the tile to the next
constexpr int QUERY_FOURS = HEAD_DIM / 4 + 1;                     // from a row of the query tile to the next
constexpr int LOADS = (BLOCK_N * PARTS + THREADS - 1) / THREADS;  // of a thread, for a tile

// Of a row of v a lane reads WIDE words at a time, as many as 16 lanes can without a rest.
constexpr int WIDE = HEAD_DIM % 128 == 0 ? 4 : HEAD_DIM % 64 == 0 ? 2 : 1;
constexpr int CHUNKS = (HEAD_DIM / 2 + 16 * WIDE - 1) / (16 * WIDE);

static_assert(THREADS == GROUPS * 32, "32 lanes for each group of rows");

// The 16 bytes at `offset` of a row, zeros where there is no such row.
INLINE Words<4> part_of(const element* __restrict__ rows, int offset, bool wanted) {
    Words<4> words = load_words4(rows + offset);
#pragma unroll
    for (int j = 0; j < 4; ++j) words.word[j] = wanted ? words.word[j] : 0;
    return words;
}

INLINE void store_tile(Words<4> (&tile)[BLOCK_N][TILE_PARTS], const Words<4> (&parts)[LOADS]) {
#pragma unroll
    for (int load = 0; load < LOADS; ++load) {
        const int i = load * THREADS + thread_index();
        if (BLOCK_N * PARTS % THREADS == 0 || i < BLOCK_N * PARTS) tile[i / PARTS][i % PARTS] = parts[load];
    }
}

INLINE Four four_floats(unsigned low, unsigned high) {
    return {low_float(low), high_float(low), low_float(high), high_float(high)};
}

KERNEL(THREADS) attention_vectorised(const element* __restrict__ q, const element* __restrict__ k,
                                     const element* __restrict__ v, element* __restrict__ out, float* __restrict__ lse,
                                     float* __restrict__ scores, int seq_q, int seq_kv, int heads, int kv_heads) {
    LDS Four query[BLOCK_M][QUERY_FOURS];
    LDS Words<4> tile[BLOCK_N][TILE_PARTS];
    LDS Four weights[GROUPS][BLOCK_N];

    const int thread = thread_index(), first_row = block_index_x() * BLOCK_M;
    const int head = block_index_y(), kv_head = head / (heads / kv_heads);
    const long long batch = block_index_z(), row_stride = heads * HEAD_DIM;
    const int key_stride = kv_heads * HEAD_DIM;
    const long long q_start = (batch * seq_q + first_row) * row_stride + head * HEAD_DIM;
    const long long kv_start = batch * seq_kv * key_stride + kv_head * HEAD_DIM;
    const int rows = smaller(BLOCK_M, seq_q - first_row);
    const int keys_end = CAUSAL ? first_row + rows + seq_kv - seq_q : seq_kv;  // that the last row sees

    for (int i = thread; i < BLOCK_M * PARTS; i += THREADS) {
        const int row = i / PARTS, part = i % PARTS;
        const Words<4> words = load_words4(q + q_start + smaller(row, rows - 1) * row_stride + part * 8);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            Four four = four_floats(words.word[half * 2], words.word[half * 2 + 1]);
#pragma unroll
            for (int j = 0; j < 4; ++j) four.value[j] *= SCALE_LOG2;
            query[row][part * 2 + half] = four;
        }
    }

    const int group = thread / 32, lane = thread % 32, half = lane / 16, column = lane % 16;
    const int own_row = group * ROWS;
    const int visible = CAUSAL ? first_row + own_row + 1 + seq_kv - seq_q : seq_kv;  // to own_row

    float running_max[ROWS], running_sum[ROWS];  // the sum over the keys of this lane only
    float accumulator[ROWS][CHUNKS * WIDE * 2] = {};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) running_max[r] = NO_SCORE, running_sum[r] = 0;

    for (int first = 0; first < keys_end; first += BLOCK_N) {
        const long long tile_start = kv_start + static_cast<long long>(first) * key_stride;
        Words<4> k_parts[LOADS], v_parts[LOADS];
#pragma unroll
        for (int load = 0; load < LOADS; ++load) {
            const int i = smaller(load * THREADS + thread, BLOCK_N * PARTS - 1), key = i / PARTS;
            const int offset = smaller(key, seq_kv - first - 1) * key_stride + i % PARTS * 8;  // of a key that exists
            k_parts[load] = part_of(k + tile_start, offset, first + key < seq_kv);
            v_parts[load] = part_of(v + tile_start, offset, first + key < seq_kv);
        }
        barrier();
        store_tile(tile, k_parts);
        barrier();

        float score[ROWS][KEYS] = {};
#pragma unroll 1
        for (int part = 0; part < PARTS; ++part) {
            Words<4> words[KEYS];
#pragma unroll
            for (int j = 0; j < KEYS; ++j) words[j] = tile[j * 32 + lane][part];
#pragma unroll
            for (int half_part = 0; half_part < 2; ++half_part) {
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    const Four q_four = query[own_row + r][part * 2 + half_part];
#pragma unroll
                    for (int j = 0; j < KEYS; ++j) {
                        const Four k_four = four_floats(words[j].word[half_part * 2], words[j].word[half_part * 2 + 1]);
#pragma unroll
                        for (int i = 0; i < 4; ++i) score[r][j] += q_four.value[i] * k_four.value[i];
                    }
                }
            }
        }

        float scale[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float largest = running_max[r];
#pragma unroll
            for (int j = 0; j < KEYS; ++j) {
                const int key = first + j * 32 + lane;
                if (key >= seq_kv || (CAUSAL && key >= visible + r)) score[r][j] = NO_SCORE;
                largest = larger(largest, score[r][j]);
            }
            largest = lanes_max<32>(largest);
            scale[r] = exp2_fast(running_max[r] - largest);
            running_max[r] = largest;
            running_sum[r] *= scale[r];
#pragma unroll
            for (int j = 0; j < KEYS; ++j) {
                score[r][j] = score[r][j] == NO_SCORE ? 0.0f : exp2_fast(score[r][j] - largest);
                running_sum[r] += score[r][j];
            }
        }
#pragma unroll
        for (int j = 0; j < KEYS; ++j) {
            weights[group][j * 32 + lane] = Four{score[0][j], score[1][j], score[2][j], score[3][j]};
        }
        barrier();
        store_tile(tile, v_parts);
        barrier();

#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int i = 0; i < CHUNKS * WIDE * 2; ++i) accumulator[r][i] *= scale[r];
        }
#pragma unroll 2
        for (int pair = 0; pair < BLOCK_N / 2; ++pair) {
            const int key = pair * 2 + half;
            const Four weight = weights[group][key];
            const Words<WIDE>* row = reinterpret_cast<const Words<WIDE>*>(tile[key]);
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                const Words<WIDE> words = row[smaller(chunk * 16 + column, HEAD_DIM / 2 / WIDE - 1)];
#pragma unroll
                for (int w = 0; w < WIDE; ++w) {
                    const int i = (chunk * WIDE + w) * 2;
                    const float low = low_float(words.word[w]), high = high_float(words.word[w]);
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        accumulator[r][i] += weight.value[r] * low;
                        accumulator[r][i + 1] += weight.value[r] * high;
                    }
                }
            }
        }
    }

#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float sum = lanes_sum<32>(running_sum[r]);
        const float reciprocal = sum > 0 ? fast_reciprocal(sum) : 0.0f;
        const bool in_tile = own_row + r < rows;
        Words<WIDE>* row = reinterpret_cast<Words<WIDE>*>(out + q_start + (own_row + r) * row_stride);
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            Words<WIDE> words;
#pragma unroll
            for (int w = 0; w < WIDE; ++w) {
                float pair[2];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const float own = accumulator[r][(chunk * WIDE + w) * 2 + i];
                    pair[i] = (own + shuffle_xor(own, 16)) * reciprocal;
                }
                words.word[w] = pack(pair[0], pair[1]);
            }
            const int at = chunk * 16 + column;
            if (in_tile && r % 2 == half && at < HEAD_DIM / 2 / WIDE) row[at] = words;
        }
#if WITH_LSE
        constexpr float LN2 = 0.6931471805599453f;
        if (in_tile && lane == 0) {
            const float value = (running_max[r] + log2_fast(sum)) * LN2;  // log2(0) is -infinity
            lse[(batch * heads + head) * seq_q + first_row + own_row + r] = value;
        }
#endif
    }
}
