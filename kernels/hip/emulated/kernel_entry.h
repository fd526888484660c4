// How the runtime, and Python, reach the one kernel of an object: included behind the kernel's file, with the macro
// EMULATED_KERNEL (its name) and EMULATED_THREADS (what it states in KERNEL(...)).
#pragma once

template <class T>
struct ElementLetter {
    static constexpr char letter = sizeof(T) == 1 ? 'b' : '?';
};
template <>
struct ElementLetter<element> {
    static constexpr char letter = 'e';
};
template <>
struct ElementLetter<float> {
    static constexpr char letter = 'f';
};
template <>
struct ElementLetter<int> {
    static constexpr char letter = 'i';
};
template <>
struct ElementLetter<unsigned> {
    static constexpr char letter = 'i';
};

// The letter of what it points to or is, 256 for a pointer, 512 for one that may be written through.
template <class T>
struct ArgumentCode {
    static_assert(sizeof(T) == 4 && ElementLetter<T>::letter == 'i', "arguments are pointers and 32-bit integers");
    static constexpr int code = 'i';
    static T from(long value) { return T(value); }
};
template <class T>
struct ArgumentCode<const T*> {
    static constexpr int code = ElementLetter<T>::letter | 256;
    static const T* from(long value) { return reinterpret_cast<const T*>(value); }
};
template <class T>
struct ArgumentCode<T*> {
    static constexpr int code = ElementLetter<T>::letter | 256 | 512;
    static T* from(long value) { return reinterpret_cast<T*>(value); }
};

template <class T, T... NUMBERS>
struct Numbers {};

template <class... A>
struct Entry {
    template <int... I>
    __attribute__((disable_sanitizer_instrumentation)) static void call(void (*kernel)(A...), const long* values,
                                                                        Numbers<int, I...>) {
        kernel(ArgumentCode<A>::from(values[I])...);
    }
    static_assert(sizeof...(A) <= 32, "the emulator passes up to 32 arguments");
    static int code(int index) {
        const int codes[] = {ArgumentCode<A>::code..., -1};
        return codes[index];
    }
};

template <class... A>
constexpr Entry<A...> entry_of(void (*)(A...)) {
    return {};
}
template <class... A>
__attribute__((disable_sanitizer_instrumentation)) void call_kernel(void (*kernel)(A...), const long* values) {
    Entry<A...>::call(kernel, values, __make_integer_seq<Numbers, int, sizeof...(A)>{});
}

#define EMULATED_EXPORT extern "C" __attribute__((visibility("default"), disable_sanitizer_instrumentation))

extern "C" __attribute__((disable_sanitizer_instrumentation)) void emulated_kernel(const long* values) {
    call_kernel(EMULATED_KERNEL, values);
}
// -1 behind the last argument.
EMULATED_EXPORT int emulated_argument(int index) { return decltype(entry_of(EMULATED_KERNEL))::code(index); }
EMULATED_EXPORT int emulated_threads() { return EMULATED_THREADS; }
