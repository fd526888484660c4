// How a workgroup of step 7 walks over the tiles of keys: which one is computed while the next one is on its way. For
// 07_best.hip, behind what it says of a wave's rows, multiply_keys and use_scores.
#pragma once

// What is the same for all tiles: `keys` of `seq_kv` keys are visited; this wave's first row sees up to `last_seen`.
struct Walk {
    const element *q_rows, *k_head, *v_head;
    element *k_tiles, *v_tiles;
    long long kv_stride;
    int keys, seq_kv, last_seen;
};

#if GPU_LOADS_TO_LDS
typedef DirectMover KeyMover, ValuesMover;

// As below, with one buffer each: the next K comes during softmax and second product, the next V during the first
// product. Waves visit also tiles that they do not see: they meet twice in each, so that none could be earlier, and the
// branch costs registers.
template <bool MASKED>
INLINE void visit_tiles(Rows& rows, const Walk& walk, int begin, int end, int then) {
    const int keys = walk.keys, seq_kv = walk.seq_kv;
    const long long kv_stride = walk.kv_stride;
    const KeyMover k_mover;
    const ValuesMover v_mover;
    int first_key = begin;
    do {
        const int next_key = !MASKED || first_key + BLOCK_N < end ? first_key + BLOCK_N : then;
        const bool more = next_key < (MASKED ? keys : end);
        const int next_rows = MASKED ? seq_kv - next_key : BLOCK_N;

        Tile scores[ROW_TILES][KEY_TILES];
        multiply_keys(scores, rows, walk.q_rows, walk.k_tiles);
        copies_done();
        barrier();  // everybody is done with K, and V is there
        if (more) k_mover.start(walk.k_tiles, walk.k_head + next_key * kv_stride, kv_stride, next_rows);
        schedule_fence();
        use_scores<MASKED>(rows, scores, walk.v_tiles, first_key, walk.last_seen, seq_kv);
        copies_done();
        barrier();  // everybody is done with V, and the next K is there
        if (more) v_mover.start(walk.v_tiles, walk.v_head + next_key * kv_stride, kv_stride, next_rows);
        schedule_fence();
        first_key += BLOCK_N;
    } while (first_key < end);
}
#else
typedef RowMover<BLOCK_N> KeyMover;
typedef ValueMover<VALUES_TRANSPOSED> ValuesMover;

template <bool MASKED>
INLINE void visit_tile(Rows& rows, const element* q_rows, const element* k_tile, const element* v_tile, int first_key,
                       int last_seen, int seq_kv) {
    Tile scores[ROW_TILES][KEY_TILES];
    multiply_keys(scores, rows, q_rows, k_tile);
    use_scores<MASKED>(rows, scores, v_tile, first_key, last_seen, seq_kv);
}

// The tiles from `begin` to `end`, at least one. MASKED: the diagonal or the end of the keys may cross them. A tile is
// in LDS when its turn comes, the next one on its way; after the last MASKED one that at `then`, if below `keys`.
template <bool MASKED>
INLINE void visit_tiles(Rows& rows, const Walk& walk, int begin, int end, int then) {
    const int keys = walk.keys, seq_kv = walk.seq_kv, last_seen = walk.last_seen;
    const long long kv_stride = walk.kv_stride;
    KeyMover k_mover;
    ValuesMover v_mover;
    int first_key = begin;
    do {
        const int buffer = first_key / BLOCK_N % BUFFERS, other = (buffer + 1) % BUFFERS;
        const int next_key = ONE_LOOP || !MASKED || first_key + BLOCK_N < end ? first_key + BLOCK_N : then;
        const bool more = next_key < (MASKED ? keys : end);
        const element* next_k = walk.k_head + next_key * kv_stride;
        const element* next_v = walk.v_head + next_key * kv_stride;
        if (!ASYNC_COPIES) {
            // Without a branch, behind which they would be waited for: after the last tile 0 rows.
            const int next_rows = !more ? 0 : MASKED ? seq_kv - next_key : BLOCK_N;
            k_mover.start(walk.k_tiles, next_k, kv_stride, next_rows);
            v_mover.start(walk.v_tiles, next_v, kv_stride, next_rows);
        } else if (more && next_key + BLOCK_N <= seq_kv) {
            k_mover.start<true>(walk.k_tiles + other * K_ELEMENTS, next_k, kv_stride, BLOCK_N);
            v_mover.start<true>(walk.v_tiles + other * V_ELEMENTS, next_v, kv_stride, BLOCK_N);
        } else if (more) {
            k_mover.start(walk.k_tiles + other * K_ELEMENTS, next_k, kv_stride, seq_kv - next_key);
            v_mover.start(walk.v_tiles + other * V_ELEMENTS, next_v, kv_stride, seq_kv - next_key);
        }
        schedule_fence();

        const element* k_tile = walk.k_tiles + buffer * K_ELEMENTS;
        const element* v_tile = walk.v_tiles + buffer * V_ELEMENTS;
        const bool crossed = ONE_LOOP ? next_key > seq_kv || (CAUSAL && next_key - 1 > last_seen) : MASKED;
        if (!crossed) {
            visit_tile<false>(rows, walk.q_rows, k_tile, v_tile, first_key, last_seen, seq_kv);
        } else if (!CAUSAL || first_key <= last_seen + WAVE_ROWS - 1) {
            visit_tile<true>(rows, walk.q_rows, k_tile, v_tile, first_key, last_seen, seq_kv);
        }

        if (BUFFERS == 1) barrier();  // everybody is done with the tile
        if (more) {
            k_mover.finish(walk.k_tiles + other * K_ELEMENTS);
            v_mover.finish(walk.v_tiles + other * V_ELEMENTS);
        }
        barrier();
        first_key += BLOCK_N;
    } while (first_key < end);
}
#endif
