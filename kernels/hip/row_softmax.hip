// Third kernel of the staged pipeline: weights = softmax of the rows of scores (batch, heads, seq_q, seq_kv), fp32 to
// elements, and with WITH_LSE the natural logarithm of the sum of exp(score), (batch, heads, seq_q).
//
// Workgroup  256 threads own one row; grid (seq_q, heads, batch). Scores may be -infinity; a row of nothing else has
//            weights 0 and lse -infinity
// Passes     the largest score; the sum of exp2((score - largest) log2(e)); the weights. The row is read three
//            times, the last two from cache where it fits
#include "gpu.h"

constexpr int THREADS = 256, WAVES = THREADS / GPU_WAVE;
constexpr float LOG2_E = 1.4426950408889634f;  // exp(x) = exp2(x log2(e))

KERNEL(THREADS) row_softmax(const float* __restrict__ scores, element* __restrict__ weights, float* __restrict__ lse,
                            int seq_q, int seq_kv, int heads) {
    LDS float of_waves[2][WAVES];
    const int thread = thread_index();
    const long long row = (static_cast<long long>(block_index_z()) * heads + block_index_y()) * seq_q + block_index_x();
    const float* row_scores = scores + row * seq_kv;
    element* row_weights = weights + row * seq_kv;

    float largest = NO_SCORE;
#pragma unroll 4
    for (int key = thread; key < seq_kv; key += THREADS) largest = larger(largest, row_scores[key]);
    largest = lanes_max<GPU_WAVE>(largest);
    if (lane_index() == 0) of_waves[0][wave_index()] = largest;
    barrier();
#pragma unroll
    for (int wave = 0; wave < WAVES; ++wave) largest = larger(largest, of_waves[0][wave]);

    float sum = 0;
#pragma unroll 4
    for (int key = thread; key < seq_kv; key += THREADS) sum += exp2_fast((row_scores[key] - largest) * LOG2_E);
    sum = lanes_sum<GPU_WAVE>(sum);
    if (lane_index() == 0) of_waves[1][wave_index()] = sum;
    barrier();
    sum = 0;
#pragma unroll
    for (int wave = 0; wave < WAVES; ++wave) sum += of_waves[1][wave];

    const float reciprocal = sum > 0 ? fast_reciprocal(sum) : 0.0f;
#pragma unroll 4
    for (int key = thread; key < seq_kv; key += THREADS) {
        row_weights[key] = to_element(exp2_fast((row_scores[key] - largest) * LOG2_E) * reciprocal);
    }
#if WITH_LSE
    constexpr float LN2 = 0.6931471805599453f;
    if (thread == 0) lse[row] = largest + log2_fast(sum) * LN2;  // log2(0) is -infinity
#endif
}
