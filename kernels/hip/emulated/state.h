// What the parts of the emulator's runtime share: the launch as Python describes it, the threads of the block that is
// running, and how a thread ends everything with an error. No header of a C library is needed.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" {
int vsnprintf(char* text, unsigned long bytes, const char* format, __builtin_va_list values);
void* mmap(void* at, unsigned long bytes, int protection, int flags, int file, long offset);
int munmap(void* at, unsigned long bytes);
int mprotect(void* at, unsigned long bytes, int protection);
void* realloc(void* old, unsigned long bytes);
int strcmp(const char* a, const char* b);

// Defined by the linker: the image, and the section of LDS variables (absent where a kernel has none).
extern char __ehdr_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));
extern char __start_emulated_lds[] __attribute__((weak, visibility("hidden")));
extern char __stop_emulated_lds[] __attribute__((weak, visibility("hidden")));
}

// A tensor, or several that overlap. Python's ctypes structures of the same names mirror these three.
struct Region {
    u8* memory;
    u64 bytes;
    u32 writable;
    u32 unused;
    const char* name;
};

// region < 0: `value` is an integer; else `value` is the offset in bytes within that region.
struct Argument {
    long long value;
    long long region;
};

// One access of one thread to LDS, as recorded on request.
struct LdsAccess {
    u32 block;
    u32 thread;
    u32 place;   // of the call, as an offset in the image
    u32 offset;  // in the LDS variables, or in dynamic LDS
    u32 bytes;
    u32 writes;
};

struct Launch {
    int grid[3];
    int threads;
    int wave;
    int lds_bytes;
    int order;  // 0 forward, 1 reverse, 2 shuffled by `seed`
    u32 seed;
    int checked;
    int region_count;
    int argument_count;
    int unused;
    const Region* regions;
    const Argument* arguments;
    int (*same_place)(u64 one, u64 other);  // whether two places of the image are one position in the source
    u64 places[3];                          // out: offsets in the image, 0 for none
    LdsAccess* lds_accesses;                // out: the first `lds_room` accesses, if checked; null for none
    u64 lds_room;
    u64 lds_count;                          // out: of all accesses
    u64 traffic_bytes;                      // out: of tensors, read and written, summed over threads, if checked
    char message[1024];                     // out
};

enum Waiting { RUNNABLE, AT_WAVE, AT_BLOCK, RETURNED };

struct Place {
    const char* kind;
    void (*complete)(int first, int count);  // what a wave does once all lanes are there
    const char* file;
    int line;
    const void* address;
};

struct PendingCopy {
    u8* lds;
    const u8* global;  // null: zeros
    int next;
};

struct Thread {
    void* stack_pointer;
    Waiting waiting;
    Place place;
    void* operand;  // of the collective it waits in
    int first_copy;
    int last_copy;
};

constexpr int MAX_THREADS = 1024;
constexpr u64 STACK_BYTES = 512 * 1024;
constexpr u64 GUARD_BYTES = 4096;

// Everything about the launch that is running; one at a time, which Python ensures.
struct State {
    Launch* launch;
    int block[3];
    u32 block_number;  // from 1
    Thread threads[MAX_THREADS];
    int current;
    void* scheduler_stack;
    bool failed;
    u8* stacks;
    u64 stack_bytes;
    u8* dynamic_lds;
    long argument_values[32];
    u32 random;
    PendingCopy* copies;
    int copy_count;
    int copy_room;
};

static State state;

static int wave_of(int thread) { return thread / state.launch->wave; }

// Null where there is none.
static void* map_memory(u64 bytes) {
    constexpr int READ_WRITE = 3, PRIVATE_ANONYMOUS_NORESERVE = 0x2 | 0x20 | 0x4000;
    void* found = mmap(nullptr, bytes, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, -1, 0);
    return found == reinterpret_cast<void*>(-1) ? nullptr : found;
}
static void unmap_memory(void* at, u64 bytes) {
    if (at) munmap(at, bytes);
}

// Ends the launch with a message. It is about the first place; @1 in it stands for the second.
__attribute__((format(printf, 3, 4))) static void report(const void* first, const void* second, const char* format,
                                                         ...) {
    Launch& launch = *state.launch;
    state.failed = true;
    launch.places[0] = u64(static_cast<const char*>(first) - __ehdr_start);
    launch.places[1] = second ? u64(static_cast<const char*>(second) - __ehdr_start) : 0;
    __builtin_va_list values;
    __builtin_va_start(values, format);
    vsnprintf(launch.message, sizeof(launch.message), format, values);
    __builtin_va_end(values);
}

// Leaves the running thread for good: the launch ends.
[[noreturn]] static void leave();

#define CALLER __builtin_return_address(0)
