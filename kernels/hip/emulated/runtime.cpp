// Runs a kernel's blocks one after the other, the threads of a block in turn on one CPU thread: each thread has a stack
// of its own and runs until it waits in a collective or returns. Threads that can never go on are an error, not a hang.
#include "state.h"

#include "memory.h"
#include "wave_operations.h"

extern "C" void emulated_kernel(const long* arguments);

// Saves the registers that a call must keep, exchanges the stacks, and goes on where the other stack was left.
#if defined(__x86_64__)
extern "C" __attribute__((visibility("hidden"))) void emulated_switch(void** saved, void* next);
asm(R"(
.text
.hidden emulated_switch
.globl emulated_switch
emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
#else
#error "the emulator switches stacks on x86-64 only"
#endif

static void wait(Waiting waiting, Place place, void* operand) {
    Thread& thread = state.threads[state.current];
    thread.waiting = waiting;
    thread.place = place;
    thread.operand = operand;
    emulated_switch(&thread.stack_pointer, state.scheduler_stack);
}

[[noreturn]] static void leave() {
    void* abandoned;
    emulated_switch(&abandoned, state.scheduler_stack);
    __builtin_unreachable();
}

static void thread_main() {
    emulated_kernel(state.argument_values);
    state.threads[state.current].waiting = RETURNED;
    leave();
}

static void run(int thread) {
    state.current = thread;
    emulated_switch(&state.scheduler_stack, state.threads[thread].stack_pointer);
}

static void start(int index) {
    u8* top = state.stacks + (index + 1) * STACK_BYTES;
    // Six registers, the address that the switch returns to, and one word so that the stack is aligned as after a call.
    void** words = reinterpret_cast<void**>(top) - 8;
    for (int i = 0; i < 8; i++) words[i] = nullptr;
    words[6] = reinterpret_cast<void*>(thread_main);
    Thread& thread = state.threads[index];
    thread.stack_pointer = words;
    thread.waiting = RUNNABLE;
    thread.first_copy = thread.last_copy = -1;
}

// The order in which `count` things take their turn.
template <class T>
static void fill_turns(T* turns, int count) {
    for (int i = 0; i < count; i++) turns[i] = T(state.launch->order == 1 ? count - 1 - i : i);
    if (state.launch->order != 2) return;
    for (int i = count - 1; i > 0; i--) {
        state.random = state.random * 1664525u + 1013904223u;
        const int other = int((state.random >> 8) % u32(i + 1));
        const T kept = turns[i];
        turns[i] = turns[other];
        turns[other] = kept;
    }
}

// Whether two threads wait in one collective. The same line of gpu.h may be inlined at several places of the kernel:
// then the addresses differ, and the position in the source, with all that it is inlined in, decides.
static bool together(const Thread& a, const Thread& b) {
    if (a.waiting != b.waiting) return false;
    if (a.waiting == RETURNED) return true;
    if (a.place.complete != b.place.complete || a.place.line != b.place.line || strcmp(a.place.file, b.place.file))
        return false;
    if (a.place.address == b.place.address || !state.launch->same_place) return true;
    const char* image = __ehdr_start;
    return state.launch->same_place(u64(static_cast<const char*>(a.place.address) - image),
                                    u64(static_cast<const char*>(b.place.address) - image));
}

static void report_apart(const char* whose, int one, int other) {
    // The one that waits goes first: its line is where the kernel has to be looked at.
    if (state.threads[one].waiting == RETURNED) {
        const int kept = one;
        one = other;
        other = kept;
    }
    const Thread &a = state.threads[one], &b = state.threads[other];
    if (b.waiting == RETURNED)
        report(a.place.address, nullptr, "divergent %s: thread %d waits here, thread %d of the same %s has returned",
               a.place.kind, one, other, whose);
    else
        report(a.place.address, b.place.address,
               "divergent %s: thread %d waits here, thread %d of the same %s waits in %s at @1", a.place.kind, one,
               other, whose, b.place.kind);
}

// Runs the lanes of a wave until every one of them waits at the block's barrier or has returned.
static void run_wave(int first, int count) {
    u16 turns[64];
    while (true) {
        fill_turns(turns, count);
        for (int i = 0; i < count; i++) {
            const int index = first + turns[i];
            if (state.threads[index].waiting == RUNNABLE) run(index);
            if (state.failed) return;
        }
        int waits_in_wave = -1;
        for (int lane = 0; lane < count && waits_in_wave < 0; lane++)
            if (state.threads[first + lane].waiting == AT_WAVE) waits_in_wave = first + lane;
        if (waits_in_wave < 0) return;
        for (int lane = 0; lane < count; lane++)
            if (!together(state.threads[waits_in_wave], state.threads[first + lane]))
                return report_apart("wave", waits_in_wave, first + lane);
        state.threads[waits_in_wave].place.complete(first, count);
        if (state.failed) return;
        for (int lane = 0; lane < count; lane++) state.threads[first + lane].waiting = RUNNABLE;
    }
}

static void run_block() {
    const int threads = state.launch->threads, wave = state.launch->wave, waves = (threads + wave - 1) / wave;
    state.copy_count = 0;
    begin_block_memory();
    for (int i = 0; i < threads; i++) start(i);
    u16 turns[MAX_THREADS];
    while (true) {
        fill_turns(turns, waves);
        for (int i = 0; i < waves; i++) {
            const int first = turns[i] * wave;
            run_wave(first, threads - first < wave ? threads - first : wave);
            if (state.failed) return;
        }
        for (int i = 1; i < threads; i++)
            if (!together(state.threads[0], state.threads[i])) return report_apart("block", 0, i);
        order_block_memory();
        if (state.failed || state.threads[0].waiting == RETURNED) return;
        for (int i = 0; i < threads; i++) state.threads[i].waiting = RUNNABLE;
    }
}

// False where there is no memory for it.
static bool run_grid() {
    const int* grid = state.launch->grid;
    const u32 blocks = u32(grid[0]) * u32(grid[1]) * u32(grid[2]);
    u32* turns = static_cast<u32*>(map_memory(u64(blocks) * sizeof(u32)));
    if (!turns) return false;
    fill_turns(turns, int(blocks));
    for (u32 turn = 0; turn < blocks && !state.failed; turn++) {
        const u32 block = turns[turn];
        state.block_number = block + 1;
        state.block[0] = int(block % u32(grid[0]));
        state.block[1] = int(block / u32(grid[0]) % u32(grid[1]));
        state.block[2] = int(block / u32(grid[0]) / u32(grid[1]));
        run_block();
    }
    unmap_memory(turns, u64(blocks) * sizeof(u32));
    return true;
}

extern "C" {
// 0: done; 1: `message` says what is wrong; 2: no memory.
__attribute__((visibility("default"))) int emulated_launch(Launch* launch) {
    state.launch = launch;
    state.failed = false;
    state.random = launch->seed * 2654435761u + 1u;
    state.stack_bytes = u64(launch->threads) * STACK_BYTES;
    state.stacks = static_cast<u8*>(map_memory(state.stack_bytes));
    if (!state.stacks) return 2;
    // The lowest page of each stack: a kernel that needs more ends here and not in its neighbour's stack.
    for (int i = 0; i < launch->threads; i++) mprotect(state.stacks + i * STACK_BYTES, GUARD_BYTES, 0);
    const bool run = begin_launch_memory() && run_grid();
    report_unwritten();
    end_launch_memory();
    unmap_memory(state.stacks, state.stack_bytes);
    return run ? state.failed : 2;
}

int emulated_thread_index() { return state.current; }
int emulated_block_index(int axis) { return state.block[axis]; }
int emulated_block_count(int axis) { return state.launch->grid[axis]; }
void* emulated_dynamic_lds() { return state.dynamic_lds; }

void emulated_barrier(const char* file, int line) { wait(AT_BLOCK, {"barrier", nullptr, file, line, CALLER}, nullptr); }
void emulated_wave_barrier(const char* file, int line) {
    wait(AT_WAVE, {"wave_barrier", complete_barrier, file, line, CALLER}, nullptr);
}

void emulated_copy_async(u8* lds, const u8* global, bool wanted) {
    check_copy(lds, global, wanted, CALLER);
    if (state.copy_count == state.copy_room) {
        state.copy_room = state.copy_room ? state.copy_room * 2 : 1024;
        state.copies = static_cast<PendingCopy*>(realloc(state.copies, u64(state.copy_room) * sizeof(PendingCopy)));
    }
    const int index = state.copy_count++;
    state.copies[index] = {lds, wanted ? global : nullptr, -1};
    Thread& thread = state.threads[state.current];
    (thread.first_copy < 0 ? thread.first_copy : state.copies[thread.last_copy].next) = index;
    thread.last_copy = index;
}

void emulated_copies_done() {
    Thread& thread = state.threads[state.current];
    for (int i = thread.first_copy; i >= 0; i = state.copies[i].next) finish_copy(state.copies[i]);
    thread.first_copy = thread.last_copy = -1;
}
}
