// Column sums of a matrix of `rows` x 64 elements through a tile in LDS: right where bug is 0, else with one bug.
// The line that must be named ends in the bug's number.
#include "gpu.h"

#define THREADS 128
constexpr int TILE = 16, WIDTH = 64;

INLINE int exchanged(int* box, int value, int bug) {
    box[thread_index()] = value;                                           // [wave write after read]
    if (bug != 3) wave_barrier();
    const int neighbour = box[thread_index() ^ 1];                         // [3] [19]
    if (bug != 19) wave_barrier();
    return neighbour;
}

KERNEL(THREADS) seeded(const element* __restrict__ in, float* __restrict__ sums, float* __restrict__ waves,
                       int* __restrict__ neighbours, int rows, int bug) {
    LDS element tile[TILE][WIDTH];
    LDS int box[THREADS];
    DYNAMIC_LDS(float, largest);
    const int thread = thread_index(), column = thread % WIDTH;
    const int tile_row = thread / 8, tile_column = thread % 8 * 8;
    float sum = 0;
    if (bug == 6 && thread % 2) barrier();                                 // [6]
    for (int first = 0; first < rows; first += TILE) {
        const int row = first + tile_row;
        if (bug != 2) barrier();
        const bool wanted = bug == 4 ? row <= rows : row < rows;
        const long long offset = (long long)row * WIDTH + tile_column;
        if (bug == 11 || bug == 0) {
            copy_async(&tile[tile_row][tile_column], in + offset, wanted);  // [copy]
            if (bug != 11) copies_done();
        } else {
            Words<4> words = {};
            if (wanted) words = load_words4(in + offset + (bug == 15));    // [4] [15]
            if (bug != 5 || tile_column < WIDTH - 8) store_words4(&tile[tile_row][tile_column], words);  // [2]
        }
        if (bug != 1) barrier();
        for (int i = 0; i < TILE; i++) sum += to_float(tile[i][column + (bug == 9)]);  // [1] [5] [9] [11]
    }
    float wave_sum;
    if (bug == 16 && thread % 2) wave_sum = lanes_sum<GPU_WAVE>(sum + 1.0f);
    else wave_sum = lanes_sum<GPU_WAVE>(sum);                              // [16]
    wave_sum = shuffle_xor(wave_sum, 0);                                   // its own
    if (bug == 7) wave_sum += shuffle_xor(wave_sum, 32);                   // [7]
    if (bug == 17) box[thread] = rows << (thread + bug);                   // [17]
    if (bug == 12) copy_async(&tile[0][1], in, true);                      // [12]
    if (bug == 14 && thread >= 64) return;
    barrier();                                                             // [14]
    if (bug == 18) largest[THREADS / GPU_WAVE] = sum;                      // [18]
    if (bug == 22) copy_async(waves, in, true);                            // [22]
    if (bug == 23) sum += float(rows * (1 << 30));                         // [23]
    if (bug == 24) sum += reinterpret_cast<const float*>(0x40)[thread];    // [24]
    if (bug == 21) largest[0] = sum;                                       // [21]
    if (lane_index() == 0) largest[wave_index()] = wave_sum;
    const int neighbour = exchanged(box, thread, bug) + exchanged(box, thread, bug);
    barrier();
    const int block = bug == 13 ? 0 : block_index_x();
    const int end = bug == 8 ? thread + 1 : thread;
    sums[block * THREADS + end] = sum;                                     // [8] [13]
    waves[block_index_x() * THREADS + thread] = largest[wave_index()];
    if (bug == 20) const_cast<element*>(in)[thread] = 0;                   // [20]
    float parts[4];
    for (int i = 0; i < 4; i++)
        if (bug != 10 || i < 3) parts[i] = sum;
    if (bug == 10) sums[block * THREADS + thread] = parts[0] + parts[3];
    neighbours[block_index_x() * THREADS + thread] = neighbour;
    copy_async(&tile[tile_row][tile_column], in, true);                    // of no concern to the next block
}

#if UNINITIALISED
KERNEL(THREADS) uninitialised(float* __restrict__ out) {
    float sum;
    for (int i = 0; i < 4; i++) sum += float(i);
    out[thread_index()] = sum;
}
#endif
