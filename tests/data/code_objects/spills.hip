// Holds 64 values across a barrier in 24 VGPRs: the rest is spilled to scratch memory.
#define KERNEL extern "C" __attribute__((global))

KERNEL __attribute__((amdgpu_flat_work_group_size(1, 64), amdgpu_num_vgpr(24))) void hold(float *out, const float *in) {
  int lane = __builtin_amdgcn_workitem_id_x();
  float value[64];
#pragma unroll
  for (int i = 0; i < 64; ++i)
    value[i] = in[i * 64 + lane];
  __builtin_amdgcn_s_barrier();
#pragma unroll
  for (int i = 0; i < 64; ++i)
    out[i * 64 + lane] = value[i] * value[63 - i];
}
