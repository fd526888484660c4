// First kernel of the staged pipeline: scores = q k^T SOFTMAX_SCALE, fp32 (batch, heads, seq_q, seq_kv).
//
// Workgroup  256 threads own a tile of TILE x TILE scores of one head;
//            grid (ceil(seq_q / TILE) * ceil(seq_kv / TILE), heads, batch), tiles of neighbouring keys first
// Thread     4 rows x 4 keys, 16 apart, so that 16 neighbouring lanes write 16 neighbouring scores
// LDS        STEP dimensions of TILE queries and of TILE keys at a time, as floats [dimension][row]
// HEAD_DIM   any; rows of others than multiples of STEP are read element by element
#include "gpu.h"

constexpr int THREADS = 256, TILE = 64, STEP = 8;
constexpr int LANES = 16, OWN = TILE / LANES;

// STEP dimensions of TILE rows, from the first of the `dims` that are left on: a thread loads a word, of neighbouring
// words of a row. Rows and dimensions behind the last are zero.
INLINE void load_tile(float (&tile)[STEP][TILE + 1], const element* __restrict__ rows, int row_stride, int row_count,
                      int dims) {
    const int word = thread_index() % (STEP / 2), row = thread_index() / (STEP / 2);
    const element* start = rows + static_cast<long long>(smaller(row, row_count - 1)) * row_stride;
    if constexpr (HEAD_DIM % STEP == 0) {
        const unsigned pair = row < row_count ? reinterpret_cast<const unsigned*>(start)[word] : 0;
        tile[word * 2][row] = low_float(pair);
        tile[word * 2 + 1][row] = high_float(pair);
    } else {
#pragma unroll
        for (int dim = word * 2; dim < word * 2 + 2; ++dim) {
            const float value = to_float(start[smaller(dim, dims - 1)]);
            tile[dim][row] = row < row_count && dim < dims ? value : 0.0f;
        }
    }
}

KERNEL(THREADS) qk_scores(const element* __restrict__ q, const element* __restrict__ k, float* __restrict__ scores,
                          int seq_q, int seq_kv, int heads, int kv_heads) {
    LDS float queries[STEP][TILE + 1];
    LDS float keys[STEP][TILE + 1];
    static_assert(TILE * STEP / 2 == THREADS, "a word for each thread");

    const int key_tiles = (seq_kv + TILE - 1) / TILE;
    const int first_row = block_index_x() / key_tiles * TILE, first_key = block_index_x() % key_tiles * TILE;
    const int head = block_index_y(), kv_head = head / (heads / kv_heads);
    const long long batch = block_index_z();
    const element* q_rows = q + ((batch * seq_q + first_row) * heads + head) * HEAD_DIM;
    const element* k_rows = k + ((batch * seq_kv + first_key) * kv_heads + kv_head) * HEAD_DIM;
    const int lane = thread_index() % LANES, own_row = thread_index() / LANES;

    float sum[OWN][OWN] = {};
#pragma unroll 1
    for (int dim = 0; dim < HEAD_DIM; dim += STEP) {
        barrier();
        load_tile(queries, q_rows + dim, heads * HEAD_DIM, seq_q - first_row, HEAD_DIM - dim);
        load_tile(keys, k_rows + dim, kv_heads * HEAD_DIM, seq_kv - first_key, HEAD_DIM - dim);
        barrier();
#pragma unroll
        for (int i = 0; i < STEP; ++i) {
            float query[OWN], key[OWN];
#pragma unroll
            for (int j = 0; j < OWN; ++j) {
                query[j] = queries[i][j * LANES + own_row];
                key[j] = keys[i][j * LANES + lane];
            }
#pragma unroll
            for (int r = 0; r < OWN; ++r) {
#pragma unroll
                for (int c = 0; c < OWN; ++c) sum[r][c] += query[r] * key[c];
            }
        }
    }

    float* tile = scores + ((batch * heads + head) * seq_q + first_row) * seq_kv + first_key;
#pragma unroll
    for (int r = 0; r < OWN; ++r) {
        const int row = r * LANES + own_row;
#pragma unroll
        for (int c = 0; c < OWN; ++c) {
            const int key = c * LANES + lane;
            if (first_row + row < seq_q && first_key + key < seq_kv) {
                tile[static_cast<long long>(row) * seq_kv + key] = sum[r][c] * SOFTMAX_SCALE;
            }
        }
    }
}
