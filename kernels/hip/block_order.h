// Which rows of which head a workgroup takes, out of a grid of (blocks of rows, heads, batches).
#pragma once

#ifndef XCDS
#define XCDS 1
#endif

// rank    of a block among those of its head
struct RowBlock {
    int rank, head, batch;
};

// With XCDS of 1 as the grid has it. Else in an order that keeps the query heads of one K/V head on one XCD: the
// hardware deals workgroup n to XCD n % XCDS, and an XCD's L2 cache holds only what its own workgroups read (AMD,
// "AMD Instinct MI300X workload optimization"). K/V heads of all batches are dealt to the XCDs in turn; an XCD works
// through one after another, all its heads' first blocks before all their second ones. K/V heads left over, fewer than
// XCDS, keep the plain order: each on one XCD would leave others idle.
INLINE RowBlock row_block(int blocks, int heads, int kv_heads) {
    if constexpr (XCDS > 1) {
        const int batch_heads = heads * block_count_z(), group = heads / kv_heads, each = group * blocks;
        const int dealt = batch_heads / group / XCDS * XCDS;
        const int number = (block_index_z() * heads + block_index_y()) * blocks + block_index_x();
        const int turn = number / XCDS, after = number - dealt * each, left = batch_heads - dealt * group;
        const int kv_head = turn / each * XCDS + number % XCDS;
        const int head = after < 0 ? kv_head * group + turn % group : dealt * group + after % left;
        return {after < 0 ? turn % each / group : after / left, head % heads, head / heads};
    }
    return {block_index_x(), block_index_y(), block_index_z()};
}
