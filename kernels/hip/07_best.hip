// Step 7: an operand of K or V serves ROW_TILES tiles of queries, and what changes nothing is not done.
//
// New against step 6:
// - A wave owns ROW_TILES * 16 query rows, so that an operand of K or V, once read from LDS, is multiplied ROW_TILES
//   times. With 16 rows the matrix units of CDNA3 take the 128 bytes per cycle that LDS gives, all by themselves.
// - Q_IN_REGISTERS: a wave's queries stay in registers for the whole walk; on CDNA they come there without LDS.
// - Only tiles that the diagonal or the end of the keys crosses are masked; a wave leaves out those it does not see
//   (on gfx950 it does not).
// - What was accumulated is corrected for a new maximum only when that is much larger (SLACK_LOG2).
// - Where bounds cost something (NVIDIA), only the last tile of keys is read with them; the scale is multiplied in
//   where the exponential is taken.
// - Under a causal mask the blocks with most keys begin first; the short ones fill the end.
// - On gfx950 K and V come to LDS without passing through registers (tile_walk.h).
// - XCDS: on CDNA3 and CDNA4 the query heads of a K/V head share the L2 cache of one XCD (block_order.h).
// Still slow: the products of a wave wait for its softmax, and few waves fit beside it that could fill the time.
//
// Q, out (B, Sq, H, D), K, V (B, Skv, Hk, D), lse (B, H, Sq); HEAD_DIM a multiple of 8.
// Grid (ceil(Sq / BLOCK_M), H, B), WAVES * GPU_WAVE threads. `scores` is not used.
#include "gpu.h"
#include "block_order.h"
#include "matrix.h"

#ifndef WAVES
#define WAVES 4
#endif
#ifndef ROW_TILES
#define ROW_TILES 2
#endif
#ifndef BLOCK_N
#define BLOCK_N 64
#endif
#ifndef Q_IN_REGISTERS
#define Q_IN_REGISTERS 0
#endif

constexpr int THREADS = WAVES * GPU_WAVE;
constexpr int WAVE_ROWS = ROW_TILES * 16, BLOCK_M = WAVES * WAVE_ROWS;
// As multiplied: the columns beyond HEAD_DIM are zeros.
constexpr int DIM_STEPS = (HEAD_DIM + OPERAND_COLUMNS - 1) / OPERAND_COLUMNS, DIM = DIM_STEPS * OPERAND_COLUMNS;
constexpr int DIM_TILES = (HEAD_DIM + 15) / 16, KEY_TILES = BLOCK_N / 16, KEY_STEPS = BLOCK_N / OPERAND_COLUMNS;
static_assert(BLOCK_N % OPERAND_COLUMNS == 0, "a tile of keys is whole operands");
constexpr int LANES_PER_ROW = DIM <= 32 ? 4 : DIM <= 64 ? 8 : DIM <= 128 ? 16 : 32;  // 8 elements each
constexpr int ROW_STRIDE = DIM + LDS_PADDING;  // elements, of Q and K in LDS
constexpr int VALUE_STRIDE = VALUES_TRANSPOSED ? BLOCK_N + LDS_PADDING : ROW_STRIDE;
constexpr int VALUE_ROWS = VALUES_TRANSPOSED ? DIM_TILES * 16 : BLOCK_N;
constexpr int BUFFERS = ASYNC_COPIES ? 2 : 1;
constexpr int K_ELEMENTS = BLOCK_N * ROW_STRIDE, V_ELEMENTS = VALUE_ROWS * VALUE_STRIDE;
// Two copies of a tile's code, one without a mask. NVIDIA's registers hold both in one loop, where each wave chooses.
// On AMD a workgroup walks over the tiles that may be crossed first, and in a second loop over those that all its waves
// see whole. In this order: the first loop is never empty, so that both share what they compute of a lane's addresses.
constexpr bool ONE_LOOP = GPU_MATRIX == GPU_MATRIX_MMA;
// The maximum of a row that has seen no key. On AMD above NO_SCORE: exp2 of what is masked is then 0, and nothing asks.
constexpr float NO_MAX = ONE_LOOP ? NO_SCORE : 0.5f * NO_SCORE;
constexpr float SCALE_LOG2 = SOFTMAX_SCALE * 1.4426950408889634f;  // exp(x) = exp2(x log2(e))

#include "tile_movers.h"

// What a wave keeps of its rows while it walks over the keys.
struct Rows {
    Operand queries[ROW_TILES][Q_IN_REGISTERS ? DIM_STEPS : 1];
    Tile accumulator[ROW_TILES][DIM_TILES];
    float running_max[ROW_TILES][ROWS_PER_LANE];  // of the unscaled scores
    float running_sum[ROW_TILES][ROWS_PER_LANE];  // of this lane's columns
};

// scores = Q K^T, not scaled.
INLINE void multiply_keys(Tile (&scores)[ROW_TILES][KEY_TILES], const Rows& rows, const element* q_rows,
                          const element* k_tile) {
    UNROLL for (int m = 0; m < ROW_TILES * KEY_TILES; ++m) scores[m / KEY_TILES][m % KEY_TILES] = {};
    UNROLL for (int d = 0; d < DIM_STEPS; ++d) {
        Operand queries[ROW_TILES];
        UNROLL for (int m = 0; m < ROW_TILES; ++m) {
            if constexpr (Q_IN_REGISTERS) {
                queries[m] = rows.queries[m][d];
            } else {
                queries[m] = load_left<ROW_STRIDE>(q_rows + m * 16 * ROW_STRIDE, d);
            }
        }
        UNROLL for (int n = 0; n < KEY_TILES; ++n) {
            const Operand keys = load_right<ROW_STRIDE>(k_tile + n * 16 * ROW_STRIDE, d);
            UNROLL for (int m = 0; m < ROW_TILES; ++m) multiply_add(scores[m][n], queries[m], keys);
        }
    }
}

// NO_SCORE for keys that a row must not see; `last_seen` is the last key that the wave's first row sees.
INLINE void mask_scores(Tile (&scores)[ROW_TILES][KEY_TILES], int first_key, int last_seen, int seq_kv) {
    UNROLL for (int m = 0; m < ROW_TILES; ++m) {
        UNROLL for (int n = 0; n < KEY_TILES; ++n) {
            UNROLL for (int i = 0; i < TILE_VALUES; ++i) {
                const int key = first_key + n * 16 + tile_column(i);
                const bool seen = key < seq_kv && (!CAUSAL || key <= last_seen + m * 16 + tile_row(i));
                if (!seen) scores[m][n].value[i] = NO_SCORE;
            }
        }
    }
}

// The maximum that a row's probabilities are taken from moves only when a score lies this far beyond it, in units of
// log2. Until then they may be as large as 2^8, which fp16 and bf16 hold with the same relative precision; in exchange
// what was accumulated need not be multiplied by a correction for nearly every tile.
constexpr float SLACK_LOG2 = 8.0f;

// Probabilities in place of the scores; maximum, sum and what was accumulated follow, where a score is too large.
template <bool MASKED>
INLINE void update_softmax(Tile (&scores)[KEY_TILES], Tile (&accumulator)[DIM_TILES],
                           float (&running_max)[ROWS_PER_LANE], float (&running_sum)[ROWS_PER_LANE]) {
    float new_max[ROWS_PER_LANE];
    bool moved = false;
    UNROLL for (int slot = 0; slot < ROWS_PER_LANE; ++slot) {
        float tile_max = NO_SCORE;
        UNROLL for (int n = 0; n < KEY_TILES; ++n) {
            UNROLL for (int i = 0; i < TILE_VALUES; ++i) {
                if (tile_slot(i) == slot) tile_max = larger(tile_max, scores[n].value[i]);
            }
        }
        tile_max = row_max(tile_max);
        const bool beyond = tile_max > running_max[slot] + SLACK_LOG2 / SCALE_LOG2;
        new_max[slot] = beyond ? tile_max : running_max[slot];
        moved |= beyond;
    }
    if (wave_any(moved)) {
        float correction[ROWS_PER_LANE];
        UNROLL for (int slot = 0; slot < ROWS_PER_LANE; ++slot) {
            correction[slot] = exp2_fast((running_max[slot] - new_max[slot]) * SCALE_LOG2);
            running_max[slot] = new_max[slot];
            running_sum[slot] *= correction[slot];
        }
        UNROLL for (int d = 0; d < DIM_TILES; ++d) {
            UNROLL for (int i = 0; i < TILE_VALUES; ++i) accumulator[d].value[i] *= correction[tile_slot(i)];
        }
    }
    UNROLL for (int n = 0; n < KEY_TILES; ++n) {
        UNROLL for (int i = 0; i < TILE_VALUES; ++i) {
            const float score = scores[n].value[i];
            const bool seen = !MASKED || !ONE_LOOP || score != NO_SCORE;
            const float p = seen ? exp2_fast(score * SCALE_LOG2 - running_max[tile_slot(i)] * SCALE_LOG2) : 0.0f;
            scores[n].value[i] = p;
            running_sum[tile_slot(i)] += p;
        }
    }
}

// What follows from the scores of a tile of keys: statistics, and what the tile adds to the output.
template <bool MASKED>
INLINE void use_scores(Rows& rows, Tile (&scores)[ROW_TILES][KEY_TILES], const element* v_tile, int first_key,
                       int last_seen, int seq_kv) {
    if constexpr (MASKED) mask_scores(scores, first_key, last_seen, seq_kv);
    UNROLL for (int m = 0; m < ROW_TILES; ++m) {
        update_softmax<MASKED>(scores[m], rows.accumulator[m], rows.running_max[m], rows.running_sum[m]);
    }
    UNROLL for (int n = 0; n < KEY_STEPS; ++n) {
        Operand probabilities[ROW_TILES];
        UNROLL for (int m = 0; m < ROW_TILES; ++m) probabilities[m] = as_left_operand(scores[m] + n * OPERAND_TILES);
        UNROLL for (int d = 0; d < DIM_TILES; ++d) {
            const Operand values = load_values<VALUE_STRIDE>(v_tile, n, d * 16);
            UNROLL for (int m = 0; m < ROW_TILES; ++m) multiply_add(rows.accumulator[m][d], probabilities[m], values);
        }
    }
}

#include "tile_walk.h"

// Q of the workgroup, of which there are `row_limit` rows from `q` on: to LDS, and from there to registers where it
// stays in these; on CDNA without LDS.
INLINE void read_queries(Rows& rows, element* q_tile, const element* q_rows, const element* q, long long stride,
                         int row_limit) {
#if GPU_MATRIX == GPU_MATRIX_MFMA && Q_IN_REGISTERS
    UNROLL for (int m = 0; m < ROW_TILES; ++m) {
        const int first = wave_index() * WAVE_ROWS + m * 16;
        UNROLL for (int d = 0; d < DIM_STEPS; ++d) {
            rows.queries[m][d] = load_left_direct(q + first * stride, stride, row_limit - first, d, HEAD_DIM);
        }
    }
#else
    RowMover<BLOCK_M> mover;
    mover.start(q_tile, q, stride, row_limit);
    mover.finish(q_tile);
    if constexpr (Q_IN_REGISTERS) {
        barrier();
        UNROLL for (int m = 0; m < ROW_TILES; ++m) {
            UNROLL for (int d = 0; d < DIM_STEPS; ++d) {
                rows.queries[m][d] = load_left<ROW_STRIDE>(q_rows + m * 16 * ROW_STRIDE, d);
            }
        }
        barrier();
    }
#endif
}

// Divide by the sums and write a wave's rows, of which there are `row_limit`.
INLINE void write_rows(const Rows& rows, element* out_rows, long long stride, float* lse_rows, int row_limit) {
    UNROLL for (int m = 0; m < ROW_TILES; ++m) {
        float factor[ROWS_PER_LANE];
        UNROLL for (int slot = 0; slot < ROWS_PER_LANE; ++slot) {
            const float sum = row_sum(rows.running_sum[m][slot]);
            factor[slot] = inverse_sum(sum);
            const int row = m * 16 + slot_row(slot);
            if (WITH_LSE && first_of_row() && row < row_limit) {
                const float log2_sum = rows.running_max[m][slot] * SCALE_LOG2 + log2_fast(sum);  // log2(0): -infinity
                lse_rows[row] = log2_sum * 0.6931471805599453f;
            }
        }
        UNROLL for (int d = 0; d < DIM_TILES; ++d) {
            element* corner = out_rows + m * 16 * stride + d * 16;
            store_tile(corner, stride, rows.accumulator[m][d], factor, row_limit - m * 16, HEAD_DIM - d * 16);
        }
    }
}

KERNEL(THREADS)
attention_best(const element* __restrict__ q, const element* __restrict__ k, const element* __restrict__ v,
               element* __restrict__ out, float* __restrict__ lse, float* __restrict__ scores_unused, int seq_q,
               int seq_kv, int heads, int kv_heads) {
    // BLOCK_M rows of Q, then BUFFERS tiles of K and of V; these over Q where Q stays in registers.
    DYNAMIC_LDS(element, q_tile);
    element* k_tiles = Q_IN_REGISTERS ? q_tile : q_tile + BLOCK_M * ROW_STRIDE;
    element* v_tiles = k_tiles + BUFFERS * K_ELEMENTS;

    const int blocks = (seq_q + BLOCK_M - 1) / BLOCK_M;
    const RowBlock own = row_block(blocks, heads, kv_heads);
    const int first_row = (CAUSAL ? blocks - 1 - own.rank : own.rank) * BLOCK_M;
    const int head = own.head, batch = own.batch, kv_head = head / (heads / kv_heads);
    const long long q_stride = (long long)heads * HEAD_DIM, kv_stride = (long long)kv_heads * HEAD_DIM;
    const long long q_start = ((long long)batch * seq_q + first_row) * q_stride + (long long)head * HEAD_DIM;
    const element* k_head = k + (long long)batch * seq_kv * kv_stride + (long long)kv_head * HEAD_DIM;
    const element* v_head = v + (long long)batch * seq_kv * kv_stride + (long long)kv_head * HEAD_DIM;
    const int wave_row = wave_index() * WAVE_ROWS;  // of the workgroup's rows, this wave's first
    const int offset = seq_kv - seq_q;              // row i sees the keys up to i + offset
    const int keys = CAUSAL ? smaller(seq_kv, first_row + BLOCK_M + offset) : seq_kv;
    const int last_seen = first_row + wave_row + offset;
    const element* q_rows = q_tile + wave_row * ROW_STRIDE;

    Rows rows = {};
    UNROLL for (int m = 0; m < ROW_TILES; ++m) {
        UNROLL for (int slot = 0; slot < ROWS_PER_LANE; ++slot) rows.running_max[m][slot] = NO_MAX;
    }
    read_queries(rows, q_tile, q_rows, q + q_start, q_stride, seq_q - first_row);
    KeyMover k_mover;
    ValuesMover v_mover;
    // Tiles before `whole` are seen by all waves; the last one that there is counts as crossed.
    const int seen_by_all = CAUSAL ? smaller(seq_kv - 1, first_row + offset + 1) : seq_kv - 1;
    const int whole = ONE_LOOP || seen_by_all < 0 ? 0 : seen_by_all / BLOCK_N * BLOCK_N;
    k_mover.start(k_tiles, k_head + whole * kv_stride, kv_stride, seq_kv - whole);
    v_mover.start(v_tiles, v_head + whole * kv_stride, kv_stride, seq_kv - whole);
    k_mover.finish(k_tiles);
    v_mover.finish(v_tiles);
    barrier();

    const Walk walk = {q_rows, k_head, v_head, k_tiles, v_tiles, kv_stride, keys, seq_kv, last_seen};
    if (keys > 0) {
        visit_tiles<true>(rows, walk, whole, keys, whole > 0 ? 0 : keys);
        if (whole > 0) visit_tiles<false>(rows, walk, 0, whole, 0);
    }
    write_rows(rows, out + q_start + wave_row * q_stride, q_stride,
               lse + ((long long)batch * heads + head) * seq_q + first_row + wave_row, seq_q - first_row - wave_row);
}
