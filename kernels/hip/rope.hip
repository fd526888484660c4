// Rotary position embedding of q (tokens, heads, D) and k (tokens, kv_heads, D) by cos and sin (seq, D / 2), fp32; the
// position of token t is t % seq. Pair i of a head is its elements i and i + D / 2; 2 i and 2 i + 1 where INTERLEAVED.
//
// Workgroup  256 threads own TOKENS tokens; grid (ceil(tokens / TOKENS), 1, 1). No LDS
// Thread     PAIRS pairs of one token, whose cosines and sines it reads once; it walks over the heads of q, then of k,
//            HEAD_LANES at a time
// Reads      16 bytes, where HEAD_DIM / 2 is a multiple of PAIRS = 8 (interleaved or fp32: 4, both: 2); COLUMNS
//            neighbouring threads read one head, the next ones the head after
// Types      elements, or with ELEMENT_F32 fp32; HEAD_DIM is even
#include "gpu.h"

#ifndef ELEMENT_F32
#define ELEMENT_F32 0
#endif

#ifndef PAIRS
#define PAIRS 1
#endif
#ifndef HEAD_LANES
#define HEAD_LANES 1
#endif
#ifndef TOKENS
#define TOKENS 1
#endif

constexpr int THREADS = 256;
constexpr int HALF = HEAD_DIM / 2, COLUMNS = HALF / PAIRS;

#if ELEMENT_F32
typedef float stored;
#else
typedef element stored;
#endif

static_assert(HEAD_DIM % 2 == 0 && HALF % PAIRS == 0, "a thread has whole pairs, and as many as its neighbours");
static_assert(COLUMNS * HEAD_LANES * TOKENS <= THREADS, "a thread for each piece of a head");

// COUNT neighbouring floats, in memory as aligned as their number allows.
template <int COUNT>
struct alignas(COUNT < 4 ? COUNT * 4 : 16) Values {
    float value[COUNT];
};

template <int COUNT>
INLINE Values<COUNT> load_values(const float* from) {
    return *reinterpret_cast<const Values<COUNT>*>(from);
}

template <int COUNT>
INLINE void store_values(float* to, const Values<COUNT>& values) {
    *reinterpret_cast<Values<COUNT>*>(to) = values;
}

template <int COUNT>
INLINE Values<COUNT> load_values(const element* from) {
    Values<COUNT> values;
    if constexpr (COUNT == 1) {
        values.value[0] = to_float(*from);
    } else {
        const Words<COUNT / 2> words = *reinterpret_cast<const Words<COUNT / 2>*>(from);
#pragma unroll
        for (int i = 0; i < COUNT; i += 2) {
            values.value[i] = low_float(words.word[i / 2]);
            values.value[i + 1] = high_float(words.word[i / 2]);
        }
    }
    return values;
}

template <int COUNT>
INLINE void store_values(element* to, const Values<COUNT>& values) {
    if constexpr (COUNT == 1) {
        *to = to_element(values.value[0]);
    } else {
        Words<COUNT / 2> words;
#pragma unroll
        for (int i = 0; i < COUNT; i += 2) words.word[i / 2] = pack(values.value[i], values.value[i + 1]);
        *reinterpret_cast<Words<COUNT / 2>*>(to) = words;
    }
}

// The pairs of this thread in one head: x to out, both at the head's first element.
INLINE void rotate(const stored* __restrict__ x, stored* __restrict__ out, int pair, const Values<PAIRS>& cosine,
                   const Values<PAIRS>& sine) {
#if INTERLEAVED
    const Values<2 * PAIRS> in = load_values<2 * PAIRS>(x + pair * 2);
    Values<2 * PAIRS> rotated;
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
        const float a = in.value[2 * i], b = in.value[2 * i + 1];
        rotated.value[2 * i] = a * cosine.value[i] - b * sine.value[i];
        rotated.value[2 * i + 1] = b * cosine.value[i] + a * sine.value[i];
    }
    store_values<2 * PAIRS>(out + pair * 2, rotated);
#else
    const Values<PAIRS> a = load_values<PAIRS>(x + pair), b = load_values<PAIRS>(x + HALF + pair);
    Values<PAIRS> first, second;
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
        first.value[i] = a.value[i] * cosine.value[i] - b.value[i] * sine.value[i];
        second.value[i] = b.value[i] * cosine.value[i] + a.value[i] * sine.value[i];
    }
    store_values<PAIRS>(out + pair, first);
    store_values<PAIRS>(out + HALF + pair, second);
#endif
}

KERNEL(THREADS) rope_forward(const stored* __restrict__ q, const stored* __restrict__ k, const float* __restrict__ cos,
                             const float* __restrict__ sin, stored* __restrict__ q_out, stored* __restrict__ k_out,
                             int tokens, int seq, int heads, int kv_heads) {
    const int pair = thread_index() % COLUMNS * PAIRS, head_lane = thread_index() / COLUMNS % HEAD_LANES;
    const int in_block = thread_index() / (COLUMNS * HEAD_LANES);
    const long long token = static_cast<long long>(block_index_x()) * TOKENS + in_block;
    if (in_block >= TOKENS || token >= tokens) return;

    const long long entry = token % seq * HALF + pair;
    const Values<PAIRS> cosine = load_values<PAIRS>(cos + entry), sine = load_values<PAIRS>(sin + entry);
    for (int head = head_lane; head < heads; head += HEAD_LANES) {
        const long long start = (token * heads + head) * HEAD_DIM;
        rotate(q + start, q_out + start, pair, cosine, sine);
    }
    for (int head = head_lane; head < kv_heads; head += HEAD_LANES) {
        const long long start = (token * kv_heads + head) * HEAD_DIM;
        rotate(k + start, k_out + start, pair, cosine, sine);
    }
}
