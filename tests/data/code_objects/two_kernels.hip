// Two kernels that share a function and a table, which they reach by their distance from the program counter.
#define KERNEL extern "C" __attribute__((global))
#ifndef FIRST
#define FIRST first
#endif
#ifndef ENTRY
#define ENTRY 5
#endif

__attribute__((constant)) static const float table[64] = {1, 2, 3, 4, ENTRY};
__attribute__((device)) float scale = 3.0f;

__attribute__((device, noinline)) static float look_up(float x, int i) { return x * x + table[i & 63]; }
__attribute__((device, noinline)) static float difference(float x, int i) { return x * 3 - table[i & 31]; }

KERNEL __attribute__((amdgpu_flat_work_group_size(1, 64))) void FIRST(float *out, int n) {
  int i = __builtin_amdgcn_workitem_id_x();
  out[i] = i < n ? look_up(out[i], i) * table[i & 63] + scale : difference(out[i], i);
}

KERNEL __attribute__((amdgpu_flat_work_group_size(1, 128))) void second(float *out) {
  out[__builtin_amdgcn_workitem_id_x()] *= 2.0f;
}
