// Who touched which byte: races, reads of what nobody wrote, accesses out of bounds. Kernels are compiled with the
// instrumentation of ThreadSanitizer and UBSan, whose calls end here; neither of their runtimes is used.
#pragma once

constexpr u16 NOBODY = 0xffff;

// Of one byte of LDS or of a tensor. Intervals count barriers and never repeat, epochs count a wave's own barriers.
// Readers of the interval are remembered so far as a later write needs: the last of one wave, another one of the same
// wave since its last wave barrier, and one of another wave.
struct Access {
    u32 write_interval, write_epoch, write_block, write_place;
    u32 read_interval, read_epoch, read_block, read_place;
    u32 other_place, other_block;
    u16 writer, reader, reader_beside, reader_elsewhere;
    u32 pending_block;  // whose copy_async has been started and is not done; no block has the number 0
};

struct Memory {
    u8* begin;
    u64 bytes;
    Access* accesses;  // null: read only
    u64 access_bytes;
    const char* name;
    bool lds;
};

// A read of what nobody wrote. If another thread writes it before the next barrier, that race is the bug to report.
struct Unwritten {
    const Memory* of;
    u64 offset;
    int thread;
    const void* place;
};

static struct {
    Memory static_lds, dynamic_lds;
    Memory regions[32];
    u8* arena;
    u64 arena_bytes;
    int slot_shift;  // each region begins in a slot of this size, with unused room before and after
    u32 interval, block_interval;
    u32 epochs[MAX_THREADS];
    Unwritten unwritten;  // the first since the last barrier; `of` is null where there was none
} memory;

// Its name in messages; that of a variable in LDS is found from its address, as @2.
static const char* name_of(const Memory& of, u64 offset) {
    if (&of != &memory.static_lds) return of.name;
    state.launch->places[2] = u64(reinterpret_cast<const char*>(of.begin + offset) - __ehdr_start);
    return "LDS (@2)";
}

static u32 place_of(const void* address) { return u32(static_cast<const char*>(address) - __ehdr_start); }
static const void* address_of(u32 place) { return __ehdr_start + place; }

static void copy_bytes(u8* to, const u8* from, u64 bytes) { __builtin_memcpy(to, from, bytes); }

static Access* map_accesses(Memory& of) {
    of.access_bytes = of.bytes * sizeof(Access) + 1;
    return of.accesses = static_cast<Access*>(map_memory(of.access_bytes));
}

// Tensors are copied into memory where nothing else lies near, so that an access beyond one end is not one of another.
static bool begin_arena() {
    const Launch& launch = *state.launch;
    u64 largest = 4096;
    for (int i = 0; i < launch.region_count; i++)
        if (launch.regions[i].bytes > largest) largest = launch.regions[i].bytes;
    memory.slot_shift = 64 - __builtin_clzll(largest * 4);
    memory.arena_bytes = u64(launch.region_count + 1) << memory.slot_shift;
    memory.arena = static_cast<u8*>(map_memory(memory.arena_bytes));
    if (!memory.arena) return false;
    for (int i = 0; i < launch.region_count; i++) {
        const Region& region = launch.regions[i];
        Memory& of = memory.regions[i];
        // The same alignment as where it came from.
        u8* begin = memory.arena + (u64(i) << memory.slot_shift) + (u64(1) << (memory.slot_shift - 1));
        begin += (u64(region.memory) - u64(begin)) & 255;
        of = {begin, region.bytes, nullptr, 0, region.name, false};
        copy_bytes(begin, region.memory, region.bytes);
        if (region.writable && !map_accesses(of)) return false;
    }
    return true;
}

static bool begin_launch_memory() {
    const Launch& launch = *state.launch;
    memory = {};
    state.dynamic_lds = static_cast<u8*>(map_memory(u64(launch.lds_bytes) + 65536));
    if (!state.dynamic_lds) return false;
    if (__start_emulated_lds)
        memory.static_lds = {reinterpret_cast<u8*>(__start_emulated_lds),
                             u64(__stop_emulated_lds - __start_emulated_lds), nullptr, 0, "LDS", true};
    memory.dynamic_lds = {state.dynamic_lds, u64(launch.lds_bytes), nullptr, 0, "dynamic LDS", true};
    if (launch.checked && !(map_accesses(memory.static_lds) && map_accesses(memory.dynamic_lds) && begin_arena()))
        return false;
    for (int i = 0; i < launch.argument_count; i++) {
        const Argument& argument = launch.arguments[i];
        u8* begin = argument.region < 0 ? nullptr
                    : launch.checked    ? memory.regions[argument.region].begin
                                        : launch.regions[argument.region].memory;
        state.argument_values[i] = long(begin) + argument.value;
    }
    return true;
}

// Also of a launch that could not begin: what it did not get is null.
static void end_launch_memory() {
    const Launch& launch = *state.launch;
    unmap_memory(state.dynamic_lds, u64(launch.lds_bytes) + 65536);
    unmap_memory(memory.static_lds.accesses, memory.static_lds.access_bytes);
    unmap_memory(memory.dynamic_lds.accesses, memory.dynamic_lds.access_bytes);
    for (int i = 0; i < launch.region_count; i++) {
        Memory& of = memory.regions[i];
        if (!of.accesses) continue;
        copy_bytes(launch.regions[i].memory, of.begin, of.bytes);
        unmap_memory(of.accesses, of.access_bytes);
    }
    unmap_memory(memory.arena, memory.arena_bytes);
}

// LDS begins as NaN in every type of float.
static void begin_block_memory() {
    memory.block_interval = ++memory.interval;
    __builtin_memset(memory.static_lds.begin, 0xff, memory.static_lds.bytes);
    __builtin_memset(state.dynamic_lds, 0xff, u64(state.launch->lds_bytes));
}

// Called at each barrier and at the end of the launch, whatever else went wrong: an index read from LDS that nobody
// wrote leads out of bounds next.
static void report_unwritten() {
    const Unwritten& first = memory.unwritten;
    if (!first.of) return;
    report(first.place, nullptr,
           "read of unwritten LDS: thread %d reads byte %llu of %s, which no thread of its block wrote", first.thread,
           first.offset, name_of(*first.of, first.offset));
    memory.unwritten = {};
}

static void order_block_memory() {
    report_unwritten();
    memory.interval++;
}
static void order_wave_memory(int wave) { memory.epochs[wave]++; }

// Whether what `thread` did at `epoch` of its wave, in this interval, is seen by the thread that runs.
static bool unordered(int thread, u32 epoch) {
    if (thread == state.current) return false;
    return wave_of(thread) != wave_of(state.current) || epoch == memory.epochs[wave_of(state.current)];
}

[[noreturn]] static void report_race(const Memory& of, u64 offset, const void* place, const char* does, const char* did,
                                     u32 block, int thread, u32 other_place) {
    memory.unwritten = {};
    if (block && block != state.block_number)
        report(place, address_of(other_place),
               "race: block %u, thread %d %s byte %llu of %s, which another block (%u) %s at @1; nothing orders blocks",
               state.block_number - 1, state.current, does, offset, of.name, block - 1, did);
    else
        report(place, address_of(other_place),
               "race: thread %d %s byte %llu of %s, which thread %d %s at @1, and no barrier lies between",
               state.current, does, offset, name_of(of, offset), thread, did);
    leave();
}

[[noreturn]] static void report_pending(const Memory& of, u64 offset, const void* place) {
    report(place, address_of(of.accesses[offset].write_place),
           "copy not done: thread %d touches byte %llu of %s, where the copy_async of thread %d at @1 may still write: "
           "copies_done() is missing", state.current, offset, name_of(of, offset), of.accesses[offset].writer);
    leave();
}

static void read_byte(const Memory& of, u64 offset, const void* place) {
    Access& access = of.accesses[offset];
    const int thread = state.current;
    const u32 epoch = memory.epochs[wave_of(thread)];
    if (access.pending_block == state.block_number) report_pending(of, offset, place);
    if (access.read_interval == memory.interval && access.reader == thread && access.read_epoch == epoch) return;
    if (of.lds && access.write_interval < memory.block_interval && !memory.unwritten.of)
        memory.unwritten = {&of, offset, thread, place};
    if (!of.lds && access.write_block && access.write_block != state.block_number)
        report_race(of, offset, place, "reads", "wrote", access.write_block, access.writer, access.write_place);
    if (access.write_interval == memory.interval && unordered(access.writer, access.write_epoch))
        report_race(of, offset, place, "reads", "wrote", 0, access.writer, access.write_place);
    if (access.read_block && access.read_block != state.block_number) {
        access.other_block = access.read_block;
        access.other_place = access.read_place;
    }
    access.read_block = state.block_number;
    if (access.read_interval != memory.interval) {
        access.read_interval = memory.interval;
        access.reader_beside = access.reader_elsewhere = NOBODY;
    } else if (wave_of(access.reader) != wave_of(thread)) {
        access.reader_elsewhere = access.reader;
        access.reader_beside = NOBODY;
    } else {
        access.reader_beside = access.read_epoch == epoch ? access.reader : NOBODY;
    }
    access.reader = u16(thread);
    access.read_epoch = epoch;
    access.read_place = place_of(place);
}

static void write_byte(const Memory& of, u64 offset, const void* place) {
    Access& access = of.accesses[offset];
    const int thread = state.current;
    if (access.pending_block == state.block_number) report_pending(of, offset, place);
    if (!of.lds) {
        if (access.write_block && access.write_block != state.block_number)
            report_race(of, offset, place, "writes", "wrote", access.write_block, access.writer, access.write_place);
        if (access.read_block && access.read_block != state.block_number)
            report_race(of, offset, place, "writes", "read", access.read_block, access.reader, access.read_place);
        if (access.other_block && access.other_block != state.block_number)
            report_race(of, offset, place, "writes", "read", access.other_block, access.reader, access.other_place);
    }
    if (access.write_interval == memory.interval && unordered(access.writer, access.write_epoch))
        report_race(of, offset, place, "writes", "wrote", 0, access.writer, access.write_place);
    if (access.read_interval == memory.interval) {
        if (unordered(access.reader, access.read_epoch))
            report_race(of, offset, place, "writes", "read", 0, access.reader, access.read_place);
        if (access.reader_beside != NOBODY && unordered(access.reader_beside, access.read_epoch))
            report_race(of, offset, place, "writes", "read", 0, access.reader_beside, access.read_place);
        if (access.reader_elsewhere != NOBODY && unordered(access.reader_elsewhere, access.read_epoch))
            report_race(of, offset, place, "writes", "read", 0, access.reader_elsewhere, access.read_place);
    }
    access.write_interval = memory.interval;
    access.write_epoch = memory.epochs[wave_of(thread)];
    access.write_block = state.block_number;
    access.write_place = place_of(place);
    access.writer = u16(thread);
}

static const Memory* memory_at(u64 address) {
    if (address - u64(memory.static_lds.begin) < memory.static_lds.bytes) return &memory.static_lds;
    if (address - u64(state.dynamic_lds) < u64(state.launch->lds_bytes) + 65536) return &memory.dynamic_lds;
    if (address - u64(memory.arena) < memory.arena_bytes) {
        const u64 slot = (address - u64(memory.arena)) >> memory.slot_shift;
        if (slot < u64(state.launch->region_count)) return &memory.regions[slot];
    }
    return nullptr;
}

[[noreturn]] static void report_beyond(const Memory* of, u64 address, u64 bytes, bool writes, const void* place) {
    const char* does = writes ? "writes" : "reads";
    if (!of)
        report(place, nullptr, "out of bounds: thread %d %s %llu bytes at %#llx, which is in no tensor and not in LDS",
               state.current, does, bytes, address);
    else
        report(place, nullptr,
               "out of bounds: thread %d of block (%d, %d, %d) %s %llu bytes at offset %lld of %s, which has %llu "
               "bytes", state.current, state.block[0], state.block[1], state.block[2], does, bytes,
               (long long)(address - u64(of->begin)), of->name, of->bytes);
    leave();
}

static void record_access(u64 offset, u64 bytes, bool writes, const void* place) {
    Launch& launch = *state.launch;
    if (launch.lds_count < launch.lds_room)
        launch.lds_accesses[launch.lds_count] = {state.block_number - 1, u32(state.current), place_of(place),
                                                 u32(offset), u32(bytes), writes};
    launch.lds_count++;
}

static void check(u64 address, u64 bytes, bool writes, const void* place) {
    if (address - u64(state.stacks) < state.stack_bytes) return;
    const Memory* of = memory_at(address);
    const u64 offset = of ? address - u64(of->begin) : 0;
    if (!of) {
        // Tables that are constant.
        if (!writes && address - u64(__ehdr_start) < u64(_end - __ehdr_start)) return;
        report_beyond(of, address, bytes, writes, place);
    }
    if (offset >= of->bytes || bytes > of->bytes - offset) report_beyond(of, address, bytes, writes, place);
    if (!of->lds)
        state.launch->traffic_bytes += bytes;
    else
        record_access(offset, bytes, writes, place);
    if (!of->accesses) {
        if (!writes) return;
        report(place, nullptr, "write to const: thread %d writes offset %llu of %s, which the kernel takes as const",
               state.current, offset, of->name);
        leave();
    }
    for (u64 i = 0; i < bytes; i++) writes ? write_byte(*of, offset + i, place) : read_byte(*of, offset + i, place);
}

static void check_aligned(u64 address, u64 bytes, const char* what, const void* place) {
    if (address % bytes == 0) return;
    report(place, nullptr, "misaligned: thread %d gives %s the address %#llx, which is no multiple of %llu",
           state.current, what, address, bytes);
    leave();
}

static void check_in_lds(const void* address, const char* what, const void* place) {
    const Memory* of = memory_at(u64(address));
    if (of && of->lds) return;
    report(place, nullptr, "not in LDS: thread %d gives %s an address of other memory", state.current, what);
    leave();
}

static void check_copy(const u8* lds, const u8* global, bool wanted, const void* place) {
    if (!state.launch->checked) return;
    check_in_lds(lds, "copy_async", place);
    check_aligned(u64(lds), 16, "copy_async", place);
    check_aligned(u64(global), 16, "copy_async", place);
    if (wanted) check(u64(global), 16, false, place);
    check(u64(lds), 16, true, place);
    const Memory* of = memory_at(u64(lds));
    for (int i = 0; i < 16; i++) of->accesses[lds - of->begin + i].pending_block = state.block_number;
}

static void finish_copy(const PendingCopy& copy) {
    if (copy.global)
        copy_bytes(copy.lds, copy.global, 16);
    else
        __builtin_memset(copy.lds, 0, 16);
    if (!state.launch->checked) return;
    const Memory* of = memory_at(u64(copy.lds));
    for (int i = 0; i < 16; i++) {
        Access& access = of->accesses[copy.lds - of->begin + i];
        const void* place = address_of(access.write_place);
        access.pending_block = 0;
        write_byte(*of, u64(copy.lds - of->begin + i), place);
    }
}

static void check_matrix_row(const void* row, u64 bytes, const char* what, const void* place) {
    if (!state.launch->checked) return;
    check_in_lds(row, what, place);
    check_aligned(u64(row), bytes, what, place);
    check(u64(row), bytes, false, place);
}

[[noreturn]] static void report_undefined(const char* what, const void* place) {
    report(place, nullptr, "%s: thread %d of block (%d, %d, %d)", what, state.current, state.block[0], state.block[1],
           state.block[2]);
    leave();
}

// Those that are not called unaligned are aligned, says the compiler.
#define TSAN_ACCESS(BYTES)                                                                \
    void __tsan_read##BYTES(void* at) {                                                   \
        check_aligned(u64(at), BYTES, "a load", CALLER);                                  \
        check(u64(at), BYTES, false, CALLER);                                             \
    }                                                                                     \
    void __tsan_write##BYTES(void* at) {                                                  \
        check_aligned(u64(at), BYTES, "a store", CALLER);                                 \
        check(u64(at), BYTES, true, CALLER);                                              \
    }                                                                                     \
    void __tsan_unaligned_read##BYTES(void* at) { check(u64(at), BYTES, false, CALLER); } \
    void __tsan_unaligned_write##BYTES(void* at) { check(u64(at), BYTES, true, CALLER); }

#define UBSAN_HANDLER(NAME, WHAT) \
    void __ubsan_handle_##NAME() { report_undefined(WHAT, CALLER); }

extern "C" {
TSAN_ACCESS(1)
TSAN_ACCESS(2)
TSAN_ACCESS(4)
TSAN_ACCESS(8)
TSAN_ACCESS(16)
void __tsan_init() {}

void* __tsan_memcpy(void* to, const void* from, unsigned long bytes) {
    check(u64(from), bytes, false, CALLER);
    check(u64(to), bytes, true, CALLER);
    return __builtin_memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, unsigned long bytes) {
    check(u64(from), bytes, false, CALLER);
    check(u64(to), bytes, true, CALLER);
    return __builtin_memmove(to, from, bytes);
}
void* __tsan_memset(void* at, int value, unsigned long bytes) {
    check(u64(at), bytes, true, CALLER);
    return __builtin_memset(at, value, bytes);
}

UBSAN_HANDLER(out_of_bounds, "index out of an array")
UBSAN_HANDLER(type_mismatch_v1, "misaligned address")
UBSAN_HANDLER(alignment_assumption, "misaligned address")
UBSAN_HANDLER(add_overflow, "signed overflow of an addition")
UBSAN_HANDLER(sub_overflow, "signed overflow of a subtraction")
UBSAN_HANDLER(mul_overflow, "signed overflow of a multiplication")
UBSAN_HANDLER(negate_overflow, "signed overflow of a negation")
UBSAN_HANDLER(divrem_overflow, "division by zero or overflow")
UBSAN_HANDLER(shift_out_of_bounds, "shift by too many bits or by a negative number")
}
