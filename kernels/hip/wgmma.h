// wgmma of sm_90a: four waves, a warpgroup, multiply tiles of LDS. For step 8 only; AMD has no counterpart.
//
// A tile in LDS is panels of 64 columns (128 bytes a row), one behind another, each aligned to 1,024 bytes. Within a
// row the eight pieces of 16 bytes change places: piece p of row r lies where p ^ r % 8 would ("128-byte swizzle"), so
// that neither 8 rows of one piece nor the 8 pieces of a row meet in a bank.
//
//   panel_place(row, column)     where an element lies in its panel, in elements
//   TileView                     what an instruction reads: a start, and the bytes from one panel to the next
//   wgmma<N>(d, left, right, add)     d[64 rows][N] = left[64][16] right[N][16]^T (+ d where `add`)
//     left         of the warpgroup: an Operand (registers as for mma.m16n8k16, 16 rows a wave), or a TileView
//     right        TileView of N rows; TRANSPOSED: of 16 rows of N columns
//     d            N / 2 floats a lane: value i of row l / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (l % 4) + i % 2
//   wgmma_begin()    before the first one: registers and LDS written before are seen
//   wgmma_commit()   ends a group; wgmma_wait<PENDING>() until at most so many groups are under way. Until then neither
//                    d nor an Operand may be touched
//   copies_visible() after copies_done(): what a thread copied to LDS is there for wgmma, too (behind a barrier())
//
// Sources: PTX manual, "Asynchronous warpgroup level matrix instructions" and "Matrix descriptor format".
#pragma once

constexpr int WARPGROUP = 128, PANEL = 64;

INLINE int panel_place(int row, int column) { return row * PANEL + ((column / 8 ^ row % 8) * 8 + column % 8); }

#if defined(GPU_EMULATED)
struct TileView {
    const char* start;
    int panel_bytes;
    INLINE TileView operator+(int bytes) const { return {start + bytes, panel_bytes}; }

    // Two neighbours in a row, as a word.
    INLINE unsigned word(int row, int column) const {
        const auto plain = reinterpret_cast<unsigned long long>(start + column / PANEL * panel_bytes + row * 128 +
                                                                column % PANEL * 2);
        return *reinterpret_cast<const unsigned*>(plain ^ (plain >> 7 & 7) << 4);
    }
    INLINE unsigned half(int row, int column) const {
        const unsigned both = word(row, column & ~1);
        return column % 2 ? both >> 16 : both & 0xffffu;
    }
};
INLINE TileView view_tile(const element* tile, int panel_bytes = 0) {
    return {reinterpret_cast<const char*>(tile), panel_bytes};
}

template <int N, bool TRANSPOSED = false>
INLINE void wgmma(float (&d)[N / 2], Operand left, TileView right, bool add) {
    const int row = lane_index() / 4, column = lane_index() % 4 * 2;
    UNROLL for (int n = 0; n < N / 8; ++n) {
        Words<2> b;
        UNROLL for (int i = 0; i < 2; ++i) {
            const int k = column + 8 * i, of = 8 * n + row;
            b.word[i] = TRANSPOSED ? right.half(k, of) | right.half(k + 1, of) << 16 : right.word(of, k);
        }
        Floats<4> c = {};
        UNROLL for (int i = 0; i < 4 && add; ++i) c.value[i] = d[4 * n + i];
        c = mma_m16n8k16(left, b, c);
        UNROLL for (int i = 0; i < 4; ++i) d[4 * n + i] = c.value[i];
    }
}
template <int N>
INLINE void wgmma(float (&d)[N / 2], TileView left, TileView right, bool add) {
    const int row = wave_index() % 4 * 16 + lane_index() / 4, column = lane_index() % 4 * 2;
    Operand a;
    UNROLL for (int i = 0; i < 4; ++i) a.word[i] = left.word(row + i % 2 * 8, column + i / 2 * 8);
    wgmma<N>(d, a, right, add);
}
INLINE void wgmma_begin() {}
INLINE void wgmma_commit() {}
template <int PENDING>
INLINE void wgmma_wait() {}
INLINE void copies_visible() {}
#else
struct TileView {
    unsigned long long descriptor;
    INLINE TileView operator+(int bytes) const { return {descriptor + bytes / 16}; }
};
// In units of 16 bytes: the start, the way to the next panel, that to the next 8 rows; 1: the swizzle of 128 bytes.
INLINE TileView view_tile(const element* tile, int panel_bytes = 0) {
    const unsigned long long start = lds_address(tile) / 16, panel = panel_bytes / 16, rows = 1024 / 16;
    return {start | panel << 16 | rows << 32 | 1ull << 62};
}

#if ELEMENT_BF16
#define WGMMA_TYPES "f32.bf16.bf16"
#else
#define WGMMA_TYPES "f32.f16.f16"
#endif
#define WGMMA_8(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
    "+f"(d[i + 7])
#define WGMMA_32(d, i) WGMMA_8(d, i), WGMMA_8(d, i + 8), WGMMA_8(d, i + 16), WGMMA_8(d, i + 24)
#define WGMMA_NAMES_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_64 \
    WGMMA_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, " \
    "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
// `ADD` is the number of the operand that says whether d is added to.
#define WGMMA_TEXT(N, NAMES, OPERANDS, ADD, TAIL) \
    "{.reg .pred add; setp.ne.b32 add, %" ADD ", 0; wgmma.mma_async.sync.aligned.m64n" N "k16." WGMMA_TYPES " {" NAMES \
    "}, " OPERANDS ", add, 1, 1, " TAIL ";}"

template <int N, bool TRANSPOSED = false>
INLINE void wgmma(float (&d)[N / 2], Operand left, TileView right, bool add) {
    static_assert(N == 64 || N == 128, "the widths that are written out");
#define WGMMA_LEFT "r"(left.word[0]), "r"(left.word[1]), "r"(left.word[2]), "r"(left.word[3])
    if constexpr (N == 64) {
        asm volatile(WGMMA_TEXT("64", WGMMA_NAMES_32, "{%32, %33, %34, %35}, %36", "37", "%38")
                     : WGMMA_32(d, 0)
                     : WGMMA_LEFT, "l"(right.descriptor), "r"(int(add)), "n"(int(TRANSPOSED)));
    } else {
        asm volatile(WGMMA_TEXT("128", WGMMA_NAMES_64, "{%64, %65, %66, %67}, %68", "69", "%70")
                     : WGMMA_32(d, 0), WGMMA_32(d, 32)
                     : WGMMA_LEFT, "l"(right.descriptor), "r"(int(add)), "n"(int(TRANSPOSED)));
    }
#undef WGMMA_LEFT
}
template <int N>
INLINE void wgmma(float (&d)[N / 2], TileView left, TileView right, bool add) {
    static_assert(N == 64 || N == 128, "the widths that are written out");
    if constexpr (N == 64) {
        asm volatile(WGMMA_TEXT("64", WGMMA_NAMES_32, "%32, %33", "34", "0, 0")
                     : WGMMA_32(d, 0)
                     : "l"(left.descriptor), "l"(right.descriptor), "r"(int(add)));
    } else {
        asm volatile(WGMMA_TEXT("128", WGMMA_NAMES_64, "%64, %65", "66", "0, 0")
                     : WGMMA_32(d, 0), WGMMA_32(d, 32)
                     : "l"(left.descriptor), "l"(right.descriptor), "r"(int(add)));
    }
}
INLINE void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
INLINE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
INLINE void copies_visible() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif
