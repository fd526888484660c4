// A tile loop inside a row loop, the way an attention kernel goes through keys; and a kernel that spills.
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef _Float16 half8 __attribute__((ext_vector_type(8)));
typedef float float4v __attribute__((ext_vector_type(4)));
typedef float float8v __attribute__((ext_vector_type(8)));

#if defined(__gfx12__) || defined(__GFX12__)
typedef half8 operand;
typedef float8v accumulator;
#define MULTIPLY(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c)
#else
typedef half4 operand;
typedef float4v accumulator;
#define MULTIPLY(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0)
#endif

extern "C" __attribute__((global)) void tile(const operand* a, const operand* b, accumulator* c, int rows, int keys) {
  __attribute__((shared)) static operand kept[64];
  int lane = __builtin_amdgcn_workitem_id_x();
  for (int row = 0; row < rows; row++) {
    accumulator sum = {};
#pragma unroll 1
    for (int key = 0; key < keys; key++) {
      kept[lane] = b[key * 64 + lane];
      __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
      __builtin_amdgcn_s_barrier();
      sum = MULTIPLY(a[row * 64 + lane], kept[63 - lane], sum);
      __builtin_amdgcn_s_barrier();
    }
    c[row * 64 + lane] = sum;
  }
}

extern "C" __attribute__((global)) __attribute__((amdgpu_num_vgpr(24))) void spill(float* out, const float* in) {
  float held[64];
  int lane = __builtin_amdgcn_workitem_id_x();
#pragma unroll
  for (int i = 0; i < 64; i++) held[i] = in[i * 64 + lane];
  __builtin_amdgcn_s_barrier();
#pragma unroll
  for (int i = 0; i < 64; i++) out[i * 64 + lane] = held[i] * held[63 - i] + held[i * 7 % 64];
}
