// Step 5: matrix cores.
//
// A workgroup of WAVES waves owns WAVES * 16 query rows of one head, each wave 16 of them, and walks over the keys it
// sees in tiles of BLOCK_N. New against step 4: both products are done by matrix instructions, 16 x 16 x 16 at a time
// (matrix.h), from operands that are read from LDS; probabilities are rounded to elements and stay in registers, where
// they already lie as the second product wants them.
//
// Why: a matrix instruction does in 16 cycles of one SIMD (CDNA3) what takes 64 vector instructions; the vector units
// are left with the softmax. Still slow: every tile is waited for before anything is computed.
//
// Q, out (B, Sq, H, D), K, V (B, Skv, Hk, D), lse (B, H, Sq); HEAD_DIM a multiple of 8.
// Grid (ceil(Sq / BLOCK_M), H, B), WAVES * GPU_WAVE threads. `scores` is not used.
#include "gpu.h"
#include "matrix.h"

#ifndef WAVES
#define WAVES 4
#endif
#ifndef BLOCK_N
#define BLOCK_N 32
#endif

constexpr int THREADS = WAVES * GPU_WAVE;
constexpr int BLOCK_M = WAVES * 16;
// As multiplied: the columns beyond HEAD_DIM are zeros.
constexpr int DIM_STEPS = (HEAD_DIM + OPERAND_COLUMNS - 1) / OPERAND_COLUMNS, DIM = DIM_STEPS * OPERAND_COLUMNS;
constexpr int DIM_TILES = (HEAD_DIM + 15) / 16, KEY_TILES = BLOCK_N / 16, KEY_STEPS = BLOCK_N / OPERAND_COLUMNS;
static_assert(BLOCK_N % OPERAND_COLUMNS == 0, "a tile of keys is whole operands");
constexpr int ROW_STRIDE = DIM + LDS_PADDING;  // elements, of Q and K in LDS
constexpr int VALUE_STRIDE = VALUES_TRANSPOSED ? BLOCK_N + LDS_PADDING : ROW_STRIDE;
constexpr int VALUE_ROWS = VALUES_TRANSPOSED ? DIM_TILES * 16 : BLOCK_N;
constexpr float SCALE_LOG2 = SOFTMAX_SCALE * 1.4426950408889634f;  // exp(x) = exp2(x log2(e))

// ROWS x DIM to LDS as it is.
template <int ROWS>
INLINE void copy_rows(element* lds, const element* memory, long long stride, int rows) {
    for (int task = thread_index(); task < ROWS * DIM / 8; task += THREADS) {
        const int row = task / (DIM / 8), column = task % (DIM / 8) * 8;
        element* to = lds + place_in_lds<ROW_STRIDE>(row, column);
        store_row(to, load_row(memory, stride, row, rows, column, HEAD_DIM));
    }
}

// BLOCK_N keys to LDS as [dim][key]: a thread turns 4 keys x 8 dimensions around.
INLINE void copy_transposed(element* lds, const element* memory, long long stride, int rows) {
    for (int task = thread_index(); task < BLOCK_N / 4 * (DIM_TILES * 2); task += THREADS) {
        const int key = task % (BLOCK_N / 4) * 4, dim = task / (BLOCK_N / 4) * 8;
        Words<4> keys[4];
        UNROLL for (int i = 0; i < 4; ++i) keys[i] = load_row(memory, stride, key + i, rows, dim, HEAD_DIM);
        store_turned<VALUE_STRIDE>(lds, dim, key, keys);
    }
}

// scores = Q K^T of this wave's 16 rows, in units of log2; keys that a row must not see get NO_SCORE.
INLINE void multiply_keys(Tile* scores, const element* q_rows, const element* k_tile, int first_key, int last_seen) {
    UNROLL for (int n = 0; n < KEY_TILES; ++n) scores[n] = {};
    UNROLL for (int d = 0; d < DIM_STEPS; ++d) {
        const Operand query = load_left<ROW_STRIDE>(q_rows, d);
        UNROLL for (int n = 0; n < KEY_TILES; ++n) {
            multiply_add(scores[n], query, load_right<ROW_STRIDE>(k_tile + n * 16 * ROW_STRIDE, d));
        }
    }
    UNROLL for (int n = 0; n < KEY_TILES; ++n) {
        UNROLL for (int i = 0; i < TILE_VALUES; ++i) {
            const int limit = CAUSAL ? last_seen + tile_row(i) : last_seen;
            const bool seen = first_key + n * 16 + tile_column(i) <= limit;
            scores[n].value[i] = seen ? scores[n].value[i] * SCALE_LOG2 : NO_SCORE;
        }
    }
}

KERNEL(THREADS)
attention_matrix(const element* __restrict__ q, const element* __restrict__ k, const element* __restrict__ v,
                 element* __restrict__ out, float* __restrict__ lse, float* __restrict__ scores_unused, int seq_q,
                 int seq_kv, int heads, int kv_heads) {
    LDS element q_tile[BLOCK_M * ROW_STRIDE];
    LDS element k_tile[BLOCK_N * ROW_STRIDE];
    LDS element v_tile[VALUE_ROWS * VALUE_STRIDE];

    const int first_row = block_index_x() * BLOCK_M, head = block_index_y(), batch = block_index_z();
    const int kv_head = head / (heads / kv_heads);
    const long long q_stride = (long long)heads * HEAD_DIM, kv_stride = (long long)kv_heads * HEAD_DIM;
    const long long q_start = ((long long)batch * seq_q + first_row) * q_stride + (long long)head * HEAD_DIM;
    const element* k_head = k + (long long)batch * seq_kv * kv_stride + (long long)kv_head * HEAD_DIM;
    const element* v_head = v + (long long)batch * seq_kv * kv_stride + (long long)kv_head * HEAD_DIM;
    const int wave_row = wave_index() * 16;  // of the workgroup's rows, this wave's first
    const int offset = seq_kv - seq_q;       // row i sees the keys up to i + offset
    const int keys = CAUSAL ? smaller(seq_kv, first_row + BLOCK_M + offset) : seq_kv;

    copy_rows<BLOCK_M>(q_tile, q + q_start, q_stride, seq_q - first_row);

    Tile accumulator[DIM_TILES] = {};
    float running_max[ROWS_PER_LANE], running_sum[ROWS_PER_LANE] = {};
    UNROLL for (int slot = 0; slot < ROWS_PER_LANE; ++slot) running_max[slot] = NO_SCORE;

    for (int first_key = 0; first_key < keys; first_key += BLOCK_N) {
        barrier();  // the tile before is done with
        copy_rows<BLOCK_N>(k_tile, k_head + first_key * kv_stride, kv_stride, seq_kv - first_key);
        if constexpr (VALUES_TRANSPOSED) {
            copy_transposed(v_tile, v_head + first_key * kv_stride, kv_stride, seq_kv - first_key);
        } else {
            copy_rows<BLOCK_N>(v_tile, v_head + first_key * kv_stride, kv_stride, seq_kv - first_key);
        }
        barrier();

        Tile scores[KEY_TILES];
        const int last_seen = CAUSAL ? first_row + wave_row + offset : seq_kv - 1;
        multiply_keys(scores, q_tile + wave_row * ROW_STRIDE, k_tile, first_key, last_seen);

        float correction[ROWS_PER_LANE];
        UNROLL for (int slot = 0; slot < ROWS_PER_LANE; ++slot) {
            float tile_max = NO_SCORE;
            UNROLL for (int n = 0; n < KEY_TILES; ++n) {
                UNROLL for (int i = 0; i < TILE_VALUES; ++i) {
                    if (tile_slot(i) == slot) tile_max = larger(tile_max, scores[n].value[i]);
                }
            }
            const float new_max = larger(running_max[slot], row_max(tile_max));
            correction[slot] = exp2_fast(running_max[slot] - new_max);
            running_max[slot] = new_max;
            running_sum[slot] *= correction[slot];
        }
        UNROLL for (int d = 0; d < DIM_TILES; ++d) {
            UNROLL for (int i = 0; i < TILE_VALUES; ++i) accumulator[d].value[i] *= correction[tile_slot(i)];
        }
        UNROLL for (int n = 0; n < KEY_STEPS; ++n) {
            Tile* tiles = scores + n * OPERAND_TILES;
            UNROLL for (int i = 0; i < OPERAND_TILES * TILE_VALUES; ++i) {
                float& value = tiles[i / TILE_VALUES].value[i % TILE_VALUES];
                const int slot = tile_slot(i % TILE_VALUES);
                value = value == NO_SCORE ? 0.0f : exp2_fast(value - running_max[slot]);
                running_sum[slot] += value;
            }
            const Operand probabilities = as_left_operand(tiles);
            UNROLL for (int d = 0; d < DIM_TILES; ++d) {
                multiply_add(accumulator[d], probabilities, load_values<VALUE_STRIDE>(v_tile, n, d * 16));
            }
        }
    }

    float factor[ROWS_PER_LANE];
    UNROLL for (int slot = 0; slot < ROWS_PER_LANE; ++slot) {
        const float sum = row_sum(running_sum[slot]);
        factor[slot] = inverse_sum(sum);
        const int row = first_row + wave_row + slot_row(slot);
        if (WITH_LSE && first_of_row() && row < seq_q) {
            const float log2_sum = running_max[slot] + log2_fast(sum);  // log2(0) is -infinity
            lse[((long long)batch * heads + head) * seq_q + row] = log2_sum * 0.6931471805599453f;
        }
    }
    element* out_rows = out + q_start + wave_row * q_stride;
    UNROLL for (int d = 0; d < DIM_TILES; ++d) {
        const int rows = seq_q - first_row - wave_row;
        store_tile(out_rows + d * 16, q_stride, accumulator[d], factor, rows, HEAD_DIM - d * 16);
    }
}
