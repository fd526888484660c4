// An object as assembly authors make them: the function's symbol has no size, the metadata (version 1.0) names no
// target and counts no AGPRs. What the hardware allocates stands in the kernel descriptor only.
    .amdgcn_target "amdgcn-amd-amdhsa--gfx942"
    .text
    .protected by_hand
    .globl by_hand
    .p2align 8
    .type by_hand,@function
by_hand:
    s_nop 0
    s_endpgm

    .rodata
    .p2align 6
    .amdhsa_kernel by_hand
        .amdhsa_next_free_vgpr 384
        .amdhsa_next_free_sgpr 96
        .amdhsa_accum_offset 256
    .end_amdhsa_kernel

    .amdgpu_metadata
---
amdhsa.version: [1, 0]
amdhsa.kernels:
  - .name: by_hand
    .symbol: by_hand.kd
    .vgpr_count: 384
    .sgpr_count: 96
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .max_flat_workgroup_size: 256
    .wavefront_size: 64
    .args:
      - {.size: 8, .offset: 0, .value_kind: by_value}
...
    .end_amdgpu_metadata
