// y += a x; one kernel, no headers. NAME, LDS_FLOATS, ADD, THREADS and BUDGET make the variants that the tests compile.
#define KERNEL extern "C" __attribute__((global))
#ifndef NAME
#define NAME saxpy
#endif
#ifndef THREADS
#define THREADS 256
#endif
#ifndef BUDGET
#define BUDGET
#endif

KERNEL __attribute__((amdgpu_flat_work_group_size(1, THREADS))) BUDGET void NAME(float *y, const float *x, float a,
                                                                                 int n) {
  int i = __builtin_amdgcn_workgroup_id_x() * THREADS + __builtin_amdgcn_workitem_id_x();
#ifdef LDS_FLOATS
  __attribute__((shared)) static float tile[LDS_FLOATS];
  tile[__builtin_amdgcn_workitem_id_x()] = x[i];
  __builtin_amdgcn_s_barrier();
  y[i] = tile[LDS_FLOATS - 1 - __builtin_amdgcn_workitem_id_x()];
#endif
  if (i < n)
    y[i] += a * x[i];
#ifdef ADD
  else
    y[i] = a + x[i] * x[i];
#endif
}
