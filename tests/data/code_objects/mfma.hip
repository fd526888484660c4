// A product of two tiles by matrix instructions, accumulated in AGPRs.
#define KERNEL extern "C" __attribute__((global))
typedef float float16 __attribute__((ext_vector_type(16)));
typedef _Float16 half4 __attribute__((ext_vector_type(4)));

KERNEL __attribute__((amdgpu_flat_work_group_size(64, 64))) void product(float *out, const half4 *a, const half4 *b) {
  int lane = __builtin_amdgcn_workitem_id_x();
  float16 sum = {};
  for (int k = 0; k < 8; ++k)
    sum = __builtin_amdgcn_mfma_f32_32x32x8f16(a[k * 64 + lane], b[k * 64 + lane], sum, 0, 0, 0);
  asm volatile("" : "+a"(sum));
  for (int i = 0; i < 16; ++i)
    out[i * 64 + lane] = sum[i];
}
