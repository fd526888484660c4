// Decode, first of two kernels: the one new token of every sequence over one split of its cached keys and values
// (flash decoding, Dao et al. 2023). decode_reduce.hip merges the splits.
//
// Workgroup  one split of one sequence and one key head, with all GROUP query heads that share the key head, so that
//            each key and value is read once, from memory straight into the registers that use it.
//            Grid (Hk, splits, B): neighbours read neighbouring pieces of the same rows
// Lanes      LANES neighbours own KEYS successive keys at a time, and each of them a piece of 8 elements (16 bytes):
//              query         [HEADS][8]       of the piece, times scale and log2(e)
//              score         [KEYS][HEADS]    of the piece; then summed over the lanes, one key in each of KEYS lanes
//              accumulator   [HEADS][8]       of the piece: sum of 2^(score - running_max) * value
// Waves      more than HEADS_MAX heads do not fit in registers. Then a half or a quarter of the heads is a part, waves
//            own parts in turn, and a wave that reads a row after another part's finds it in the processor's cache
//
// New against the prefill steps: with one query row no tile is used twice, so LDS holds nothing but the last merge, and
// nothing waits at a barrier. What counts are bytes in flight: 2 KEYS loads of 16 bytes per lane, those of the next
// keys on their way while these are used.
// Still slow: with GROUP of 8 and more, multiply-adds and shuffles take longer than the loads. There the query heads
// are rows enough for a matrix instruction.
//
//   q             (B, H, D)
//   k, v          (B, room, Hk, D), or (pages, PAGE, Hk, D)
//   table         (B, room), the page of every PAGE keys of a sequence; not read without pages
//   seq_lens      (B,) keys of each sequence
//   partial_out   (B, H, splits, D) accumulators; partial_max, partial_sum (B, H, splits); in units of log2.
//                 Splits past the end of their sequence write nothing
//   split_keys    keys of a split, a multiple of KEYS
#include "gpu.h"

#ifndef GROUP
#define GROUP 1
#endif
#ifndef PAGE
#define PAGE 0
#endif
#ifndef THREADS
#define THREADS 128
#endif
#ifndef HEADS_MAX
#define HEADS_MAX 4
#endif

constexpr float LOG2_E = 1.4426950408889634f;
// Of a key that is not there: below NO_SCORE, so that it never becomes a running maximum and its weight is 0.
constexpr float HIDDEN = -3e38f;

constexpr int KEYS = 4;
constexpr int PARTS = GROUP <= HEADS_MAX ? 1 : GROUP <= 2 * HEADS_MAX ? 2 : 4;
constexpr int HEADS = (GROUP + PARTS - 1) / PARTS;
constexpr int PIECES = HEAD_DIM / 8;
constexpr int LANES = PIECES <= 4 ? 4 : PIECES <= 8 ? 8 : PIECES <= 16 ? 16 : 32;
constexpr int WAVES = THREADS / GPU_WAVE;
constexpr int SLOTS = WAVES / PARTS;
constexpr int STEP = SLOTS * (GPU_WAVE / LANES) * KEYS;

static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM >= 32 && HEAD_DIM <= 256, "rows are read in pieces of 16 bytes by a wave");
static_assert(PARTS * SLOTS == WAVES, "every part of the heads has the same number of waves");
static_assert(PAGE % KEYS == 0, "keys that are read together lie in one page");

// The row of the cache that holds a key; `sequence` is the first row, or entry of the table, of its sequence.
INLINE long long row_of(const int* __restrict__ table, long long sequence, int key) {
#if PAGE
    return static_cast<long long>(table[sequence + key / PAGE]) * PAGE + key % PAGE;
#else
    return sequence + key;
#endif
}

// This lane's piece of KEYS rows; past the last row it is read again, which needs no branch and no further memory.
INLINE void load_rows(Words<4> (&rows)[KEYS], const element* piece, int row_elements, int left) {
    UNROLL for (int u = 0; u < KEYS; ++u) rows[u] = load_words4(piece + smaller(u, left) * row_elements);
}

INLINE void unpack(float (&values)[8], Words<4> words) {
    UNROLL for (int i = 0; i < 4; ++i) {
        values[2 * i] = low_float(words.word[i]);
        values[2 * i + 1] = high_float(words.word[i]);
    }
}

INLINE void load_query(float (&query)[HEADS][8], const element* q, int first_head, int piece) {
    UNROLL for (int h = 0; h < HEADS; ++h) {
        const int head = smaller(first_head + h, GROUP - 1);
        unpack(query[h], load_words4(q + head * HEAD_DIM + smaller(piece, PIECES - 1) * 8));
        const float scale = piece < PIECES ? SOFTMAX_SCALE * LOG2_E : 0.0f;
        UNROLL for (int i = 0; i < 8; ++i) query[h][i] *= scale;
    }
}

INLINE void multiply_keys(float (&score)[KEYS][HEADS], const float (&query)[HEADS][8], const Words<4> (&rows)[KEYS]) {
    UNROLL for (int u = 0; u < KEYS; ++u) {
        float key[8];
        unpack(key, rows[u]);
        UNROLL for (int h = 0; h < HEADS; ++h) {
            score[u][h] = query[h][0] * key[0];
            UNROLL for (int i = 1; i < 8; ++i) score[u][h] += query[h][i] * key[i];
        }
    }
}

INLINE void add_values(float (&accumulator)[HEADS][8], const float (&weight)[HEADS], const Words<4> (&rows)[KEYS]) {
    const int first_lane = lane_index() / KEYS * KEYS;
    UNROLL for (int u = 0; u < KEYS; ++u) {
        float value[8];
        unpack(value, rows[u]);
        UNROLL for (int h = 0; h < HEADS; ++h) {
            const float of_key = shuffle(weight[h], first_lane + u);
            UNROLL for (int i = 0; i < 8; ++i) accumulator[h][i] += of_key * value[i];
        }
    }
}

INLINE void rescale(float (&accumulator)[8], float& running_sum, float factor) {
    running_sum *= factor;
    UNROLL for (int i = 0; i < 8; ++i) accumulator[i] *= factor;
}

// Two values of two lanes, whose numbers differ by `mask`, become one sum in each: of the first values in the lane
// without that bit, of the second ones in the other. Each sends what it does not keep.
INLINE float keep_one(float first, float second, int mask) {
    const bool keeps_second = lane_index() & mask;
    return (keeps_second ? second : first) + shuffle_xor(keeps_second ? first : second, mask);
}

// Sums over LANES lanes; lane l is left with the scores of key l % KEYS. That is 3 shuffles where sums of all keys in
// all lanes would take 2 KEYS, and what is done to a score is done once instead of KEYS times.
INLINE void sum_scores(float (&sum)[HEADS], const float (&score)[KEYS][HEADS]) {
    UNROLL for (int h = 0; h < HEADS; ++h) {
        const float even_or_odd = keep_one(score[0][h], score[1][h], 1);
        sum[h] = keep_one(even_or_odd, keep_one(score[2][h], score[3][h], 1), 2);
        UNROLL for (int mask = KEYS; mask < LANES; mask *= 2) sum[h] += shuffle_xor(sum[h], mask);
    }
}

// Scores of the lane's own key become its weights; running_sum is of the lane's own keys until `merge_wave`.
INLINE void online_softmax(float (&score)[HEADS], float (&accumulator)[HEADS][8], float (&running_max)[HEADS],
                           float (&running_sum)[HEADS], bool visible) {
    UNROLL for (int h = 0; h < HEADS; ++h) {
        score[h] = visible ? score[h] : HIDDEN;
        const float new_max = larger(running_max[h], lanes_max<KEYS>(score[h]));
        rescale(accumulator[h], running_sum[h], exp2_fast(running_max[h] - new_max));
        running_max[h] = new_max;
        score[h] = exp2_fast(score[h] - new_max);
        running_sum[h] += score[h];
    }
}

// The lane groups of a wave have walked over different keys; afterwards each holds what all have found.
INLINE void merge_wave(float (&accumulator)[8], float& running_max, float& running_sum) {
    float total_max = running_max;
    UNROLL for (int mask = LANES; mask < GPU_WAVE; mask *= 2) {
        total_max = larger(total_max, shuffle_xor(total_max, mask));
    }
    rescale(accumulator, running_sum, exp2_fast(running_max - total_max));
    running_max = total_max;
    running_sum = lanes_sum<KEYS>(running_sum);
    UNROLL for (int mask = LANES; mask < GPU_WAVE; mask *= 2) {
        running_sum += shuffle_xor(running_sum, mask);
        UNROLL for (int i = 0; i < 8; ++i) accumulator[i] += shuffle_xor(accumulator[i], mask);
    }
}

KERNEL(THREADS)
decode_split(const element* __restrict__ q, const element* __restrict__ k, const element* __restrict__ v,
             const int* __restrict__ table, const int* __restrict__ seq_lens, float* __restrict__ partial_out,
             float* __restrict__ partial_max, float* __restrict__ partial_sum, int kv_heads, int room, int splits,
             int split_keys) {
    const int kv_head = block_index_x(), split = block_index_y(), batch = block_index_z();
    const int start = split * split_keys, length = seq_lens[batch];
    if (start >= length) return;
    const int end = smaller(start + split_keys, length), last = end - 1;

    const int piece = lane_index() % LANES, part = wave_index() % PARTS, slot = wave_index() / PARTS;
    const int own_keys = (slot * (GPU_WAVE / LANES) + lane_index() / LANES) * KEYS;
    const long long first_head = (static_cast<long long>(batch) * kv_heads + kv_head) * GROUP;
    const long long sequence = static_cast<long long>(batch) * room;
    const int row_elements = kv_heads * HEAD_DIM;
    const int in_row = kv_head * HEAD_DIM + smaller(piece, PIECES - 1) * 8;

    Words<4> keys[KEYS], values[KEYS];
    const int first = smaller(start + own_keys, last);
    const long long first_offset = row_of(table, sequence, first) * row_elements + in_row;
    load_rows(keys, k + first_offset, row_elements, last - first);
    load_rows(values, v + first_offset, row_elements, last - first);

    float query[HEADS][8], accumulator[HEADS][8] = {}, running_max[HEADS], running_sum[HEADS] = {};
    load_query(query, q + first_head * HEAD_DIM, part * HEADS, piece);
    UNROLL for (int h = 0; h < HEADS; ++h) running_max[h] = NO_SCORE;

    for (int tile = start; tile < end; tile += STEP) {
        const int next = smaller(tile + STEP + own_keys, last);
        const long long next_offset = row_of(table, sequence, next) * row_elements + in_row;
        float score[KEYS][HEADS];
        multiply_keys(score, query, keys);
        load_rows(keys, k + next_offset, row_elements, last - next);
        float weight[HEADS];
        sum_scores(weight, score);
        online_softmax(weight, accumulator, running_max, running_sum, tile + own_keys + lane_index() % KEYS < end);
        add_values(accumulator, weight, values);
        load_rows(values, v + next_offset, row_elements, last - next);
    }

    LDS float wave_accumulator[SLOTS][PARTS * HEADS][HEAD_DIM];
    LDS float wave_max[SLOTS][PARTS * HEADS], wave_sum[SLOTS][PARTS * HEADS];
    UNROLL for (int h = 0; h < HEADS; ++h) {
        merge_wave(accumulator[h], running_max[h], running_sum[h]);
        const int row = part * HEADS + h;
        if (lane_index() < PIECES) {
            UNROLL for (int i = 0; i < 8; ++i) wave_accumulator[slot][row][piece * 8 + i] = accumulator[h][i];
        }
        if (lane_index() == 0) {
            wave_max[slot][row] = running_max[h];
            wave_sum[slot][row] = running_sum[h];
        }
    }
    barrier();

    for (int index = thread_index(); index < GROUP * HEAD_DIM; index += THREADS) {
        const int row = index / HEAD_DIM, column = index % HEAD_DIM;
        float total_max = NO_SCORE, total_sum = 0.0f, total = 0.0f;
        UNROLL for (int s = 0; s < SLOTS; ++s) total_max = larger(total_max, wave_max[s][row]);
        UNROLL for (int s = 0; s < SLOTS; ++s) {
            const float factor = exp2_fast(wave_max[s][row] - total_max);
            total_sum += factor * wave_sum[s][row];
            total += factor * wave_accumulator[s][row][column];
        }
        const long long result = (first_head + row) * splits + split;
        partial_out[result * HEAD_DIM + column] = total;
        if (column == 0) {
            partial_max[result] = total_max;
            partial_sum[result] = total_sum;
        }
    }
}
