	.amdgcn_target "amdgcn-amd-amdhsa--gfx90a"
	.amdhsa_code_object_version 6
	.text
	.protected	tile                    ; -- Begin function tile
	.globl	tile
	.p2align	8
	.type	tile,@function
tile:                                   ; @tile
.Lfunc_begin0:
	.file	0 "/src" "tile.hip" md5 0xfdca7bcb6d3ed598acfe53d3a386e767
	.cfi_sections .debug_frame
	.cfi_startproc
; %bb.0:
	.loc	0 19 14 prologue_end            ; tile.hip:19:14
	s_load_dwordx2 s[2:3], s[4:5], 0x18
	.loc	0 20 25                         ; tile.hip:20:25
	s_waitcnt lgkmcnt(0)
	s_cmp_lt_i32 s2, 1
	.loc	0 20 3 is_stmt 0                ; tile.hip:20:3
	s_cbranch_scc1 .LBB0_7
; %bb.1:
	.loc	0 19 14 is_stmt 1               ; tile.hip:19:14
	s_load_dwordx4 s[8:11], s[4:5], 0x0
	s_load_dwordx2 s[6:7], s[4:5], 0x10
	s_cmp_gt_i32 s3, 0
	v_lshlrev_b32_e32 v1, 3, v0
	s_cselect_b64 s[0:1], -1, 0
	.loc	0 20 3                          ; tile.hip:20:3
	s_waitcnt lgkmcnt(0)
	v_mov_b32_e32 v2, s11
	v_add_co_u32_e32 v8, vcc, s10, v1
	v_addc_co_u32_e32 v9, vcc, 0, v2, vcc
	v_cndmask_b32_e64 v2, 0, 1, s[0:1]
	s_mov_b32 s4, 0
	v_sub_u32_e32 v14, 0, v1
	v_mov_b32_e32 v7, 0
	v_cmp_ne_u32_e64 s[0:1], 1, v2
	v_mov_b32_e32 v15, s7
	s_branch .LBB0_4
.LBB0_2:                                ;   in Loop: Header=BB0_4 Depth=1
	.loc	0 0 3 is_stmt 0                 ; tile.hip:0:3
	v_mov_b32_e32 v5, 0
	v_mov_b32_e32 v4, 0
	v_mov_b32_e32 v3, 0
	v_mov_b32_e32 v2, 0
.LBB0_3:                                ;   in Loop: Header=BB0_4 Depth=1
	.loc	0 30 5 is_stmt 1                ; tile.hip:30:5
	v_lshlrev_b64 v[10:11], 4, v[6:7]
	v_add_co_u32_e32 v10, vcc, s6, v10
	.loc	0 20 36                         ; tile.hip:20:36
	s_add_i32 s4, s4, 1
	.loc	0 30 5                          ; tile.hip:30:5
	v_addc_co_u32_e32 v11, vcc, v15, v11, vcc
	.loc	0 20 25                         ; tile.hip:20:25
	s_cmp_eq_u32 s4, s2
	.loc	0 30 24                         ; tile.hip:30:24
	s_nop 3
	global_store_dwordx4 v[10:11], v[2:5], off
	.loc	0 20 3                          ; tile.hip:20:3
	s_cbranch_scc1 .LBB0_7
.LBB0_4:                                ; =>This Loop Header: Depth=1
                                        ;     Child Loop BB0_6 Depth 2
	.loc	0 23 5                          ; tile.hip:23:5
	s_and_b64 vcc, exec, s[0:1]
	v_lshl_add_u32 v6, s4, 6, v0
	s_cbranch_vccnz .LBB0_2
; %bb.5:                                ;   in Loop: Header=BB0_4 Depth=1
	.loc	0 0 5 is_stmt 0                 ; tile.hip:0:5
	v_lshlrev_b64 v[2:3], 3, v[6:7]
	v_mov_b32_e32 v4, s9
	v_add_co_u32_e32 v10, vcc, s8, v2
	v_addc_co_u32_e32 v11, vcc, v4, v3, vcc
	.loc	0 24 26 is_stmt 1               ; tile.hip:24:26
	v_mov_b32_e32 v2, 0
	v_mov_b32_e32 v3, 0
	v_mov_b32_e32 v4, 0
	v_mov_b32_e32 v5, 0
	s_mov_b32 s5, s3
	v_pk_mov_b32 v[12:13], v[8:9], v[8:9] op_sel:[0,1]
.LBB0_6:                                ;   Parent Loop BB0_4 Depth=1
                                        ; =>  This Inner Loop Header: Depth=2
	.loc	0 24 20                         ; tile.hip:24:20
	global_load_dwordx2 v[16:17], v[12:13], off
	.loc	0 23 27                         ; tile.hip:23:27
	v_add_co_u32_e32 v12, vcc, 0x200, v12
	s_add_i32 s5, s5, -1
	v_addc_co_u32_e32 v13, vcc, 0, v13, vcc
	s_cmp_eq_u32 s5, 0
	.loc	0 24 18                         ; tile.hip:24:18
	s_waitcnt vmcnt(0)
	ds_write_b64 v1, v[16:17]
	.loc	0 25 7                          ; tile.hip:25:7
	s_waitcnt lgkmcnt(0)
	.loc	0 26 7                          ; tile.hip:26:7
	s_barrier
	.loc	0 27 22                         ; tile.hip:27:22
	global_load_dwordx2 v[16:17], v[10:11], off
	.loc	0 27 42 is_stmt 0               ; tile.hip:27:42
	ds_read_b64 v[18:19], v14 offset:504
	.loc	0 28 7 is_stmt 1                ; tile.hip:28:7
	s_barrier
	.loc	0 27 13                         ; tile.hip:27:13
	s_waitcnt vmcnt(0) lgkmcnt(0)
	v_mfma_f32_16x16x16f16 v[2:5], v[16:17], v[18:19], v[2:5]
	.loc	0 23 5                          ; tile.hip:23:5
	s_cbranch_scc0 .LBB0_6
	s_branch .LBB0_3
.LBB0_7:
	.loc	0 32 1                          ; tile.hip:32:1
	s_endpgm
.Ltmp0:
	.section	.rodata,"a",@progbits
	.p2align	6, 0x0
	.amdhsa_kernel tile
		.amdhsa_group_segment_fixed_size 512
		.amdhsa_private_segment_fixed_size 0
		.amdhsa_kernarg_size 32
		.amdhsa_user_sgpr_count 6
		.amdhsa_user_sgpr_private_segment_buffer 1
		.amdhsa_user_sgpr_dispatch_ptr 0
		.amdhsa_user_sgpr_queue_ptr 0
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_dispatch_id 0
		.amdhsa_user_sgpr_flat_scratch_init 0
		.amdhsa_user_sgpr_kernarg_preload_length 0
		.amdhsa_user_sgpr_kernarg_preload_offset 0
		.amdhsa_user_sgpr_private_segment_size 0
		.amdhsa_uses_dynamic_stack 0
		.amdhsa_system_sgpr_private_segment_wavefront_offset 0
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_system_sgpr_workgroup_id_y 0
		.amdhsa_system_sgpr_workgroup_id_z 0
		.amdhsa_system_sgpr_workgroup_info 0
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 20
		.amdhsa_next_free_sgpr 12
		.amdhsa_accum_offset 20
		.amdhsa_reserve_vcc 1
		.amdhsa_reserve_flat_scratch 0
		.amdhsa_float_round_mode_32 0
		.amdhsa_float_round_mode_16_64 0
		.amdhsa_float_denorm_mode_32 3
		.amdhsa_float_denorm_mode_16_64 3
		.amdhsa_dx10_clamp 1
		.amdhsa_ieee_mode 1
		.amdhsa_fp16_overflow 0
		.amdhsa_tg_split 0
		.amdhsa_exception_fp_ieee_invalid_op 0
		.amdhsa_exception_fp_denorm_src 0
		.amdhsa_exception_fp_ieee_div_zero 0
		.amdhsa_exception_fp_ieee_overflow 0
		.amdhsa_exception_fp_ieee_underflow 0
		.amdhsa_exception_fp_ieee_inexact 0
		.amdhsa_exception_int_div_zero 0
	.end_amdhsa_kernel
	.text
.Lfunc_end0:
	.size	tile, .Lfunc_end0-tile
	.cfi_endproc
                                        ; -- End function
	.set tile.num_vgpr, 20
	.set tile.num_agpr, 0
	.set tile.numbered_sgpr, 12
	.set tile.num_named_barrier, 0
	.set tile.private_seg_size, 0
	.set tile.uses_vcc, 1
	.set tile.uses_flat_scratch, 0
	.set tile.has_dyn_sized_stack, 0
	.set tile.has_recursion, 0
	.set tile.has_indirect_call, 0
	.section	.AMDGPU.csdata,"",@progbits
; Kernel info:
; codeLenInByte = 312
; TotalNumSgprs: 16
; NumVgprs: 20
; NumAgprs: 0
; TotalNumVgprs: 20
; ScratchSize: 0
; MemoryBound: 0
; FloatMode: 240
; IeeeMode: 1
; LDSByteSize: 512 bytes/workgroup (compile time only)
; SGPRBlocks: 1
; VGPRBlocks: 2
; NumSGPRsForWavesPerEU: 16
; NumVGPRsForWavesPerEU: 20
; AccumOffset: 20
; Occupancy: 8
; WaveLimiterHint : 0
; COMPUTE_PGM_RSRC2:SCRATCH_EN: 0
; COMPUTE_PGM_RSRC2:USER_SGPR: 6
; COMPUTE_PGM_RSRC2:TRAP_HANDLER: 0
; COMPUTE_PGM_RSRC2:TGID_X_EN: 1
; COMPUTE_PGM_RSRC2:TGID_Y_EN: 0
; COMPUTE_PGM_RSRC2:TGID_Z_EN: 0
; COMPUTE_PGM_RSRC2:TIDIG_COMP_CNT: 0
; COMPUTE_PGM_RSRC3_GFX90A:ACCUM_OFFSET: 4
; COMPUTE_PGM_RSRC3_GFX90A:TG_SPLIT: 0
	.text
	.protected	spill                   ; -- Begin function spill
	.globl	spill
	.p2align	8
	.type	spill,@function
spill:                                  ; @spill
.Lfunc_begin1:
	.loc	0 34 0                          ; tile.hip:34:0
	.cfi_startproc
; %bb.0:
	s_mov_b64 s[10:11], s[2:3]
	s_mov_b64 s[8:9], s[0:1]
.Ltmp1:
	.loc	0 36 14 prologue_end            ; tile.hip:36:14
	s_load_dwordx4 s[0:3], s[4:5], 0x0
	.loc	0 38 42                         ; tile.hip:38:42
	v_lshlrev_b32_e32 v3, 2, v0
	s_movk_i32 s5, 0x1000
	s_movk_i32 s6, 0x2000
	s_add_u32 s8, s8, s7
	s_waitcnt lgkmcnt(0)
	v_mov_b32_e32 v0, s3
	v_add_co_u32_e32 v2, vcc, s2, v3
	v_addc_co_u32_e32 v8, vcc, 0, v0, vcc
	v_add_co_u32_e32 v0, vcc, s5, v2
	v_addc_co_u32_e32 v1, vcc, 0, v8, vcc
	v_add_co_u32_e32 v6, vcc, s6, v2
	v_addc_co_u32_e32 v7, vcc, 0, v8, vcc
	global_load_dword v4, v[6:7], off offset:-4096
	s_addc_u32 s9, s9, 0
	s_movk_i32 s4, 0x3000
	v_add_co_u32_e32 v14, vcc, s4, v2
	v_addc_co_u32_e32 v15, vcc, 0, v8, vcc
	global_load_dword v42, v[14:15], off offset:1536
	global_load_dword v34, v[14:15], off offset:1792
	global_load_dword v44, v[6:7], off offset:1280
	global_load_dword v27, v[6:7], off offset:1536
	global_load_dword v45, v[6:7], off offset:1792
	global_load_dword v25, v[6:7], off offset:2048
	global_load_dword v11, v[6:7], off offset:2304
	global_load_dword v22, v[6:7], off offset:2560
	global_load_dword v10, v[6:7], off offset:2816
	global_load_dword v39, v[6:7], off offset:3072
	global_load_dword v36, v[6:7], off offset:3328
	global_load_dword v5, v[6:7], off offset:3584
	global_load_dword v23, v[6:7], off offset:3840
	global_load_dword v41, v3, s[2:3] offset:3840
	global_load_dword v9, v3, s[2:3] offset:2816
	.loc	0 41 32                         ; tile.hip:41:32
	v_add_co_u32_e32 v8, vcc, s0, v3
	.loc	0 38 42                         ; tile.hip:38:42
	global_load_dword v46, v3, s[2:3] offset:2048
	s_waitcnt vmcnt(16)
	buffer_store_dword v4, off, s[8:11], 0 offset:20 ; 4-byte Folded Spill
	global_load_dword v13, v[0:1], off offset:256
	global_load_dword v35, v[0:1], off offset:512
	global_load_dword v31, v[0:1], off offset:768
	global_load_dword v18, v[0:1], off offset:1024
	global_load_dword v29, v[0:1], off offset:1280
	global_load_dword v21, v[0:1], off offset:1536
	global_load_dword v4, v[0:1], off offset:1792
	s_waitcnt vmcnt(22)
	buffer_store_dword v34, off, s[8:11], 0 offset:108 ; 4-byte Folded Spill
	s_waitcnt vmcnt(10)
	buffer_store_dword v9, off, s[8:11], 0 offset:124 ; 4-byte Folded Spill
	.loc	0 41 76                         ; tile.hip:41:76
	s_waitcnt vmcnt(8)
	v_fma_f32 v34, v13, v5, v34
	.loc	0 38 42                         ; tile.hip:38:42
	s_waitcnt vmcnt(2)
	buffer_store_dword v4, off, s[8:11], 0 offset:68 ; 4-byte Folded Spill
	global_load_dword v28, v[0:1], off offset:2048
	global_load_dword v16, v[6:7], off
	global_load_dword v26, v[6:7], off offset:256
	s_nop 0
	global_load_dword v4, v[6:7], off offset:512
	s_waitcnt vmcnt(0)
	buffer_store_dword v4, off, s[8:11], 0 offset:44 ; 4-byte Folded Spill
	global_load_dword v4, v[6:7], off offset:768
	s_waitcnt vmcnt(0)
	buffer_store_dword v4, off, s[8:11], 0 offset:48 ; 4-byte Folded Spill
	global_load_dword v4, v[6:7], off offset:1024
	s_nop 0
	global_load_dword v7, v3, s[2:3] offset:3072
	s_waitcnt vmcnt(1)
	buffer_store_dword v4, off, s[8:11], 0  ; 4-byte Folded Spill
	global_load_dword v40, v[0:1], off offset:2304
	global_load_dword v30, v[0:1], off offset:2560
	s_nop 0
	global_load_dword v4, v[0:1], off offset:2816
	global_load_dword v24, v[0:1], off offset:3072
	global_load_dword v19, v[0:1], off offset:3328
	global_load_dword v32, v[0:1], off offset:3584
	global_load_dword v20, v[0:1], off offset:3840
	s_nop 0
	global_load_dword v0, v[14:15], off
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:76 ; 4-byte Folded Spill
	global_load_dword v0, v[14:15], off offset:256
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:4 ; 4-byte Folded Spill
	global_load_dword v0, v[14:15], off offset:512
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:24 ; 4-byte Folded Spill
	global_load_dword v38, v[14:15], off offset:768
	s_nop 0
	global_load_dword v0, v[14:15], off offset:1024
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:28 ; 4-byte Folded Spill
	global_load_dword v0, v[14:15], off offset:1280
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:60 ; 4-byte Folded Spill
	global_load_dword v0, v[14:15], off offset:2048
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:8 ; 4-byte Folded Spill
	global_load_dword v47, v[14:15], off offset:2304
	s_nop 0
	global_load_dword v0, v[14:15], off offset:2560
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:12 ; 4-byte Folded Spill
	global_load_dword v0, v[14:15], off offset:2816
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:40 ; 4-byte Folded Spill
	global_load_dword v0, v[14:15], off offset:3072
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:80 ; 4-byte Folded Spill
	global_load_dword v17, v[14:15], off offset:3328
	global_load_dword v37, v[14:15], off offset:3584
	s_nop 0
	global_load_dword v0, v[14:15], off offset:3840
	v_mov_b32_e32 v15, v24
	global_load_dword v14, v3, s[2:3] offset:1280
	s_waitcnt vmcnt(1)
	buffer_store_dword v0, off, s[8:11], 0 offset:36 ; 4-byte Folded Spill
	global_load_dword v0, v3, s[2:3] offset:1536
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:32 ; 4-byte Folded Spill
	global_load_dword v0, v3, s[2:3] offset:1792
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:52 ; 4-byte Folded Spill
	global_load_dword v12, v3, s[2:3] offset:1024
	s_nop 0
	global_load_dword v0, v3, s[2:3] offset:3328
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:16 ; 4-byte Folded Spill
	global_load_dword v0, v3, s[2:3] offset:3584
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:56 ; 4-byte Folded Spill
	global_load_dword v0, v3, s[2:3] offset:768
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:100 ; 4-byte Folded Spill
	global_load_dword v0, v3, s[2:3] offset:2560
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:96 ; 4-byte Folded Spill
	global_load_dword v0, v3, s[2:3] offset:512
	s_nop 0
	buffer_store_dword v7, off, s[8:11], 0 offset:104 ; 4-byte Folded Spill
	s_waitcnt vmcnt(1)
	buffer_store_dword v0, off, s[8:11], 0 offset:88 ; 4-byte Folded Spill
	global_load_dword v0, v3, s[2:3] offset:2304
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:84 ; 4-byte Folded Spill
	global_load_dword v0, v3, s[2:3]
	s_nop 0
	buffer_store_dword v14, off, s[8:11], 0 offset:120 ; 4-byte Folded Spill
	s_waitcnt vmcnt(1)
	buffer_store_dword v0, off, s[8:11], 0 offset:72 ; 4-byte Folded Spill
	global_load_dword v0, v3, s[2:3] offset:256
	s_waitcnt vmcnt(0)
	buffer_store_dword v0, off, s[8:11], 0 offset:64 ; 4-byte Folded Spill
	.loc	0 41 32                         ; tile.hip:41:32
	v_mov_b32_e32 v0, s1
	v_addc_co_u32_e32 v6, vcc, 0, v0, vcc
	.loc	0 39 3                          ; tile.hip:39:3
	s_barrier
	.loc	0 41 51                         ; tile.hip:41:51
	v_add_co_u32_e32 v0, vcc, s5, v8
	buffer_load_dword v33, off, s[8:11], 0 offset:68 ; 4-byte Folded Reload
	buffer_load_dword v43, off, s[8:11], 0 offset:48 ; 4-byte Folded Reload
	buffer_load_dword v2, off, s[8:11], 0 offset:44 ; 4-byte Folded Reload
	v_addc_co_u32_e32 v1, vcc, 0, v6, vcc
	global_store_dword v[0:1], v34, off offset:256
	.loc	0 41 76 is_stmt 0               ; tile.hip:41:76
	v_fma_f32 v34, v35, v36, v37
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:512
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v34, v31, v39, v14
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:768
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v34, v18, v10, v7
	v_mov_b32_e32 v7, v21
	v_mov_b32_e32 v21, v4
	buffer_load_dword v4, off, s[8:11], 0   ; 4-byte Folded Reload
	v_mov_b32_e32 v14, v29
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:1024
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v34, v14, v22, v31
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:1280
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v34, v7, v11, v30
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:1536
	v_mov_b32_e32 v29, v22
	v_mov_b32_e32 v22, v17
	buffer_store_dword v8, off, s[8:11], 0 offset:116 ; 4-byte Folded Spill
	buffer_store_dword v6, off, s[8:11], 0 offset:112 ; 4-byte Folded Spill
	buffer_load_dword v24, off, s[8:11], 0 offset:76 ; 4-byte Folded Reload
	buffer_load_dword v17, off, s[8:11], 0 offset:20 ; 4-byte Folded Reload
	.loc	0 41 76                         ; tile.hip:41:76
	s_waitcnt vmcnt(13)
	v_fma_f32 v34, v33, v25, v26
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:1792
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v34, v28, v45, v25
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:2048
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v34, v40, v27, v23
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:2304
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v34, v30, v44, v42
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:2560
	.loc	0 41 76                         ; tile.hip:41:76
	buffer_store_dword v19, off, s[8:11], 0 offset:92 ; 4-byte Folded Spill
	s_waitcnt vmcnt(12)
	v_fma_f32 v34, v21, v4, v22
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:2816
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v34, v15, v43, v12
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:3072
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v34, v19, v2, v9
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:3328
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v34, v32, v26, v35
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:3584
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v34, v20, v16, v40
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:3840
	v_add_co_u32_e32 v0, vcc, s6, v8
	buffer_load_dword v8, off, s[8:11], 0 offset:60 ; 4-byte Folded Reload
	v_addc_co_u32_e32 v1, vcc, 0, v6, vcc
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v9, v32, v26, v45
	v_fmac_f32_e32 v16, v20, v16
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v9, off offset:256
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v9, v19, v2, v5
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v16, off
	global_store_dword v[0:1], v9, off offset:512
	v_mov_b32_e32 v26, v43
	buffer_load_dword v16, off, s[8:11], 0 offset:80 ; 4-byte Folded Reload
	.loc	0 41 76                         ; tile.hip:41:76
	v_fmac_f32_e32 v20, v7, v11
	s_waitcnt vmcnt(15)
	v_fma_f32 v34, v17, v23, v24
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v34, off offset:-4096
	v_mov_b32_e32 v34, v2
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v2, v18, v10, v36
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v20, off offset:2304
	global_store_dword v[0:1], v2, off offset:2816
	v_mov_b32_e32 v19, v37
	buffer_load_dword v20, off, s[8:11], 0 offset:84 ; 4-byte Folded Reload
	.loc	0 41 76                         ; tile.hip:41:76
	s_waitcnt vmcnt(8)
	v_fma_f32 v9, v15, v43, v8
	buffer_load_dword v43, off, s[8:11], 0 offset:100 ; 4-byte Folded Reload
	s_waitcnt vmcnt(0)
	v_fma_f32 v6, v30, v44, v43
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v9, off offset:768
	v_mov_b32_e32 v30, v11
	buffer_load_dword v11, off, s[8:11], 0 offset:56 ; 4-byte Folded Reload
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v9, v21, v4, v16
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v9, off offset:1024
	buffer_load_dword v9, off, s[8:11], 0 offset:96 ; 4-byte Folded Reload
	s_nop 0
	global_store_dword v[0:1], v6, off offset:1280
	buffer_load_dword v4, off, s[8:11], 0 offset:40 ; 4-byte Folded Reload
	.loc	0 41 76                         ; tile.hip:41:76
	s_waitcnt vmcnt(2)
	v_fma_f32 v6, v40, v27, v9
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v6, off offset:1536
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v6, v28, v45, v13
	v_fmac_f32_e32 v28, v33, v25
	buffer_load_dword v25, off, s[8:11], 0 offset:28 ; 4-byte Folded Reload
	v_mov_b32_e32 v40, v7
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v6, off offset:1792
	v_mov_b32_e32 v6, v22
	buffer_load_dword v7, off, s[8:11], 0 offset:104 ; 4-byte Folded Reload
	buffer_load_dword v22, off, s[8:11], 0 offset:24 ; 4-byte Folded Reload
	.loc	0 41 76                         ; tile.hip:41:76
	v_fmac_f32_e32 v27, v14, v29
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v28, off offset:2048
	global_store_dword v[0:1], v27, off offset:2560
	v_mov_b32_e32 v27, v10
	buffer_load_dword v10, off, s[8:11], 0 offset:120 ; 4-byte Folded Reload
	buffer_load_dword v28, off, s[8:11], 0 offset:12 ; 4-byte Folded Reload
	.loc	0 41 76                         ; tile.hip:41:76
	s_waitcnt vmcnt(7)
	v_fma_f32 v2, v31, v39, v25
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v2, off offset:3072
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v2, v35, v36, v4
	buffer_load_dword v35, off, s[8:11], 0 offset:88 ; 4-byte Folded Reload
	buffer_load_dword v36, off, s[8:11], 0 offset:52 ; 4-byte Folded Reload
	buffer_load_dword v37, off, s[8:11], 0 offset:64 ; 4-byte Folded Reload
	s_waitcnt vmcnt(9)
	v_fmac_f32_e32 v44, v7, v38
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v2, off offset:3328
	.loc	0 41 76                         ; tile.hip:41:76
	s_waitcnt vmcnt(3)
	v_fma_f32 v2, v13, v5, v35
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v2, off offset:3584
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v2, v17, v23, v20
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v2, off offset:3840
	buffer_load_dword v1, off, s[8:11], 0 offset:36 ; 4-byte Folded Reload
	s_nop 0
	buffer_load_dword v23, off, s[8:11], 0 offset:72 ; 4-byte Folded Reload
	buffer_load_dword v5, off, s[8:11], 0 offset:32 ; 4-byte Folded Reload
	buffer_load_dword v2, off, s[8:11], 0 offset:8 ; 4-byte Folded Reload
	buffer_load_dword v45, off, s[8:11], 0 offset:4 ; 4-byte Folded Reload
	v_mov_b32_e32 v13, v12
	.loc	0 41 76                         ; tile.hip:41:76
	v_fmac_f32_e32 v17, v41, v24
	s_waitcnt vmcnt(3)
	v_fma_f32 v0, v23, v1, v23
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1]
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v0, v37, v19, v36
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:256
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v0, v35, v6, v11
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:512
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v0, v43, v16, v14
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:768
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v0, v12, v4, v15
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:1024
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v0, v10, v28, v26
	buffer_load_dword v26, off, s[8:11], 0 offset:108 ; 4-byte Folded Reload
	v_mov_b32_e32 v14, v4
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:1280
	.loc	0 41 76                         ; tile.hip:41:76
	s_waitcnt vmcnt(9)
	v_fma_f32 v0, v5, v47, v29
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:1536
	.loc	0 41 76                         ; tile.hip:41:76
	s_waitcnt vmcnt(8)
	v_fma_f32 v0, v36, v2, v45
	v_mov_b32_e32 v4, v36
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:1792
	v_mov_b32_e32 v36, v2
	v_mov_b32_e32 v12, v5
	.loc	0 41 76                         ; tile.hip:41:76
	v_fmac_f32_e32 v33, v11, v45
	s_waitcnt vmcnt(3)
	v_fma_f32 v0, v46, v26, v2
	v_mov_b32_e32 v2, v42
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:2048
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v0, v20, v2, v1
	v_mov_b32_e32 v42, v1
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:2304
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v0, v9, v8, v5
	v_mov_b32_e32 v5, v8
	buffer_load_dword v8, off, s[8:11], 0 offset:124 ; 4-byte Folded Reload
	buffer_load_dword v1, off, s[8:11], 0 offset:16 ; 4-byte Folded Reload
	s_waitcnt vmcnt(1)
	v_fmac_f32_e32 v39, v8, v25
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:2560
	.loc	0 41 76                         ; tile.hip:41:76
	s_waitcnt vmcnt(1)
	v_fma_f32 v0, v8, v25, v1
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:2816
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v0, v7, v38, v18
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:3072
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v0, v1, v22, v21
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:3328
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v0, v11, v45, v34
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:3584
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v0, v41, v24, v30
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v3, v0, s[0:1] offset:3840
	buffer_load_dword v0, off, s[8:11], 0 offset:116 ; 4-byte Folded Reload
	v_mov_b32_e32 v15, v1
	buffer_load_dword v1, off, s[8:11], 0 offset:112 ; 4-byte Folded Reload
	v_mov_b32_e32 v3, v28
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v2, v20, v2, v3
	v_fmac_f32_e32 v32, v15, v22
	v_fmac_f32_e32 v38, v9, v5
	v_fmac_f32_e32 v41, v12, v47
	v_fmac_f32_e32 v47, v23, v42
	.loc	0 41 51                         ; tile.hip:41:51
	s_waitcnt vmcnt(1)
	v_add_co_u32_e32 v0, vcc, s4, v0
	s_waitcnt vmcnt(0)
	v_addc_co_u32_e32 v1, vcc, 0, v1, vcc
	global_store_dword v[0:1], v2, off offset:1536
	.loc	0 41 76                         ; tile.hip:41:76
	v_fma_f32 v2, v46, v26, v37
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v2, off offset:1792
	v_mov_b32_e32 v2, v40
	.loc	0 41 76                         ; tile.hip:41:76
	v_fmac_f32_e32 v2, v10, v3
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v2, off offset:2560
	buffer_load_dword v2, off, s[8:11], 0 offset:92 ; 4-byte Folded Reload
	.loc	0 41 76                         ; tile.hip:41:76
	v_fmac_f32_e32 v46, v4, v36
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v17, off
	global_store_dword v[0:1], v33, off offset:256
	global_store_dword v[0:1], v32, off offset:512
	global_store_dword v[0:1], v44, off offset:768
	global_store_dword v[0:1], v39, off offset:1024
	global_store_dword v[0:1], v38, off offset:1280
	global_store_dword v[0:1], v46, off offset:2048
	global_store_dword v[0:1], v41, off offset:2304
	global_store_dword v[0:1], v47, off offset:3840
	.loc	0 41 76                         ; tile.hip:41:76
	s_waitcnt vmcnt(9)
	v_fmac_f32_e32 v2, v13, v14
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v2, off offset:2816
	buffer_load_dword v2, off, s[8:11], 0   ; 4-byte Folded Reload
	.loc	0 41 76                         ; tile.hip:41:76
	s_waitcnt vmcnt(0)
	v_fmac_f32_e32 v2, v43, v16
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v2, off offset:3072
	v_mov_b32_e32 v2, v27
	.loc	0 41 76                         ; tile.hip:41:76
	v_fmac_f32_e32 v2, v35, v6
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v2, off offset:3328
	v_mov_b32_e32 v2, v22
	.loc	0 41 76                         ; tile.hip:41:76
	v_fmac_f32_e32 v2, v37, v19
	.loc	0 41 51                         ; tile.hip:41:51
	global_store_dword v[0:1], v2, off offset:3584
	.loc	0 42 1 is_stmt 1                ; tile.hip:42:1
	s_endpgm
.Ltmp2:
	.section	.rodata,"a",@progbits
	.p2align	6, 0x0
	.amdhsa_kernel spill
		.amdhsa_group_segment_fixed_size 0
		.amdhsa_private_segment_fixed_size 132
		.amdhsa_kernarg_size 16
		.amdhsa_user_sgpr_count 6
		.amdhsa_user_sgpr_private_segment_buffer 1
		.amdhsa_user_sgpr_dispatch_ptr 0
		.amdhsa_user_sgpr_queue_ptr 0
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_dispatch_id 0
		.amdhsa_user_sgpr_flat_scratch_init 0
		.amdhsa_user_sgpr_kernarg_preload_length 0
		.amdhsa_user_sgpr_kernarg_preload_offset 0
		.amdhsa_user_sgpr_private_segment_size 0
		.amdhsa_uses_dynamic_stack 0
		.amdhsa_system_sgpr_private_segment_wavefront_offset 1
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_system_sgpr_workgroup_id_y 0
		.amdhsa_system_sgpr_workgroup_id_z 0
		.amdhsa_system_sgpr_workgroup_info 0
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 48
		.amdhsa_next_free_sgpr 12
		.amdhsa_accum_offset 48
		.amdhsa_reserve_vcc 1
		.amdhsa_reserve_flat_scratch 0
		.amdhsa_float_round_mode_32 0
		.amdhsa_float_round_mode_16_64 0
		.amdhsa_float_denorm_mode_32 3
		.amdhsa_float_denorm_mode_16_64 3
		.amdhsa_dx10_clamp 1
		.amdhsa_ieee_mode 1
		.amdhsa_fp16_overflow 0
		.amdhsa_tg_split 0
		.amdhsa_exception_fp_ieee_invalid_op 0
		.amdhsa_exception_fp_denorm_src 0
		.amdhsa_exception_fp_ieee_div_zero 0
		.amdhsa_exception_fp_ieee_overflow 0
		.amdhsa_exception_fp_ieee_underflow 0
		.amdhsa_exception_fp_ieee_inexact 0
		.amdhsa_exception_int_div_zero 0
	.end_amdhsa_kernel
	.text
.Lfunc_end1:
