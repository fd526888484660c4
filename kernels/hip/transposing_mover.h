// Copies a tile of V to LDS in two halves, turned around; for kernels that define BLOCK_N, THREADS, DIM_TILES and
// VALUE_STRIDE before.
#pragma once

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
                held[i][j] = load_words4_within(memory, part, tile_bytes(rows, stride));
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
