// Reads, computes into LDS, and writes nothing that anybody could see: a kernel whose body was lost.
#define KERNEL extern "C" __attribute__((global))

KERNEL __attribute__((amdgpu_flat_work_group_size(1, 256))) void nothing(float *out, const float *in) {
  __attribute__((shared)) static float tile[288];
  int lane = __builtin_amdgcn_workitem_id_x();
  // The lower half of a generic pointer into LDS is the offset there; a plain store would be a flat one.
  asm volatile("ds_write_b32 %0, %1" ::"v"((unsigned)(__UINTPTR_TYPE__)&tile[lane]), "v"(in[lane]) : "memory");
}
