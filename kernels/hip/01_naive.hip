// Step 1: one thread computes one row of the output; whatever it needs twice it reads from global memory twice.
//
// Workgroup  BLOCK_M threads own BLOCK_M query rows of one head; grid (ceil(seq_q / BLOCK_M), heads, batch)
// Thread     one row: Q_PART elements of its query, packed in registers, or OUT_PART floats of its output at a time,
//            because the registers of a thread do not hold whole rows of 256 without spilling
// Scores     global scratch, fp32 [batch][head][key][query row], batch * heads * seq_q * seq_kv floats: neighbouring
//            threads have neighbouring rows, so a wave writes and reads one run of addresses. In units of log 2
// Reads      rows of k and v 16 bytes at a time; the whole wave reads the same address, which is one transaction
// HEAD_DIM   a multiple of 8
//
// Three passes over the visible keys: scores and their largest; the sum of exp2(score - largest); weights times v.
//
// Still slow: there are only as many threads as query rows, every wave reads all of k and v by itself, and the scores
// cross global memory 2 HEAD_DIM / Q_PART + HEAD_DIM / OUT_PART times.
#include "gpu.h"

#ifndef BLOCK_M
#define BLOCK_M 128
#endif
#define THREADS BLOCK_M

static_assert(HEAD_DIM % 8 == 0, "rows are read 16 bytes at a time");

constexpr float SCALE_LOG2 = SOFTMAX_SCALE * 1.4426950408889634f;  // log2(e): exp(x) = exp2(x log2(e))

// The largest multiple of 8 up to PART that divides HEAD_DIM.
template <int PART, bool DIVIDES = HEAD_DIM % PART == 0>
struct PartOfRow {
    static constexpr int size = PART;
};
template <int PART>
struct PartOfRow<PART, false> : PartOfRow<PART - 8> {};

constexpr int Q_PART = PartOfRow<64>::size, OUT_PART = PartOfRow<32>::size;

// q . k of one part. Four sums, so that an addition need not wait for the one before.
INLINE float dot(const Words<4> (&query)[Q_PART / 8], const element* __restrict__ key) {
    float sum[4] = {};
#pragma unroll
    for (int part = 0; part < Q_PART / 8; ++part) {
        const Words<4> words = load_words4(key + part * 8);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sum[i] += low_float(query[part].word[i]) * low_float(words.word[i]);
            sum[i] += high_float(query[part].word[i]) * high_float(words.word[i]);
        }
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

KERNEL(THREADS) attention_naive(const element* __restrict__ q, const element* __restrict__ k,
                                const element* __restrict__ v, element* __restrict__ out, float* __restrict__ lse,
                                float* __restrict__ scores, int seq_q, int seq_kv, int heads, int kv_heads) {
    const int row = block_index_x() * BLOCK_M + thread_index();
    if (row >= seq_q) return;
    const int head = block_index_y(), kv_head = head / (heads / kv_heads);
    const long long batch = block_index_z(), key_stride = kv_heads * HEAD_DIM;
    const long long kv_start = batch * seq_kv * key_stride + kv_head * HEAD_DIM;
    const long long q_start = ((batch * seq_q + row) * heads + head) * HEAD_DIM;
    const int keys = CAUSAL ? row + 1 + seq_kv - seq_q : seq_kv;  // visible; 0 or less: none
    float* score = scores + (batch * heads + head) * seq_kv * seq_q + row;

    float largest = NO_SCORE;
#pragma unroll 1
    for (int first = 0; first < HEAD_DIM; first += Q_PART) {
        Words<4> query[Q_PART / 8];
#pragma unroll
        for (int part = 0; part < Q_PART / 8; ++part) query[part] = load_words4(q + q_start + first + part * 8);
        largest = NO_SCORE;  // of the last part, when the scores are whole
        for (int key = 0; key < keys; ++key) {
            float value = dot(query, k + kv_start + key * key_stride + first) * SCALE_LOG2;
            if (first > 0) value += score[static_cast<long long>(key) * seq_q];
            score[static_cast<long long>(key) * seq_q] = value;
            largest = larger(largest, value);
        }
    }

    float sum = 0;
#pragma unroll 4
    for (int key = 0; key < keys; ++key) sum += exp2_fast(score[static_cast<long long>(key) * seq_q] - largest);
    const float reciprocal = sum > 0 ? fast_reciprocal(sum) : 0.0f;

#pragma unroll 1
    for (int first = 0; first < HEAD_DIM; first += OUT_PART) {
        float accumulator[OUT_PART] = {};
        for (int key = 0; key < keys; ++key) {
            const float weight = exp2_fast(score[static_cast<long long>(key) * seq_q] - largest);
            const element* value = v + kv_start + key * key_stride + first;
#pragma unroll
            for (int part = 0; part < OUT_PART / 8; ++part) {
                const Words<4> words = load_words4(value + part * 8);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    accumulator[part * 8 + i * 2] += weight * low_float(words.word[i]);
                    accumulator[part * 8 + i * 2 + 1] += weight * high_float(words.word[i]);
                }
            }
        }
#pragma unroll
        for (int part = 0; part < OUT_PART / 8; ++part) {
            Words<4> words;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int dim = part * 8 + i * 2;
                words.word[i] = pack(accumulator[dim] * reciprocal, accumulator[dim + 1] * reciprocal);
            }
            store_words4(out + q_start + first + part * 8, words);
        }
    }
#if WITH_LSE
    constexpr float LN2 = 0.6931471805599453f;
    lse[(batch * heads + head) * seq_q + row] = (largest + log2_fast(sum)) * LN2;  // log2(0) is -inf
#endif
}
