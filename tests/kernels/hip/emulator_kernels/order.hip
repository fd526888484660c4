// Rank, head and batch of the block of rows that each workgroup takes.
#include "gpu.h"
#include "block_order.h"

#define THREADS 1

KERNEL(THREADS) order(int* __restrict__ out, int blocks, int heads, int kv_heads) {
    const RowBlock own = row_block(blocks, heads, kv_heads);
    int* entry = out + ((block_index_z() * heads + block_index_y()) * blocks + block_index_x()) * 3;
    entry[0] = own.rank;
    entry[1] = own.head;
    entry[2] = own.batch;
}
