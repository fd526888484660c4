// Second kernel of the staged pipeline: -infinity over the scores (batch, heads, seq_q, seq_kv) of keys that a row does
// not see.
//
// Workgroup  256 threads own one row; grid (seq_q, heads, batch). Row i sees key j iff j <= i + seq_kv - seq_q, so that
//            only the rest is written, and nothing is read
#include "gpu.h"

constexpr int THREADS = 256;

KERNEL(THREADS) causal_mask(float* __restrict__ scores, int seq_q, int seq_kv, int heads) {
    const int row = block_index_x();
    const long long head = static_cast<long long>(block_index_z()) * heads + block_index_y();
    float* row_scores = scores + (head * seq_q + row) * seq_kv;
    const int visible = row + 1 + seq_kv - seq_q;  // 0 or less: none
    const float hidden = log2_fast(0.0f);          // -infinity
    for (int key = (visible > 0 ? visible : 0) + thread_index(); key < seq_kv; key += THREADS) row_scores[key] = hidden;
}
