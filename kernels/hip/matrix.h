// 16 x 16 products on whatever matrix instruction there is, for attention: scores = Q K^T, out += P V.
//
// A wave multiplies two operands of 16 rows of 16 elements each, "left" (queries) and "right" (keys, or the dimensions
// of V): tile[row of left][row of right] += sum over the 16 columns of left * right. Which lane holds what differs; a
// kernel needs three facts of it only:
//
//   Tile                   TILE_VALUES floats per lane of a 16 x 16 result
//   tile_row(i)            row of this lane's value i (a query), tile_column(i) its column
//   tile_slot(i)           which of the lane's ROWS_PER_LANE rows that is: row statistics are kept once per slot
//
//   lane l holds                 operand: row, columns                      tile: row, column of value i
//   MFMA   v_mfma_f32_16x16x16   l % 16, 4 (l / 16) ... + 3                 l % 16, 4 (l / 16) + i
//   WMMA   RDNA3                 l % 16, all 16 (twice in a wave)           l % 16, 2 i + l / 16
//   WMMA   RDNA4                 l % 16, 8 (l / 16) ... + 7                 l % 16, 8 (l / 16) + i
//   MMA    m16n8k16, twice       l / 4 (+ 8), 2 (l % 4) ... + 1 (+ 8)       l / 4 + 8 (i / 2 % 2),
//                                                                           8 (i / 4) + 2 (l % 4) + i % 2
//   none   shuffles              l % 16, all 16                             as RDNA3
//
// The order of an operand's columns is free as long as left and right have the same, for they are summed over. (AMD's
// matrix calculator numbers RDNA4's otherwise: 8 (i / 4) + 4 (l / 16) + i % 4.) That of rows is not.
//
// AMD's instructions give the transposed product, right * left^T: a lane then owns one query, and on CDNA and RDNA4 the
// tile it holds is laid out as the operand that the second product needs. mma.sync has that property untransposed.
//
// Sources: AMD Instinct MI200 and MI300 instruction set guides (matrix arithmetic instructions), RDNA3 and RDNA4
// instruction set guides (WMMA), PTX manual (mma.m16n8k16, ldmatrix).
#pragma once

#if GPU_MATRIX == GPU_MATRIX_MFMA
constexpr int OPERAND_WORDS = 2, TILE_VALUES = 4, ROWS_PER_LANE = 1;
#elif GPU_MATRIX == GPU_MATRIX_WMMA_GFX12
constexpr int OPERAND_WORDS = 4, TILE_VALUES = 8, ROWS_PER_LANE = 1;
#elif GPU_MATRIX == GPU_MATRIX_MMA
constexpr int OPERAND_WORDS = 4, TILE_VALUES = 8, ROWS_PER_LANE = 2;
#else
constexpr int OPERAND_WORDS = 8, TILE_VALUES = 8, ROWS_PER_LANE = 1;
#endif

typedef Words<OPERAND_WORDS> Operand;
typedef Floats<TILE_VALUES> Tile;

// Whether V is kept as [dim][key]: a lane needs several keys of one dimension side by side, and only NVIDIA's ldmatrix
// transposes on the way.
constexpr bool VALUES_TRANSPOSED = GPU_MATRIX != GPU_MATRIX_MMA;

// Elements added to each row in LDS. What is read at once by 16 rows then begins in different banks: a row of 8 bytes
// (MFMA) moves on by 2 banks, one of 16 bytes by 4.
constexpr int LDS_PADDING = GPU_MATRIX == GPU_MATRIX_MFMA ? 4 : 8;

#if GPU_MATRIX == GPU_MATRIX_MMA
INLINE int tile_row(int i) { return lane_index() / 4 + 8 * (i / 2 % 2); }
INLINE int tile_column(int i) { return 8 * (i / 4) + 2 * (lane_index() % 4) + i % 2; }
INLINE constexpr int tile_slot(int i) { return i / 2 % 2; }
INLINE int slot_row(int slot) { return lane_index() / 4 + 8 * slot; }
INLINE bool first_of_row() { return lane_index() % 4 == 0; }
INLINE float row_max(float value) { return lanes_max<4>(value); }
INLINE float row_sum(float value) { return lanes_sum<4>(value); }
#else
INLINE int tile_row(int) { return lane_index() % 16; }
INLINE int tile_column(int i) {
#if GPU_MATRIX == GPU_MATRIX_MFMA || GPU_MATRIX == GPU_MATRIX_WMMA_GFX12
    return TILE_VALUES * (lane_index() / 16) + i;
#else
    return 2 * i + lane_index() / 16;
#endif
}
INLINE constexpr int tile_slot(int) { return 0; }
INLINE int slot_row(int) { return lane_index() % 16; }
INLINE bool first_of_row() { return lane_index() < 16; }
// Over the lanes of one row: those 16 apart.
INLINE float row_max(float value) {
    UNROLL for (int mask = 16; mask < GPU_WAVE; mask *= 2) value = larger(value, shuffle_xor(value, mask));
    return value;
}
INLINE float row_sum(float value) {
    UNROLL for (int mask = 16; mask < GPU_WAVE; mask *= 2) value += shuffle_xor(value, mask);
    return value;
}
#endif

// 8 elements of a row of global memory, zeros where there is no such row or column.
INLINE Words<4> load_row(const element* memory, long long stride, int row, int rows, int column, int columns) {
    if (row < rows && column < columns) return load_words4(memory + row * stride + column);
    return {{0, 0, 0, 0}};
}

// Bytes of a tile from its first element on, and of a part of it; a part that there is not lies beyond. 32 bits are
// enough: 128 rows of the 65,535 heads that a grid can have.
INLINE unsigned tile_bytes(int rows, long long stride) { return unsigned(rows) * unsigned(stride) * sizeof(element); }
INLINE unsigned part_bytes(bool wanted, int row, int column, long long stride) {
    return wanted ? tile_bytes(row, stride) + unsigned(column) * sizeof(element) : ~0u;
}

// 8 elements into a row of LDS; rows have no more than 8-byte alignment where LDS_PADDING is 4.
INLINE void store_row(element* lds, Words<4> words) {
    reinterpret_cast<Words<2>*>(lds)[0] = {{words.word[0], words.word[1]}};
    reinterpret_cast<Words<2>*>(lds)[1] = {{words.word[2], words.word[3]}};
}

// 4 keys of 8 dimensions each, turned around into 8 rows of LDS, `stride` elements apart, of 4 keys.
INLINE void store_turned(element* lds, int stride, const Words<4> (&keys)[4]) {
    UNROLL for (int dim = 0; dim < 8; ++dim) {
        unsigned value[4];
        UNROLL for (int i = 0; i < 4; ++i) value[i] = keys[i].word[dim / 2] >> dim % 2 * 16 & 0xffffu;
        const Words<2> row = {{value[0] | value[1] << 16, value[2] | value[3] << 16}};
        *reinterpret_cast<Words<2>*>(lds + dim * stride) = row;
    }
}

// A left operand: 16 rows of LDS from `corner` on, `stride` elements apart.
INLINE Operand load_left(const element* corner, int stride) {
    const int lane = lane_index();
#if GPU_MATRIX == GPU_MATRIX_MFMA
    return *reinterpret_cast<const Operand*>(corner + lane % 16 * stride + 4 * (lane / 16));
#elif GPU_MATRIX == GPU_MATRIX_WMMA_GFX12
    return load_words4(corner + lane % 16 * stride + 8 * (lane / 16));
#elif GPU_MATRIX == GPU_MATRIX_MMA
    return ldmatrix_x4(corner + lane % 16 * stride + lane / 16 * 8);
#else
    const element* row = corner + lane % 16 * stride;
    const Words<4> low = load_words4(row), high = load_words4(row + 8);
    return {{low.word[0], low.word[1], low.word[2], low.word[3],  //
             high.word[0], high.word[1], high.word[2], high.word[3]}};
#endif
}

// A right operand, from rows as above. mma.sync takes it 8 rows at a time, from two neighbouring registers each.
INLINE Operand load_right(const element* corner, int stride) {
#if GPU_MATRIX == GPU_MATRIX_MMA
    const int lane = lane_index();
    return ldmatrix_x4(corner + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8);
#else
    return load_left(corner, stride);
#endif
}

// The right operand of out += P V: 16 dimensions of 16 keys. `values` is [dim][key] where VALUES_TRANSPOSED, else
// [key][dim], rows `stride` elements apart.
INLINE Operand load_values(const element* values, int stride, int key, int dim) {
#if GPU_MATRIX == GPU_MATRIX_MMA
    const int lane = lane_index();
    return ldmatrix_x4_transposed(values + (key + lane % 16) * stride + dim + lane / 16 * 8);
#else
    return load_right(values + dim * stride + key, stride);
#endif
}

// tile += left right^T.
INLINE void multiply_add(Tile& tile, const Operand& left, const Operand& right) {
#if GPU_MATRIX == GPU_MATRIX_MFMA
    tile = mfma_16x16x16(right, left, tile);
#elif GPU_MATRIX == GPU_MATRIX_WMMA || GPU_MATRIX == GPU_MATRIX_WMMA_GFX12
    tile = wmma_16x16x16(right, left, tile);
#elif GPU_MATRIX == GPU_MATRIX_MMA
    UNROLL for (int half = 0; half < 2; ++half) {
        float* sum = tile.value + 4 * half;
        const Words<2> columns = {{right.word[2 * half], right.word[2 * half + 1]}};
        const Floats<4> result = mma_m16n8k16(left, columns, {{sum[0], sum[1], sum[2], sum[3]}});
        UNROLL for (int i = 0; i < 4; ++i) sum[i] = result.value[i];
    }
#else
    UNROLL for (int i = 0; i < TILE_VALUES; ++i) {
        UNROLL for (int word = 0; word < OPERAND_WORDS; ++word) {
            const unsigned other = shuffle_word(right.word[word], tile_column(i));
            tile.value[i] += low_float(left.word[word]) * low_float(other);
            tile.value[i] += high_float(left.word[word]) * high_float(other);
        }
    }
#endif
}

// A tile of probabilities as the left operand of the product with V, rounded to elements.
INLINE Operand as_left_operand(const Tile& tile) {
    Operand operand;
#if GPU_MATRIX == GPU_MATRIX_MFMA || GPU_MATRIX == GPU_MATRIX_WMMA_GFX12
    UNROLL for (int i = 0; i < OPERAND_WORDS; ++i) operand.word[i] = pack(tile.value[2 * i], tile.value[2 * i + 1]);
#elif GPU_MATRIX == GPU_MATRIX_MMA
    // Word 0: row l / 4, columns from 0; 1: row + 8; 2 and 3: the same from column 8.
    UNROLL for (int i = 0; i < OPERAND_WORDS; ++i) operand.word[i] = pack(tile.value[2 * i], tile.value[2 * i + 1]);
#else
    // This lane has every other column; the lane 16 away has the ones between.
    const bool upper = lane_index() / 16;
    UNROLL for (int i = 0; i < TILE_VALUES; i += 2) {
        const unsigned own = pack(tile.value[i], tile.value[i + 1]), other = shuffle_word_xor(own, 16);
        const unsigned even = upper ? other : own, odd = upper ? own : other;
        operand.word[i] = (even & 0xffffu) | odd << 16;
        operand.word[i + 1] = even >> 16 | (odd & 0xffff0000u);
    }
#endif
    return operand;
}

// Write a tile, value by value times `factor[slot]`, to rows of memory from `corner` on; only rows and columns below
// `rows` and `columns`.
INLINE void store_tile(element* corner, long long stride, const Tile& tile, const float* factor, int rows,
                       int columns) {
    UNROLL for (int i = 0; i < TILE_VALUES; ++i) {
        if (tile_row(i) < rows && tile_column(i) < columns) {
            corner[tile_row(i) * stride + tile_column(i)] = to_element(tile.value[i] * factor[tile_slot(i)]);
        }
    }
}
