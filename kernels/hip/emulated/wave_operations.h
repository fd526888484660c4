// What the lanes of a wave do together: shuffles and matrix instructions, done once all lanes have arrived.
#pragma once

struct Shuffle {
    u32 word;
    int lane;
    u32 result;
};

// In the order of `EmulatedMatrix` of gpu_emulated.h.
enum MatrixKind { MFMA, WMMA, WMMA_GFX12, MMA, MFMA_32 };

struct Matrix {
    MatrixKind kind;
    bool bf16;
    const u32* a;
    const u32* b;
    float* c;
};

struct MatrixLoad {
    bool transposed;
    const u16* row;
    u32* words;
};

static void wait(Waiting waiting, Place place, void* operand);

template <class T>
static T& operand(int thread) {
    return *static_cast<T*>(state.threads[thread].operand);
}

static float number(bool bf16, const u32* words, int index) {
    const u16 bits = u16(words[index / 2] >> (index % 2 * 16));
    return bf16 ? __builtin_bit_cast(float, u32(bits) << 16) : float(__builtin_bit_cast(_Float16, bits));
}

static void complete_shuffle(int first, int count) {
    for (int lane = 0; lane < count; lane++) {
        Shuffle& own = operand<Shuffle>(first + lane);
        if (own.lane < 0 || own.lane >= count) {
            report(state.threads[first + lane].place.address, nullptr,
                   "shuffle out of the wave: lane %d reads lane %d of %d", lane, own.lane, count);
            return;
        }
        own.result = operand<Shuffle>(first + own.lane).word;
    }
}

// Whether every lane of a wave exists, as instructions need that spread a matrix over all of them.
static bool whole_wave(int first, int count) {
    if (count == state.launch->wave) return true;
    const Place& place = state.threads[first].place;
    report(place.address, nullptr, "%s in a wave of which only %d of %d lanes exist", place.kind, count,
           state.launch->wave);
    return false;
}

// One 16 x N x `depth` product: a(row, k), b(k, column) and c(row, column) as functions that find a register.
// Products are exact, their sum is in double and rounded once: hardware rounds oftener, in an order it does not state.
template <class A, class B, class C>
static void multiply(int columns, A a, B b, C c, int depth = 16) {
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < columns; column++) {
            double sum = c(row, column);
            for (int k = 0; k < depth; k++) sum += double(a(row, k)) * double(b(k, column));
            c(row, column) = float(sum);
        }
}

// Where the registers lie.
//   MFMA        CDNA3 ISA guide, V_MFMA_F32_16X16X16_F16: lane l holds row l % 16 of a (column
//               of b), k = 4 (l / 16) + i; of c column l % 16, rows 4 (l / 16) + i
//   MFMA_32     CDNA4 ISA guide, V_MFMA_F32_16X16X32_F16: the same with k = 8 (l / 16) + i
//   WMMA        RDNA3 ISA guide, WMMA: lane l holds row l % 16 of a (column of b), all 16 k, lanes 16 to 31 the
//               same again; of c column l % 16, rows 2 i + l / 16
//   WMMA_GFX12  RDNA4 ISA guide, WMMA: lane l holds row l % 16 of a (column of b), k = 8 (l / 16) + i; of c
//               column l % 16, rows 8 (l / 16) + i
//   MMA         PTX ISA, mma.m16n8k16 with .f16 and .bf16: with g = l / 4 and t = l % 4, a's register r holds row
//               g + 8 (r % 2), k = 2 t + 8 (r / 2) and the one after; b's register r holds column g, k = 2 t + 8 r and
//               the one after; c's register r is row g + 8 (r / 2), column 2 t + r % 2
static void complete_matrix(int first, int count) {
    if (!whole_wave(first, count)) return;
    const Matrix& any = operand<Matrix>(first);
    const bool bf16 = any.bf16;
    const MatrixKind kind = any.kind;
    auto lane = [&](int index) -> Matrix& { return operand<Matrix>(first + index); };
    if (kind == MFMA)
        return multiply(
            16, [&](int row, int k) { return number(bf16, lane(row + k / 4 * 16).a, k % 4); },
            [&](int k, int column) { return number(bf16, lane(column + k / 4 * 16).b, k % 4); },
            [&](int row, int column) -> float& { return lane(column + row / 4 * 16).c[row % 4]; });
    if (kind == MFMA_32)
        return multiply(
            16, [&](int row, int k) { return number(bf16, lane(row + k / 8 * 16).a, k % 8); },
            [&](int k, int column) { return number(bf16, lane(column + k / 8 * 16).b, k % 8); },
            [&](int row, int column) -> float& { return lane(column + row / 4 * 16).c[row % 4]; }, 32);
    if (kind == WMMA_GFX12)
        return multiply(
            16, [&](int row, int k) { return number(bf16, lane(row + k / 8 * 16).a, k % 8); },
            [&](int k, int column) { return number(bf16, lane(column + k / 8 * 16).b, k % 8); },
            [&](int row, int column) -> float& { return lane(column + row / 8 * 16).c[row % 8]; });
    if (kind == MMA)
        return multiply(
            8,
            [&](int row, int k) {
                return number(bf16, lane(row % 8 * 4 + k % 8 / 2).a, (row / 8 + k / 8 * 2) * 2 + k % 2);
            },
            [&](int k, int column) { return number(bf16, lane(column * 4 + k % 8 / 2).b, k / 8 * 2 + k % 2); },
            [&](int row, int column) -> float& {
                return lane(row % 8 * 4 + column / 2).c[row / 8 * 2 + column % 2];
            });
    for (int l = 0; l < 16; l++)
        for (int word = 0; word < 8; word++)
            if (lane(l).a[word] != lane(l + 16).a[word] || lane(l).b[word] != lane(l + 16).b[word]) {
                const bool in_a = lane(l).a[word] != lane(l + 16).a[word];
                report(state.threads[first].place.address, nullptr,
                       "wmma operand %s differs between lanes %d and %d in word %d: on RDNA3 lanes 16 to 31 must hold "
                       "the same again", in_a ? "a" : "b", l, l + 16, word);
                return;
            }
    multiply(
        16, [&](int row, int k) { return number(bf16, lane(row).a, k); },
        [&](int k, int column) { return number(bf16, lane(column).b, k); },
        [&](int row, int column) -> float& { return lane(column + row % 2 * 16).c[row / 2]; });
}

// PTX ISA, ldmatrix .m8n8.x4.b16: lane l names row l % 8 of matrix l / 8; it gets of each matrix row l / 4 the elements
// 2 (l % 4) and the one after, or where transposed of column l / 4 those rows.
static void complete_load(int first, int count) {
    if (!whole_wave(first, count)) return;
    for (int lane = 0; lane < 32; lane++) {
        MatrixLoad& own = operand<MatrixLoad>(first + lane);
        for (int matrix = 0; matrix < 4; matrix++) {
            const int across = lane / 4, along = lane % 4 * 2;
            auto at = [&](int row, int column) -> u32 {
                return operand<MatrixLoad>(first + matrix * 8 + row).row[column];
            };
            own.words[matrix] = own.transposed ? at(along, across) | at(along + 1, across) << 16
                                               : at(across, along) | at(across, along + 1) << 16;
        }
    }
}

// CDNA4 ISA guide, DS_READ_B64_TR_B16: 16 lanes read 4 rows of 16 elements, lane l elements 4 (l % 4) ... + 3 of row
// l / 4, and lane l gets element l of each row (as Modular's documentation of ds_read_tr16_b64_row says it).
static void complete_transposed(int first, int count) {
    if (!whole_wave(first, count)) return;
    for (int lane = 0; lane < count; lane++) {
        MatrixLoad& own = operand<MatrixLoad>(first + lane);
        auto at = [&](int row) -> u32 {
            return operand<MatrixLoad>(first + lane / 16 * 16 + row * 4 + lane % 16 / 4).row[lane % 4];
        };
        for (int word = 0; word < 2; word++) own.words[word] = at(2 * word) | at(2 * word + 1) << 16;
    }
}

static void complete_barrier(int first, int) { order_wave_memory(wave_of(first)); }

extern "C" {
u32 emulated_shuffle(u32 word, int lane, const char* file, int line) {
    Shuffle shuffle = {word, lane, 0};
    wait(AT_WAVE, {"shuffle", complete_shuffle, file, line, CALLER}, &shuffle);
    return shuffle.result;
}

void emulated_matrix(MatrixKind kind, bool bf16, const u32* a, const u32* b, float* c, const char* file, int line) {
    Matrix matrix = {kind, bf16, a, b, c};
    wait(AT_WAVE, {"matrix instruction", complete_matrix, file, line, CALLER}, &matrix);
}

void emulated_read_transposed(const u16* row, u32* words, const char* file, int line) {
    check_matrix_row(row, 8, "read_transposed", CALLER);
    MatrixLoad load = {true, row, words};
    wait(AT_WAVE, {"read_transposed", complete_transposed, file, line, CALLER}, &load);
}

void emulated_ldmatrix(bool transposed, const u16* row, u32* words, const char* file, int line) {
    check_matrix_row(row, 16, "ldmatrix", CALLER);
    MatrixLoad load = {transposed, row, words};
    wait(AT_WAVE, {"ldmatrix", complete_load, file, line, CALLER}, &load);
}
}
