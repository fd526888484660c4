// Last kernel of the staged pipeline: out = weights v, (batch, heads, seq_q, seq_kv) times (batch, seq_kv, kv_heads, D)
// to (batch, seq_q, heads, D).
//
// Workgroup  256 threads own a tile of TILE rows x TILE dimensions of one head;
//            grid (ceil(seq_q / TILE) * ceil(HEAD_DIM / TILE), heads, batch), the dimensions of a row block first
// Thread     4 rows, 16 apart, x 2 pairs of dimensions, 32 apart, so that 16 lanes write 16 neighbouring words
// LDS        STEP keys of the weights of TILE rows [key][row], and of TILE dimensions of v [key][dimension], as floats
// HEAD_DIM   any; odd ones, whose rows begin between words, are read and written element by element
#include "gpu.h"

constexpr int THREADS = 256, TILE = 64, STEP = 16;
constexpr int LANES = 16, ROWS = TILE / LANES, PAIRS = TILE / 2 / LANES;
constexpr int DIM_TILES = (HEAD_DIM + TILE - 1) / TILE;

constexpr bool IN_WORDS = HEAD_DIM % 2 == 0;

struct alignas(8) Two {
    float value[2];
};

// Word `word` of a row of `dims` elements that begins between words; an element behind the last is 0, or not stored.
INLINE Two load_elements(const element* __restrict__ row, int word, int dims) {
    const int dim = word * 2;
    const float low = to_float(row[smaller(dim, dims - 1)]), high = to_float(row[smaller(dim + 1, dims - 1)]);
    return Two{dim < dims ? low : 0.0f, dim + 1 < dims ? high : 0.0f};
}

INLINE void store_elements(element* row, int word, int dims, float low, float high) {
    if (word * 2 < dims) row[word * 2] = to_element(low);
    if (word * 2 + 1 < dims) row[word * 2 + 1] = to_element(high);
}

KERNEL(THREADS) weighted_values(const element* __restrict__ weights, const element* __restrict__ v,
                                element* __restrict__ out, int seq_q, int seq_kv, int heads, int kv_heads) {
    LDS float row_weights[STEP][TILE + 1];
    LDS Two values[STEP][TILE / 2];

    const int thread = thread_index(), lane = thread % LANES, own_row = thread / LANES;
    const int first_row = block_index_x() / DIM_TILES * TILE, first_dim = block_index_x() % DIM_TILES * TILE;
    const int head = block_index_y(), kv_head = head / (heads / kv_heads);
    const int rows = smaller(TILE, seq_q - first_row), words = smaller(TILE, HEAD_DIM - first_dim) / 2;
    const long long batch = block_index_z();
    const element* tile_weights = weights + ((batch * heads + head) * seq_q + first_row) * seq_kv;
    const element* tile_values = v + (batch * seq_kv * kv_heads + kv_head) * HEAD_DIM + first_dim;

    float sum[ROWS][PAIRS][2] = {};
    for (int first = 0; first < seq_kv; first += STEP) {
        barrier();
#pragma unroll
        for (int i = thread; i < TILE * STEP; i += THREADS) {  // neighbouring threads load neighbouring keys of a row
            const int row = i / STEP, key = i % STEP;
            const bool inside = row < rows && first + key < seq_kv;
            const long long at = static_cast<long long>(smaller(row, rows - 1)) * seq_kv;
            const element weight = tile_weights[at + smaller(first + key, seq_kv - 1)];
            row_weights[key][row] = inside ? to_float(weight) : 0.0f;
        }
#pragma unroll
        for (int i = thread; i < STEP * TILE / 2; i += THREADS) {  // ... neighbouring words of a row of v
            const int key = i / (TILE / 2), word = i % (TILE / 2);
            const long long at = static_cast<long long>(smaller(first + key, seq_kv - 1)) * kv_heads * HEAD_DIM;
            if constexpr (IN_WORDS) {
                const unsigned pair = reinterpret_cast<const unsigned*>(tile_values + at)[smaller(word, words - 1)];
                values[key][word] = first + key < seq_kv ? Two{low_float(pair), high_float(pair)} : Two{0, 0};
            } else {
                const Two pair = load_elements(tile_values + at, word, smaller(TILE, HEAD_DIM - first_dim));
                values[key][word] = first + key < seq_kv ? pair : Two{0, 0};
            }
        }
        barrier();
#pragma unroll 4
        for (int key = 0; key < STEP; ++key) {
            Two value[PAIRS];
#pragma unroll
            for (int p = 0; p < PAIRS; ++p) value[p] = values[key][p * LANES + lane];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float weight = row_weights[key][r * LANES + own_row];
#pragma unroll
                for (int p = 0; p < PAIRS; ++p) {
                    sum[r][p][0] += weight * value[p].value[0];
                    sum[r][p][1] += weight * value[p].value[1];
                }
            }
        }
    }

#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = r * LANES + own_row;
        element* start = out + ((batch * seq_q + first_row + row) * heads + head) * HEAD_DIM + first_dim;
#pragma unroll
        for (int p = 0; p < PAIRS; ++p) {
            const int word = p * LANES + lane;
            if constexpr (IN_WORDS) {
                if (row < rows && word < words)
                    reinterpret_cast<unsigned*>(start)[word] = pack(sum[r][p][0], sum[r][p][1]);
            } else if (row < rows) {
                store_elements(start, word, smaller(TILE, HEAD_DIM - first_dim), sum[r][p][0], sum[r][p][1]);
            }
        }
    }
}
