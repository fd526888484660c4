// Copies tiles to LDS in two halves, `start` and `finish`; for kernels that define THREADS, BLOCK_N, HEAD_DIM, DIM,
// DIM_TILES, LANES_PER_ROW, ROW_STRIDE and VALUE_STRIDE before. Of a tile `rows` rows exist, all of them where WHOLE;
// the others become zeros.
#pragma once

// ROWS x DIM to LDS as it is. LANES_PER_ROW threads share a row; a power of two, so that a thread keeps its column.
template <int ROWS>
struct RowMover {
    static constexpr int STEP = THREADS / LANES_PER_ROW, SHARE = (ROWS + STEP - 1) / STEP;
    Words<4> held[ASYNC_COPIES ? 1 : SHARE];

    // Known when compiled where all threads have a part of each row; else a comparison of each thread.
    static INLINE bool is_inside(int row, int column, int columns) {
        return (ROWS % STEP == 0 || row < ROWS) && (columns == LANES_PER_ROW * 8 || column < columns);
    }

    template <bool WHOLE = false>
    INLINE void start(element* lds, const element* memory, long long stride, int rows) {
        const int first = thread_index() / LANES_PER_ROW, column = thread_index() % LANES_PER_ROW * 8;
        const element* from = memory + first * stride + column;
        UNROLL for (int i = 0; i < SHARE; ++i) {
            const int row = first + i * STEP;
            if constexpr (ASYNC_COPIES) {
                const bool wanted = (WHOLE || row < rows) && column < HEAD_DIM;
                const bool inside = row < ROWS && column < DIM;
                if (inside) copy_async(lds + row * ROW_STRIDE + column, wanted ? from : memory, wanted);
                from += STEP * stride;
            } else {
                const unsigned part = part_bytes(is_inside(row, column, HEAD_DIM), row, column, stride);
                held[i] = load_words4_within(memory, part, tile_bytes(smaller(rows, ROWS), stride));
            }
        }
    }

    INLINE void finish(element* lds) const {
        if constexpr (ASYNC_COPIES) return copies_done();
        const int first = thread_index() / LANES_PER_ROW, column = thread_index() % LANES_PER_ROW * 8;
        UNROLL for (int i = 0; i < SHARE; ++i) {
            const int row = first + i * STEP;
            if (is_inside(row, column, DIM)) store_words4(lds + place_in_lds<ROW_STRIDE>(row, column), held[i]);
        }
    }
};

// BLOCK_N keys to LDS as [dim][key]: a thread turns 4 keys x 8 dimensions around.
struct TransposingMover {
    static constexpr int TASKS = BLOCK_N / 4 * (DIM_TILES * 2), SHARE = (TASKS + THREADS - 1) / THREADS;
    Words<4> held[SHARE][4];

    static INLINE bool is_task(int task) { return TASKS % THREADS == 0 || task < TASKS; }

    template <bool WHOLE = false>
    INLINE void start(element*, const element* memory, long long stride, int rows) {
        UNROLL for (int i = 0; i < SHARE; ++i) {
            const int task = thread_index() + i * THREADS;
            const int key = task % (BLOCK_N / 4) * 4, dim = task / (BLOCK_N / 4) * 8;
            const bool there = is_task(task) && (HEAD_DIM == DIM_TILES * 16 || dim < HEAD_DIM);
            UNROLL for (int j = 0; j < 4; ++j) {
                const unsigned part = part_bytes(there, key + j, dim, stride);
                held[i][j] = load_words4_within(memory, part, tile_bytes(smaller(rows, BLOCK_N), stride));
            }
        }
    }

    INLINE void finish(element* lds) const {
        UNROLL for (int i = 0; i < SHARE; ++i) {
            const int task = thread_index() + i * THREADS;
            const int key = task % (BLOCK_N / 4) * 4, dim = task / (BLOCK_N / 4) * 8;
            if (is_task(task)) store_turned<VALUE_STRIDE>(lds, dim, key, held[i]);
        }
    }
};

#if GPU_LOADS_TO_LDS
// BLOCK_N x DIM to LDS without passing through registers. Lanes write side by side: a lane does not choose where its
// piece of 8 elements is put (place_in_lds), but takes the one that belongs there. Beyond the end hardware writes zeros
// (github.com/triton-lang/triton/pull/11435).
struct DirectMover {
    static constexpr int ROW_PIECES = DIM / 8, PIECES = BLOCK_N * ROW_PIECES;
    static_assert(ROW_STRIDE == DIM && PIECES % GPU_WAVE == 0, "pieces lie side by side, and a wave has all or none");
    const int wave_piece = wave_index() * GPU_WAVE;

    template <int FIRST = 0>
    INLINE void start(element* lds, const element* memory, long long stride, int rows) const {
        if (PIECES % THREADS == 0 || FIRST + wave_piece < PIECES) {
            const int piece = FIRST + thread_index(), row = piece / ROW_PIECES;
            const int column = place_in_lds<DIM>(row, piece % ROW_PIECES * 8) - row * DIM;
            const unsigned part = part_bytes(HEAD_DIM == DIM || column < HEAD_DIM, row, column, stride);
            const unsigned limit = tile_bytes(smaller(rows, BLOCK_N), stride);
            load_to_lds<FIRST * 16>(lds + wave_piece * 8, memory, part, limit);
        }
        if constexpr (FIRST + THREADS < PIECES) start<FIRST + THREADS>(lds, memory, stride, rows);
    }

    INLINE void finish(element*) const { copies_done(); }
};
#endif

template <bool TRANSPOSED> struct ValueMover : RowMover<BLOCK_N> {};
template <> struct ValueMover<true> : TransposingMover {};
