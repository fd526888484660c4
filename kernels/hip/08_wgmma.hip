// Step 8: a warpgroup multiplies tiles of LDS directly, and its tensor cores work during the softmax. sm_90 only.
//
// New against step 7:
// - wgmma (wgmma.h): four waves multiply 64 rows by operands that the tensor cores read from LDS by themselves. No
//   instruction is spent on bringing K and V to registers, and mma.sync reaches 63 % of Hopper's peak only.
// - It is asynchronous. S of a tile and P V of the tile before are issued together; while P V is multiplied, the
//   softmax of S runs, and products of the multiprocessor's other warpgroups run beside it anyway.
// - So V is used one tile later than K: both have two buffers, of which K's is a tile ahead.
// Still slow: waves that compute also copy (16 bytes an instruction), and all meet once in each tile. TMA and waves
// that do nothing but copy would free them (kernels/gluon/prefill/sm_90.py); TMA needs descriptors that the host makes.
//
// AMD has no such instruction: the step is refused there, and the emulator imitates it for sm_90.
//
// Q, out (B, Sq, H, D), K, V (B, Skv, Hk, D), lse (B, H, Sq); HEAD_DIM a multiple of 8.
// Grid (ceil(Sq / BLOCK_M), H, B), WARPGROUPS * 128 threads. `scores` is not used.
#define DYNAMIC_LDS_ALIGNMENT 1024
#include "gpu.h"
#include "matrix.h"
#include "wgmma.h"

#ifndef WARPGROUPS
#define WARPGROUPS 2
#endif
#ifndef BLOCK_N
#define BLOCK_N 128
#endif
#ifndef Q_IN_REGISTERS
#define Q_IN_REGISTERS 1
#endif

constexpr int THREADS = WARPGROUPS * WARPGROUP, ROWS = 64, BLOCK_M = WARPGROUPS * ROWS;
// As multiplied: the columns beyond HEAD_DIM are zeros.
constexpr int DIM_PANELS = (HEAD_DIM + PANEL - 1) / PANEL, DIM = DIM_PANELS * PANEL;
constexpr int WIDTH = DIM % 128 ? 64 : 128;  // dimensions of V that an instruction multiplies
constexpr int TILE = BLOCK_N * DIM, Q_PANEL = BLOCK_M * PANEL, KEY_PANEL = BLOCK_N * PANEL;  // elements
constexpr int SLOTS = 2;  // rows of a lane: l / 4 and 8 more
constexpr float SCALE_LOG2 = SOFTMAX_SCALE * 1.4426950408889634f;  // exp(x) = exp2(x log2(e))
// As in step 7: the maximum moves only when a score lies so far beyond it, in units of log2.
constexpr float SLACK_LOG2 = 8.0f;
static_assert(BLOCK_N == 64 || BLOCK_N == 128, "an instruction multiplies all keys of a tile");
// Of a row that has seen no key: above NO_SCORE, so that exp2 of what is masked is 0, and nothing asks.
constexpr float NO_MAX = 0.5f * NO_SCORE;

// What a lane keeps of its two rows while it walks over the keys.
struct Rows {
    Operand queries[Q_IN_REGISTERS ? DIM / 16 : 1];
    float accumulator[DIM / WIDTH][WIDTH / 2];
    Operand probabilities[BLOCK_N / 16];  // of the tile whose V is still to be multiplied
    float running_max[SLOTS];             // of the unscaled scores
    float running_sum[SLOTS];             // of this lane's columns
};

// Start the copy of ROW_COUNT rows, of which `rows` exist, to panels; the others, and columns that there are not,
// become zeros. 8, 16 or 32 threads share a row.
template <int ROW_COUNT, bool WHOLE>
INLINE void copy_tile(element* tile, const element* memory, long long stride, int rows) {
    constexpr int LANES = DIM <= 64 ? 8 : DIM <= 128 ? 16 : 32, STEP = THREADS / LANES;
    const int first = thread_index() / LANES, column = thread_index() % LANES * 8;
    if (LANES * 8 != DIM && column >= DIM) return;
    element* to = tile + column / PANEL * (ROW_COUNT * PANEL);
    const element* from = memory + first * stride + column;
    UNROLL for (int i = 0; i < (ROW_COUNT + STEP - 1) / STEP; ++i) {
        const int row = first + i * STEP;
        if (ROW_COUNT % STEP && row >= ROW_COUNT) continue;
        const bool wanted = (WHOLE || row < rows) && (HEAD_DIM == DIM || column < HEAD_DIM);
        copy_async(to + panel_place(row, column % PANEL), wanted ? from : memory, wanted);
        from += STEP * stride;
    }
}

INLINE void copy_keys(element* tile, const element* head, long long stride, int first_key, int seq_kv) {
    const element* memory = head + first_key * stride;
    if (first_key + BLOCK_N <= seq_kv) return copy_tile<BLOCK_N, true>(tile, memory, stride, BLOCK_N);
    copy_tile<BLOCK_N, false>(tile, memory, stride, seq_kv - first_key);
}

// Begin scores = Q K^T, not scaled.
INLINE void multiply_keys(float (&scores)[BLOCK_N / 2], const Rows& rows, const element* q_rows,
                          const element* k_tile) {
    const TileView queries = view_tile(q_rows), keys = view_tile(k_tile);
    UNROLL for (int d = 0; d < DIM / 16; ++d) {
        const int panel = d / 4, column = d % 4 * 32;  // the latter in bytes
        const TileView right = keys + (panel * KEY_PANEL * 2 + column);
        if constexpr (Q_IN_REGISTERS) {
            wgmma<BLOCK_N>(scores, rows.queries[d], right, d > 0);
        } else {
            wgmma<BLOCK_N>(scores, queries + (panel * Q_PANEL * 2 + column), right, d > 0);
        }
    }
    wgmma_commit();
}

// Begin accumulator += P V.
INLINE void multiply_values(Rows& rows, const element* v_tile) {
    const TileView values = view_tile(v_tile, KEY_PANEL * 2);
    UNROLL for (int n = 0; n < BLOCK_N / 16; ++n) {
        UNROLL for (int d = 0; d < DIM / WIDTH; ++d) {
            const TileView right = values + (d * (WIDTH / PANEL) * KEY_PANEL * 2 + n * 16 * 128);
            wgmma<WIDTH, true>(rows.accumulator[d], rows.probabilities[n], right, true);
        }
    }
    wgmma_commit();
}

// NO_SCORE for keys that a row must not see; `last_seen` is the last key that the warpgroup's first row sees.
INLINE void mask_scores(float (&scores)[BLOCK_N / 2], int first_key, int last_seen, int seq_kv) {
    const int row = wave_index() % 4 * 16 + lane_index() / 4;
    UNROLL for (int i = 0; i < BLOCK_N / 2; ++i) {
        const int key = first_key + 8 * (i / 4) + 2 * (lane_index() % 4) + i % 2;
        const bool seen = key < seq_kv && (!CAUSAL || key <= last_seen + row + 8 * (i / 2 % 2));
        if (!seen) scores[i] = NO_SCORE;
    }
}

// Probabilities in place of the scores; maximum and sum follow where a score is too large, and the result is what the
// accumulator is to be multiplied with. Returns whether any of the wave's rows has one other than 1.
INLINE bool update_softmax(float (&scores)[BLOCK_N / 2], Rows& rows, float (&correction)[SLOTS]) {
    bool moved = false;
    UNROLL for (int slot = 0; slot < SLOTS; ++slot) {
        float tile_max = NO_SCORE;
        UNROLL for (int i = 0; i < BLOCK_N / 2; ++i) {
            if (i / 2 % 2 == slot) tile_max = larger(tile_max, scores[i]);
        }
        tile_max = row_max(tile_max);
        const bool beyond = tile_max > rows.running_max[slot] + SLACK_LOG2 / SCALE_LOG2;
        const float new_max = beyond ? tile_max : rows.running_max[slot];
        correction[slot] = exp2_fast((rows.running_max[slot] - new_max) * SCALE_LOG2);
        rows.running_max[slot] = new_max;
        rows.running_sum[slot] *= correction[slot];
        moved |= beyond;
    }
    UNROLL for (int i = 0; i < BLOCK_N / 2; ++i) {
        const int slot = i / 2 % 2;
        scores[i] = exp2_fast(scores[i] * SCALE_LOG2 - rows.running_max[slot] * SCALE_LOG2);
        rows.running_sum[slot] += scores[i];
    }
    return wave_any(moved);
}

INLINE void correct_accumulator(Rows& rows, const float (&correction)[SLOTS]) {
    UNROLL for (int i = 0; i < DIM / 2; ++i) {
        rows.accumulator[i / (WIDTH / 2)][i % (WIDTH / 2)] *= correction[i / 2 % 2];
    }
}

INLINE void keep_probabilities(Rows& rows, const float (&scores)[BLOCK_N / 2]) {
    UNROLL for (int n = 0; n < BLOCK_N / 16; ++n) {
        UNROLL for (int i = 0; i < 4; ++i) {
            rows.probabilities[n].word[i] = pack(scores[8 * n + 2 * i], scores[8 * n + 2 * i + 1]);
        }
    }
}

// What is the same for all tiles: this warpgroup's first row sees the keys up to `last_seen`.
struct Walk {
    const element *q_rows, *k_head, *v_head;
    element *k_tiles, *v_tiles;
    long long kv_stride;
    int tiles, seq_kv, last_seen;
};

// S and softmax of one tile, and P V of the one before; the next K and this V are copied meanwhile.
template <bool FIRST>
INLINE void visit_tile(Rows& rows, const Walk& walk, int tile) {
    const int slot = tile % 2, first_key = tile * BLOCK_N;
    copies_done();
    copies_visible();
    barrier();  // K of this tile and V of the one before are there, and what those of the next are copied to is free
    if (tile + 1 < walk.tiles) {
        copy_keys(walk.k_tiles + (1 - slot) * TILE, walk.k_head, walk.kv_stride, first_key + BLOCK_N, walk.seq_kv);
    }
    copy_keys(walk.v_tiles + slot * TILE, walk.v_head, walk.kv_stride, first_key, walk.seq_kv);

    float scores[BLOCK_N / 2];
    wgmma_begin();
    multiply_keys(scores, rows, walk.q_rows, walk.k_tiles + slot * TILE);
    if constexpr (!FIRST) multiply_values(rows, walk.v_tiles + (1 - slot) * TILE);
    wgmma_wait<FIRST ? 0 : 1>();
    const int next_key = first_key + BLOCK_N;
    if (next_key > walk.seq_kv || (CAUSAL && next_key - 1 > walk.last_seen)) {
        mask_scores(scores, first_key, walk.last_seen, walk.seq_kv);
    }
    float correction[SLOTS];
    const bool moved = update_softmax(scores, rows, correction);
    wgmma_wait<0>();
    if (!FIRST && moved) correct_accumulator(rows, correction);
    keep_probabilities(rows, scores);
}

// The warpgroup's 64 rows of Q as the left operands of a wave's 16.
INLINE void load_queries(Rows& rows, const element* q_rows) {
    const int row = wave_index() % 4 * 16 + lane_index() % 16;
    UNROLL for (int d = 0; d < DIM / 16; ++d) {
        const int column = d % 4 * 16 + lane_index() / 16 * 8;
        rows.queries[d] = ldmatrix_x4(q_rows + d / 4 * Q_PANEL + panel_place(row, column));
    }
}

// Divide by the sums and write a wave's 16 rows, of which there are `row_limit`.
INLINE void write_rows(const Rows& rows, element* out_rows, long long stride, float* lse_rows, int row_limit) {
    UNROLL for (int slot = 0; slot < SLOTS; ++slot) {
        const float sum = row_sum(rows.running_sum[slot]), factor = inverse_sum(sum);
        const int row = slot_row(slot), first = lane_index() % 4 * 2;
        if (row >= row_limit) continue;
        if (WITH_LSE && first_of_row()) {
            const float log2_sum = rows.running_max[slot] * SCALE_LOG2 + log2_fast(sum);  // log2(0): -infinity
            lse_rows[row] = log2_sum * 0.6931471805599453f;
        }
        UNROLL for (int n = 0; n < DIM / 8; ++n) {
            const float* value = rows.accumulator[n / (WIDTH / 8)] + n % (WIDTH / 8) * 4 + 2 * slot;
            unsigned* to = reinterpret_cast<unsigned*>(out_rows + row * stride + n * 8 + first);
            if (n * 8 < HEAD_DIM) *to = pack(value[0] * factor, value[1] * factor);
        }
    }
}

KERNEL(THREADS)
attention_wgmma(const element* __restrict__ q, const element* __restrict__ k, const element* __restrict__ v,
                element* __restrict__ out, float* __restrict__ lse, float* __restrict__ scores_unused, int seq_q,
                int seq_kv, int heads, int kv_heads) {
    // BLOCK_M rows of Q, two tiles of K, two of V.
    DYNAMIC_LDS(element, q_tile);
    element* k_tiles = q_tile + BLOCK_M * DIM;
    element* v_tiles = k_tiles + 2 * TILE;

    // Under a causal mask the blocks with most keys begin first.
    const int first_row = (CAUSAL ? (seq_q - 1) / BLOCK_M - block_index_x() : block_index_x()) * BLOCK_M;
    const int head = block_index_y(), batch = block_index_z(), kv_head = head / (heads / kv_heads);
    const long long q_stride = (long long)heads * HEAD_DIM, kv_stride = (long long)kv_heads * HEAD_DIM;
    const long long q_start = ((long long)batch * seq_q + first_row) * q_stride + (long long)head * HEAD_DIM;
    const long long kv_start = (long long)batch * seq_kv * kv_stride + (long long)kv_head * HEAD_DIM;
    const int group_row = thread_index() / WARPGROUP * ROWS, wave_row = wave_index() * 16;
    const int offset = seq_kv - seq_q;  // row i sees the keys up to i + offset
    const int keys = CAUSAL ? smaller(seq_kv, first_row + BLOCK_M + offset) : seq_kv;
    const int tiles = (keys + BLOCK_N - 1) / BLOCK_N;
    const element* q_rows = q_tile + group_row * PANEL;

    Rows rows = {};
    UNROLL for (int slot = 0; slot < SLOTS; ++slot) rows.running_max[slot] = NO_MAX;
    if (keys > 0) {
        const Walk walk = {q_rows,    k + kv_start, v + kv_start, k_tiles, v_tiles,
                           kv_stride, tiles,        seq_kv,       first_row + group_row + offset};
        copy_tile<BLOCK_M, false>(q_tile, q + q_start, q_stride, seq_q - first_row);
        copy_keys(k_tiles, walk.k_head, kv_stride, 0, seq_kv);
        if constexpr (Q_IN_REGISTERS) {
            copies_done();
            barrier();
            load_queries(rows, q_rows);
        }
        visit_tile<true>(rows, walk, 0);
        for (int tile = 1; tile < tiles; ++tile) visit_tile<false>(rows, walk, tile);
        copies_done();
        copies_visible();
        barrier();
        wgmma_begin();
        multiply_values(rows, v_tiles + (tiles - 1) % 2 * TILE);
        wgmma_wait<0>();
    }
    write_rows(rows, out + q_start + wave_row * q_stride, q_stride,
               lse + ((long long)batch * heads + head) * seq_q + first_row + wave_row, seq_q - first_row - wave_row);
}
