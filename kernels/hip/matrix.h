// 16 x 16 products on whatever matrix instruction there is, for attention: scores = Q K^T, out += P V.
//
// A wave multiplies two operands of 16 rows of OPERAND_COLUMNS elements each, "left" (queries) and "right" (keys, or
// the dimensions of V): tile[row of left][row of right] += sum over the columns of left * right. Which lane holds what
// differs; a kernel needs four facts of it only:
//
//   OPERAND_COLUMNS        16, and 32 on CDNA: a lane then has 16 bytes of a row
//   Tile                   TILE_VALUES floats per lane of a 16 x 16 result
//   tile_row(i)            row of this lane's value i (a query), tile_column(i) its column
//   tile_slot(i)           which of the lane's ROWS_PER_LANE rows that is: row statistics are kept once per slot
//
//   lane l holds                 operand: row, columns                      tile: row, column of value i
//   MFMA   v_mfma, 32 columns    l % 16, 8 (l / 16) ... + 7                 l % 16, 4 (l / 16) + i
//   WMMA   RDNA3                 l % 16, all 16 (twice in a wave)           l % 16, 2 i + l / 16
//   WMMA   RDNA4                 l % 16, 8 (l / 16) ... + 7                 l % 16, 8 (l / 16) + i
//   MMA    m16n8k16, twice       l / 4 (+ 8), 2 (l % 4) ... + 1 (+ 8)       l / 4 + 8 (i / 2 % 2),
//                                                                           8 (i / 4) + 2 (l % 4) + i % 2
//   none   shuffles              l % 16, all 16                             as RDNA3
//
// The order of an operand's columns is free as long as left and right have the same, for they are summed over. So two
// v_mfma_f32_16x16x16, the first of a lane's elements 0 to 3, the second of 4 to 7, make one product of 32 columns.
// (AMD's matrix calculator numbers RDNA4's otherwise: 8 (i / 4) + 4 (l / 16) + i % 4.) That of rows is not.
//
// AMD's instructions give the transposed product, right * left^T: a lane then owns one query, and on CDNA and RDNA4 the
// tile it holds is laid out as the operand that the second product needs; on CDNA two tiles are one operand, whose keys
// are 4 (l / 16) + i and 16 + 4 (l / 16) + i, and V is kept in that order (place_of_value) or read in it (gfx950).
// mma.sync has that property untransposed.
//
// Sources: AMD Instinct MI200 and MI300 instruction set guides (matrix arithmetic instructions), RDNA3 and RDNA4
// instruction set guides (WMMA), PTX manual (mma.m16n8k16, ldmatrix).
#pragma once

#if GPU_MATRIX == GPU_MATRIX_MFMA
constexpr int OPERAND_WORDS = 4, TILE_VALUES = 4, ROWS_PER_LANE = 1;
#elif GPU_MATRIX == GPU_MATRIX_WMMA_GFX12
constexpr int OPERAND_WORDS = 4, TILE_VALUES = 8, ROWS_PER_LANE = 1;
#elif GPU_MATRIX == GPU_MATRIX_MMA
constexpr int OPERAND_WORDS = 4, TILE_VALUES = 8, ROWS_PER_LANE = 2;
#else
constexpr int OPERAND_WORDS = 8, TILE_VALUES = 8, ROWS_PER_LANE = 1;
#endif

constexpr int OPERAND_COLUMNS = GPU_MATRIX == GPU_MATRIX_MFMA ? 32 : 16;
constexpr int OPERAND_TILES = OPERAND_COLUMNS / 16;  // of probabilities, side by side, that make an operand

typedef Words<OPERAND_WORDS> Operand;
typedef Floats<TILE_VALUES> Tile;

// Whether V is kept as [dim][key]: a lane needs several keys of one dimension side by side, and only NVIDIA's ldmatrix
// and gfx950's read_transposed transpose on the way.
constexpr bool VALUES_TRANSPOSED = GPU_MATRIX != GPU_MATRIX_MMA && !GPU_READ_TRANSPOSED;

// Elements added to each row in LDS, so that what 16 rows read at once begins in different banks. On CDNA none: there
// the 16-byte pieces of a row change places instead (place_in_lds), and two workgroups fit where padding leaves one.
constexpr int LDS_PADDING = GPU_MATRIX == GPU_MATRIX_MFMA ? 0 : 8;

// Where the elements from `column` on, within a piece of 8, of a row of LDS begin; rows of STRIDE elements.
template <int STRIDE>
INLINE int place_in_lds(int row, int column) {
#if GPU_MATRIX == GPU_MATRIX_MFMA
    // Pieces that change places: a power of two that divides those of a row. Found by search: no two lanes that are
    // served at once meet in a bank, of 32 or of 64 (tests/kernels/hip/test_bank_conflicts.py). read_transposed takes 2
    // pieces of 8 rows, so that those differ by more than the lowest bit.
    constexpr int PIECES = STRIDE / 8 & -(STRIDE / 8);
    const int low = row & 7, high = row >> 3 & 1;
#if GPU_READ_TRANSPOSED
    const int moved = PIECES >= 16 ? 2 * low : PIECES == 8 ? low & 6 : low >> 1 ^ 3 * high;
#else
    const int moved = PIECES >= 16 ? row & 15 : PIECES == 8 ? low ^ 5 * high : low >> 1 ^ 3 * high;
#endif
    static_assert(PIECES >= 4, "rows are multiples of 32 elements");
    return row * STRIDE + (column ^ 8 * moved);
#else
    return row * STRIDE + column;
#endif
}

// The same of V kept as [dim][key], for 4 keys from a multiple of 4 on. On CDNA, neighbouring rows of 8 to 15 (of 16)
// change places, so that the rows that a wave writes at once, 8 apart, lie in different halves of the banks.
template <int STRIDE>
INLINE int place_of_value(int dim, int key) {
#if GPU_MATRIX == GPU_MATRIX_MFMA
    return place_in_lds<STRIDE>(dim ^ (dim >> 3 & 1), (key & ~31) + (key & 12) * 2 + (key & 16) / 4);
#else
    return place_in_lds<STRIDE>(dim, key);
#endif
}

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

// What a row is multiplied with at the end: 0 where it saw no key. NaN stays NaN on AMD, where its probabilities may
// have become numbers (pack_positive); on NVIDIA they have not.
INLINE float inverse_sum(float sum) {
#if GPU_MATRIX == GPU_MATRIX_MMA
    return sum > 0.0f ? 1.0f / sum : 0.0f;
#else
    return sum == 0.0f ? 0.0f : 1.0f / sum;
#endif
}

// 8 elements of a row of global memory, zeros where there is no such row or column.
INLINE Words<4> load_row(const element* memory, long long stride, int row, int rows, int column, int columns) {
    if (row < rows && column < columns) return load_words4(memory + row * stride + column);
    return {{0, 0, 0, 0}};
}

// 8 elements into a row of LDS. NVIDIA's compiler is given halves, which it joins: its code stays what was measured.
INLINE void store_row(element* lds, Words<4> words) {
#if GPU_MATRIX == GPU_MATRIX_MMA
    reinterpret_cast<Words<2>*>(lds)[0] = {{words.word[0], words.word[1]}};
    reinterpret_cast<Words<2>*>(lds)[1] = {{words.word[2], words.word[3]}};
#else
    store_words4(lds, words);
#endif
}

// Bytes of a tile from its first element on, and of a part of it; a part that there is not lies beyond. 32 bits are
// enough: 128 rows of the 65,535 heads that a grid can have.
INLINE unsigned tile_bytes(int rows, long long stride) { return unsigned(rows) * unsigned(stride) * sizeof(element); }
INLINE unsigned part_bytes(bool wanted, int row, int column, long long stride) {
    return wanted ? tile_bytes(row, stride) + unsigned(column) * sizeof(element) : ~0u;
}

// 4 keys of 8 dimensions each, turned around into 8 rows of LDS of 4 keys.
template <int STRIDE>
INLINE void store_turned(element* lds, int dim, int key, const Words<4> (&keys)[4]) {
    UNROLL for (int i = 0; i < 8; ++i) {
        unsigned value[4];
        UNROLL for (int j = 0; j < 4; ++j) value[j] = keys[j].word[i / 2] >> i % 2 * 16 & 0xffffu;
        const Words<2> row = {{value[0] | value[1] << 16, value[2] | value[3] << 16}};
        *reinterpret_cast<Words<2>*>(lds + place_of_value<STRIDE>(dim + i, key)) = row;
    }
}

#if GPU_MATRIX == GPU_MATRIX_MMA
// 16 rows of LDS from `corner` on, `stride` elements apart.
INLINE Operand load_rows(const element* corner, int stride) {
    const int lane = lane_index();
    return ldmatrix_x4(corner + lane % 16 * stride + lane / 16 * 8);
}
#endif

// A left operand: columns OPERAND_COLUMNS * step and on of 16 rows of LDS.
template <int STRIDE>
INLINE Operand load_left(const element* rows, int step) {
#if GPU_MATRIX == GPU_MATRIX_MMA
    return load_rows(rows + step * 16, STRIDE);
#else
    const int lane = lane_index();
#if GPU_MATRIX == GPU_MATRIX_MFMA
    return load_words4(rows + place_in_lds<STRIDE>(lane % 16, 32 * step + 8 * (lane / 16)));
#elif GPU_MATRIX == GPU_MATRIX_WMMA_GFX12
    return load_words4(rows + step * 16 + lane % 16 * STRIDE + 8 * (lane / 16));
#else
    const element* row = rows + step * 16 + lane % 16 * STRIDE;
    const Words<4> low = load_words4(row), high = load_words4(row + 8);
    return {{low.word[0], low.word[1], low.word[2], low.word[3],  //
             high.word[0], high.word[1], high.word[2], high.word[3]}};
#endif
#endif
}

#if GPU_MATRIX == GPU_MATRIX_MFMA
// The same from memory, of which `rows` rows and `columns` columns exist; zeros elsewhere.
INLINE Operand load_left_direct(const element* memory, long long stride, int rows, int step, int columns) {
    const int row = lane_index() % 16, column = 32 * step + 8 * (lane_index() / 16);
    const unsigned part = part_bytes(row < rows && column < columns, row, column, stride);
    return load_words4_within(memory, part, tile_bytes(16, stride));
}
#endif

// A right operand, from rows as above. mma.sync takes it 8 rows at a time, from two neighbouring registers each.
template <int STRIDE>
INLINE Operand load_right(const element* rows, int step) {
#if GPU_MATRIX == GPU_MATRIX_MMA
    const int lane = lane_index();
    return ldmatrix_x4(rows + step * 16 + (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8);
#else
    return load_left<STRIDE>(rows, step);
#endif
}

// The right operand of out += P V: 16 dimensions of OPERAND_COLUMNS keys. `values` is [dim][key] where
// VALUES_TRANSPOSED, else [key][dim].
template <int STRIDE>
INLINE Operand load_values(const element* values, int step, int dim) {
    const int lane = lane_index();
#if GPU_MATRIX == GPU_MATRIX_MMA
    return ldmatrix_x4_transposed(values + (step * 16 + lane % 16) * STRIDE + dim + lane / 16 * 8);
#elif GPU_READ_TRANSPOSED
    const int key = 32 * step + 4 * (lane / 16) + lane % 16 / 4, column = dim + 4 * (lane % 4);
    const Words<2> low = read_transposed(values + place_in_lds<STRIDE>(key, column));
    const Words<2> high = read_transposed(values + place_in_lds<STRIDE>(key + 16, column));
    return {{low.word[0], low.word[1], high.word[0], high.word[1]}};
#elif GPU_MATRIX == GPU_MATRIX_MFMA
    const int row = lane % 16 ^ lane / 8 % 2;  // as place_of_value
    return load_words4(values + dim * STRIDE + place_in_lds<STRIDE>(row, 32 * step + 8 * (lane / 16)));
#else
    return load_right<STRIDE>(values + dim * STRIDE, step);
#endif
}

// tile += left right^T.
INLINE void multiply_add(Tile& tile, const Operand& left, const Operand& right) {
#if GPU_MATRIX == GPU_MATRIX_MFMA
    tile = mfma_16x16x32(right, left, tile);
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

// OPERAND_TILES tiles of probabilities as the left operand of the product with V, rounded to elements.
INLINE Operand as_left_operand(const Tile* tiles) {
    const Tile& tile = tiles[0];
    Operand operand;
#if GPU_MATRIX == GPU_MATRIX_MFMA
    UNROLL for (int i = 0; i < OPERAND_WORDS; ++i) {
        operand.word[i] = pack_positive(tiles[i / 2].value[i % 2 * 2], tiles[i / 2].value[i % 2 * 2 + 1]);
    }
#elif GPU_MATRIX == GPU_MATRIX_WMMA_GFX12
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

// Write a tile times `factor[slot]` to rows of memory from `corner` on; only rows and columns below `rows` and
// `columns`, which is a multiple of 8. A lane writes what it has side by side at once: on AMD 8 or 16 bytes.
INLINE void store_tile(element* corner, long long stride, const Tile& tile, const float* factor, int rows,
                       int columns) {
#if GPU_MATRIX == GPU_MATRIX_MMA
    UNROLL for (int i = 0; i < TILE_VALUES; ++i) {
        if (tile_row(i) < rows && tile_column(i) < columns) {
            corner[tile_row(i) * stride + tile_column(i)] = to_element(tile.value[i] * factor[tile_slot(i)]);
        }
    }
#else
    Tile scaled;
    UNROLL for (int i = 0; i < TILE_VALUES; ++i) scaled.value[i] = tile.value[i] * factor[0];
#if GPU_MATRIX == GPU_MATRIX_MFMA
    const int column = tile_column(0);
    Words<2> words = {{pack(scaled.value[0], scaled.value[1]), pack(scaled.value[2], scaled.value[3])}};
#else
    const Operand row = as_left_operand(&scaled);
    const int half = lane_index() / 16 % 2, column = 8 * half;
    Words<4> words;
    UNROLL for (int i = 0; i < 4; ++i) {
        words.word[i] = OPERAND_WORDS == 8 && half ? row.word[i + OPERAND_WORDS - 4] : row.word[i];
    }
#endif
    if (tile_row(0) < rows && column < columns) {
        *reinterpret_cast<decltype(words)*>(corner + tile_row(0) * stride + column) = words;
    }
#endif
}
