// Decode, second of two kernels: merges what the splits of a row have stored (see decode_split.hip).
//
// Workgroup  one row of the result, that is one query head of one sequence; grid (B * H)
// Thread     4 columns of every SLICES-th split, whose loads do not wait for each other; the slices meet in LDS
//
// Two partial results (max, sum, accumulator) merge like two parts of one softmax: with m the larger maximum, each is
// multiplied by 2^(max - m), then sums and accumulators are added. In the end out = accumulator / sum, and the natural
// log-sum-exp is (m + log2(sum)) ln 2. A row without keys gives 0 and -inf.
// Still slow: it is a launch of its own, some microseconds that a short cache does not have.
//
//   partial_out (B, H, splits, D), partial_max, partial_sum (B, H, splits), in units of log2
//   seq_lens    (B,): the splits of a row that were written follow from its length
//   out         (B, H, D); lse (B, H), not written without WITH_LSE
#include "gpu.h"

#ifndef THREADS
#define THREADS 128
#endif

constexpr float LN_2 = 0.6931471805599453f;
constexpr int COLUMNS = HEAD_DIM / 4;
constexpr int SLICES = THREADS / COLUMNS;
static_assert(HEAD_DIM % 8 == 0 && SLICES >= 1, "threads own 4 columns of a row");

// Aligned, so that it is read at once.
struct alignas(16) Columns {
    float value[4];
};

struct Partial {
    float max, sum;
    Columns columns;
};

INLINE void merge(Partial& total, const Partial& other) {
    const float new_max = larger(total.max, other.max);
    const float factor = exp2_fast(total.max - new_max), other_factor = exp2_fast(other.max - new_max);
    total.max = new_max;
    total.sum = total.sum * factor + other.sum * other_factor;
    UNROLL for (int i = 0; i < 4; ++i) {
        total.columns.value[i] = total.columns.value[i] * factor + other.columns.value[i] * other_factor;
    }
}

KERNEL(THREADS)
decode_reduce(const float* __restrict__ partial_out, const float* __restrict__ partial_max,
              const float* __restrict__ partial_sum, const int* __restrict__ seq_lens, element* __restrict__ out,
              float* __restrict__ lse, int heads, int splits, int split_keys) {
    const int row = block_index_x(), column = thread_index() % COLUMNS, slice = thread_index() / COLUMNS;
    const int written = (seq_lens[row / heads] + split_keys - 1) / split_keys;
    const long long first = static_cast<long long>(row) * splits;

    Partial total = {NO_SCORE, 0.0f, {}};
    if (slice < SLICES) {
#pragma unroll 4
        for (int split = slice; split < written; split += SLICES) {
            const long long at = first + split;
            const float* columns = partial_out + at * HEAD_DIM + column * 4;
            merge(total, {partial_max[at], partial_sum[at], *reinterpret_cast<const Columns*>(columns)});
        }
    }

    LDS Partial slices[SLICES][COLUMNS];
    if (slice < SLICES) slices[slice][column] = total;
    barrier();
    if (slice > 0) return;
    for (int s = 1; s < SLICES; ++s) merge(total, slices[s][column]);

    const float inverse = total.sum > 0.0f ? 1.0f / total.sum : 0.0f;
    Words<2> words;
    UNROLL for (int i = 0; i < 2; ++i) {
        words.word[i] = pack(total.columns.value[2 * i] * inverse, total.columns.value[2 * i + 1] * inverse);
    }
    *reinterpret_cast<Words<2>*>(out + static_cast<long long>(row) * HEAD_DIM + column * 4) = words;
#if WITH_LSE
    if (column == 0) lse[row] = (total.max + log2_fast(total.sum)) * LN_2;  // log2(0) is -inf
#endif
}
