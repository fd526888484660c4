// Decode, first of two kernels, for NVIDIA: what decode_split.hip computes, on matrix units.
//
// New against decode_split.hip:
// - The query heads of a key head are rows of one operand, and mma.sync multiplies 16 of them at once. For 16 bytes a
//   lane a wave has about 45 instructions there, with four heads, and about 15 here, with any number; rows without a
//   head cost nothing that counts.
// - So there is no reason to keep keys in registers: a wave copies tiles of KEYS keys and values to a ring of STAGES
//   places of its own in LDS, without passing through registers. STAGES - 1 tiles are on their way all the time, and no
//   barrier but the wave's own is needed until the end.
// On AMD a copy passes through registers, and decode_split.hip keeps it there.
//
//   q             (B, H, D)
//   k, v          (B, room, Hk, D), or (pages, PAGE, Hk, D)
//   table         (B, room), the page of every PAGE keys of a sequence; not read without pages
//   seq_lens      (B,) keys of each sequence
//   partial_out   (B, H, splits, D) accumulators; partial_max, partial_sum (B, H, splits); in units of log2.
//                 Splits past the end of their sequence write nothing
//   out           (B, H, D), lse (B, H): ONE_SPLIT writes these in their place, and nothing is left to merge
// Grid (Hk, splits, B): neighbours read neighbouring pieces of the same rows.
#include "gpu.h"
#include "matrix.h"

#ifndef GROUP
#define GROUP 1
#endif
#ifndef PAGE
#define PAGE 0
#endif
#ifndef WAVES
#define WAVES 4
#endif
#ifndef KEYS
#define KEYS 16
#endif
#ifndef STAGES
#define STAGES 3
#endif
#ifndef ONE_SPLIT
#define ONE_SPLIT 0
#endif
#ifndef WITH_LSE
#define WITH_LSE 0
#endif

constexpr int THREADS = WAVES * GPU_WAVE, PAGE_KEYS = PAGE ? PAGE : 1;
constexpr int DIM_STEPS = (HEAD_DIM + 15) / 16, DIM = DIM_STEPS * 16, STRIDE = DIM + LDS_PADDING;
constexpr int TILE = KEYS * STRIDE, RING = STAGES * 2 * TILE;  // elements: K and V of a tile lie side by side
constexpr int LANES = DIM <= 32 ? 4 : DIM <= 64 ? 8 : DIM <= 128 ? 16 : 32;  // that copy a row
constexpr int KEY_TILES = KEYS / 16, SLOTS = GROUP <= 8 ? 1 : 2;             // of a lane's two rows, how many count
constexpr float LN_2 = 0.6931471805599453f;
constexpr float SCALE_LOG2 = SOFTMAX_SCALE * 1.4426950408889634f;
// As in step 7 of the ladder: the maximum moves only when a score lies so far beyond it, in units of log2.
constexpr float SLACK_LOG2 = 8.0f;
constexpr float NO_MAX = 0.5f * NO_SCORE;  // above what a hidden key scores, so that its weight is 0

static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM >= 32 && HEAD_DIM <= 256, "rows are copied in pieces of 16 bytes");
static_assert(GROUP <= 16, "heads are rows of one operand");
static_assert(KEYS % 16 == 0 && KEYS <= GPU_WAVE, "each lane knows the page of one key of a tile");

// What a workgroup reads: keys from `start` to `end` of a sequence, whose first row, or entry of the table, is `first`.
struct Cache {
    const element *k, *v;
    const int* table;
    long long first;
    int row_elements, start, end;
};

// What a wave keeps of its rows.
struct Rows {
    Operand queries[DIM_STEPS];
    Tile accumulator[DIM_STEPS];
    float running_max[SLOTS];  // of the unscaled scores
    float running_sum[SLOTS];  // of this lane's columns
};

INLINE int first_key_of(const Cache& cache, int turn) { return cache.start + (turn * WAVES + wave_index()) * KEYS; }

// Of the tile's keys, this lane's own one's page; none without pages.
INLINE int load_page(const Cache& cache, int turn) {
    if (PAGE == 0) return 0;
    const int key = smaller(first_key_of(cache, turn) + lane_index() % KEYS, cache.end - 1);
    return cache.table[cache.first + key / PAGE_KEYS];
}

// Start the copy of the wave's tile of a turn, zeros past the last key; `page` is what load_page returned.
INLINE void copy_tile(element* ring, const Cache& cache, int turn, int page) {
    constexpr int ROWS = GPU_WAVE / LANES;  // at once
    const int first_key = first_key_of(cache, turn);
    element* k_tile = ring + turn % STAGES * 2 * TILE;
    if (first_key < cache.end) {
        const int column = lane_index() % LANES * 8;
        UNROLL for (int i = 0; i < KEYS / ROWS; ++i) {
            const int r = i * ROWS + lane_index() / LANES, key = first_key + r;
            const long long row = PAGE ? (long long)shuffle_word(page, r) * PAGE + key % PAGE_KEYS : cache.first + key;
            const bool wanted = key < cache.end && column < HEAD_DIM;
            const long long at = wanted ? row * cache.row_elements + column : 0;
            if (LANES * 8 == DIM || column < DIM) {
                copy_async(k_tile + r * STRIDE + column, cache.k + at, wanted);
                copy_async(k_tile + TILE + r * STRIDE + column, cache.v + at, wanted);
            }
        }
    }
    copies_commit();
}

// GROUP rows of q, and zeros: this lane's words of the left operands, as ldmatrix would deliver them.
INLINE void load_queries(Rows& rows, const element* q) {
    UNROLL for (int d = 0; d < DIM_STEPS; ++d) {
        UNROLL for (int i = 0; i < 4; ++i) {
            const int row = lane_index() / 4 + i % 2 * 8, column = d * 16 + i / 2 * 8 + lane_index() % 4 * 2;
            const bool there = row < GROUP && column < HEAD_DIM;
            rows.queries[d].word[i] = there ? *reinterpret_cast<const unsigned*>(q + row * HEAD_DIM + column) : 0;
        }
    }
}

// Weights in place of the scores; maximum, sum and accumulator follow where a score is too large.
INLINE void update_softmax(Tile (&scores)[KEY_TILES], Rows& rows) {
    float correction[SLOTS];
    bool moved = false;
    UNROLL for (int slot = 0; slot < SLOTS; ++slot) {
        float tile_max = NO_SCORE;
        UNROLL for (int i = 0; i < KEY_TILES * TILE_VALUES; ++i) {
            const float score = scores[i / TILE_VALUES].value[i % TILE_VALUES];
            if (tile_slot(i) == slot) tile_max = larger(tile_max, score);
        }
        tile_max = row_max(tile_max);
        const bool beyond = tile_max > rows.running_max[slot] + SLACK_LOG2 / SCALE_LOG2;
        const float new_max = beyond ? tile_max : rows.running_max[slot];
        correction[slot] = exp2_fast((rows.running_max[slot] - new_max) * SCALE_LOG2);
        rows.running_max[slot] = new_max;
        moved |= beyond;
    }
    if (wave_any(moved)) {
        UNROLL for (int i = 0; i < DIM_STEPS * TILE_VALUES; ++i) {
            const int slot = tile_slot(i);
            if (slot < SLOTS) rows.accumulator[i / TILE_VALUES].value[i % TILE_VALUES] *= correction[slot];
        }
        UNROLL for (int slot = 0; slot < SLOTS; ++slot) rows.running_sum[slot] *= correction[slot];
    }
    UNROLL for (int i = 0; i < KEY_TILES * TILE_VALUES; ++i) {
        const int slot = tile_slot(i);
        float& score = scores[i / TILE_VALUES].value[i % TILE_VALUES];
        score = slot < SLOTS ? exp2_fast(score * SCALE_LOG2 - rows.running_max[slot] * SCALE_LOG2) : 0.0f;
        if (slot < SLOTS) rows.running_sum[slot] += score;
    }
}

// One tile of keys and values, of which the first is `first_key`.
INLINE void visit_tile(Rows& rows, const element* k_tile, int first_key, int end) {
    Tile scores[KEY_TILES] = {};
    UNROLL for (int d = 0; d < DIM_STEPS; ++d) {
        UNROLL for (int n = 0; n < KEY_TILES; ++n) {
            multiply_add(scores[n], rows.queries[d], load_right<STRIDE>(k_tile + n * 16 * STRIDE, d));
        }
    }
    if (first_key + KEYS > end) {
        UNROLL for (int i = 0; i < KEY_TILES * TILE_VALUES; ++i) {
            const int key = first_key + i / TILE_VALUES * 16 + tile_column(i % TILE_VALUES);
            if (!(key < end)) scores[i / TILE_VALUES].value[i % TILE_VALUES] = NO_SCORE;
        }
    }
    update_softmax(scores, rows);
    UNROLL for (int n = 0; n < KEY_TILES; ++n) {
        const Operand weights = as_left_operand(scores + n);
        UNROLL for (int d = 0; d < DIM_STEPS; ++d) {
            multiply_add(rows.accumulator[d], weights, load_values<STRIDE>(k_tile + TILE, n, d * 16));
        }
    }
}

// What the waves have found of each head: accumulators, maxima in units of log2, sums.
struct Found {
    float accumulator[WAVES][GROUP][HEAD_DIM], max[WAVES][GROUP], sum[WAVES][GROUP];
};

INLINE void store_found(Found& found, const Rows& rows) {
    const int wave = wave_index();
    UNROLL for (int i = 0; i < DIM_STEPS * TILE_VALUES; ++i) {
        const int row = tile_row(i % TILE_VALUES), column = i / TILE_VALUES * 16 + tile_column(i % TILE_VALUES);
        const float value = rows.accumulator[i / TILE_VALUES].value[i % TILE_VALUES];
        if (tile_slot(i) < SLOTS && row < GROUP && column < HEAD_DIM) found.accumulator[wave][row][column] = value;
    }
    UNROLL for (int slot = 0; slot < SLOTS; ++slot) {
        const float sum = row_sum(rows.running_sum[slot]);
        if (first_of_row() && slot_row(slot) < GROUP) {
            found.max[wave][slot_row(slot)] = rows.running_max[slot] * SCALE_LOG2;
            found.sum[wave][slot_row(slot)] = sum;
        }
    }
}

KERNEL(THREADS)
decode_split_mma(const element* __restrict__ q, const element* __restrict__ k, const element* __restrict__ v,
                 const int* __restrict__ table, const int* __restrict__ seq_lens, float* __restrict__ partial_out,
                 float* __restrict__ partial_max, float* __restrict__ partial_sum, element* __restrict__ out,
                 float* __restrict__ lse, int kv_heads, int room, int splits, int split_keys) {
    DYNAMIC_LDS(element, rings);
    const int kv_head = block_index_x(), split = block_index_y(), batch = block_index_z();
    const int start = split * split_keys, length = seq_lens[batch];
    if (start >= length) return;
    const Cache cache = {k + kv_head * HEAD_DIM, v + kv_head * HEAD_DIM,         table, (long long)batch * room,
                         kv_heads * HEAD_DIM,    start, smaller(start + split_keys, length)};
    const int turns = (cache.end - start + WAVES * KEYS - 1) / (WAVES * KEYS);
    const long long first_head = ((long long)batch * kv_heads + kv_head) * GROUP;
    element* ring = rings + wave_index() * RING;

    int page = load_page(cache, 0);
    UNROLL for (int turn = 0; turn < STAGES - 1; ++turn) {
        copy_tile(ring, cache, turn, page);
        page = load_page(cache, turn + 1);
    }
    Rows rows = {};
    load_queries(rows, q + first_head * HEAD_DIM);
    UNROLL for (int slot = 0; slot < SLOTS; ++slot) rows.running_max[slot] = NO_MAX;
    for (int turn = 0; turn < turns; ++turn) {
        copies_done_but<STAGES - 2>();
        wave_barrier();  // the tile is there, and that of the turn before has been read
        copy_tile(ring, cache, turn + STAGES - 1, page);
        page = load_page(cache, turn + STAGES);
        const int first_key = first_key_of(cache, turn);
        if (first_key < cache.end) visit_tile(rows, ring + turn % STAGES * 2 * TILE, first_key, cache.end);
    }
    barrier();

    Found& found = *reinterpret_cast<Found*>(rings);
    store_found(found, rows);
    barrier();
    for (int index = thread_index(); index < GROUP * HEAD_DIM; index += THREADS) {
        const int row = index / HEAD_DIM, column = index % HEAD_DIM;
        float total_max = NO_SCORE, total_sum = 0.0f, total = 0.0f;
        UNROLL for (int wave = 0; wave < WAVES; ++wave) total_max = larger(total_max, found.max[wave][row]);
        UNROLL for (int wave = 0; wave < WAVES; ++wave) {
            const float factor = exp2_fast(found.max[wave][row] - total_max);
            total_sum += factor * found.sum[wave][row];
            total += factor * found.accumulator[wave][row][column];
        }
        if constexpr (ONE_SPLIT) {
            out[(first_head + row) * HEAD_DIM + column] = to_element(total * (1.0f / total_sum));
            if (WITH_LSE && column == 0) lse[first_head + row] = (total_max + log2_fast(total_sum)) * LN_2;
            continue;
        }
        const long long result = (first_head + row) * splits + split;
        partial_out[result * HEAD_DIM + column] = total;
        if (column == 0) {
            partial_max[result] = total_max;
            partial_sum[result] = total_sum;
        }
    }
}
