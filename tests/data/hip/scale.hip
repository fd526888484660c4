// y = a x + y. Header-free: compiled with -nogpuinc and -nogpulib.
#include "scale.h"

extern "C" __attribute__((global)) void scale_add(float *y, const float *x, float a, int n) {
  __attribute__((shared)) static float tile[LANES];
  int lane = __builtin_amdgcn_workitem_id_x();
  int i = __builtin_amdgcn_workgroup_id_x() * LANES + lane;
  tile[lane] = i < n ? scaled(a, x[i]) : 0.0f;
  __builtin_amdgcn_s_barrier();
  if (i < n) y[i] += tile[lane ^ 1];
}
