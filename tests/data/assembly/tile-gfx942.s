	.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
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
	s_load_dwordx2 s[2:3], s[0:1], 0x18
	.loc	0 20 25                         ; tile.hip:20:25
	s_waitcnt lgkmcnt(0)
	s_cmp_lt_i32 s2, 1
	.loc	0 20 3 is_stmt 0                ; tile.hip:20:3
	s_cbranch_scc1 .LBB0_7
; %bb.1:
	.loc	0 19 14 is_stmt 1               ; tile.hip:19:14
	s_load_dwordx4 s[4:7], s[0:1], 0x0
	s_load_dwordx2 s[8:9], s[0:1], 0x10
	s_cmp_gt_i32 s3, 0
	.loc	0 20 3                          ; tile.hip:20:3
	v_mov_b32_e32 v9, 0
	s_cselect_b64 s[0:1], -1, 0
	v_lshlrev_b32_e32 v6, 3, v0
	v_mov_b32_e32 v7, v9
	v_cndmask_b32_e64 v2, 0, 1, s[0:1]
	s_mov_b32 s10, 0
	v_sub_u32_e32 v1, 0, v6
	s_waitcnt lgkmcnt(0)
	v_lshl_add_u64 v[10:11], s[6:7], 0, v[6:7]
	v_cmp_ne_u32_e64 s[0:1], 1, v2
	s_mov_b64 s[6:7], 0x200
	s_branch .LBB0_4
.LBB0_2:                                ;   in Loop: Header=BB0_4 Depth=1
	.loc	0 0 3 is_stmt 0                 ; tile.hip:0:3
	v_mov_b32_e32 v5, 0
	v_mov_b32_e32 v4, 0
	v_mov_b32_e32 v3, 0
	v_mov_b32_e32 v2, 0
.LBB0_3:                                ;   in Loop: Header=BB0_4 Depth=1
	.loc	0 20 36 is_stmt 1               ; tile.hip:20:36
	s_add_i32 s10, s10, 1
	.loc	0 30 5                          ; tile.hip:30:5
	v_lshl_add_u64 v[12:13], v[8:9], 4, s[8:9]
	.loc	0 20 25                         ; tile.hip:20:25
	s_cmp_eq_u32 s10, s2
	.loc	0 30 24                         ; tile.hip:30:24
	global_store_dwordx4 v[12:13], v[2:5], off
	.loc	0 20 3                          ; tile.hip:20:3
	s_cbranch_scc1 .LBB0_7
.LBB0_4:                                ; =>This Loop Header: Depth=1
                                        ;     Child Loop BB0_6 Depth 2
	.loc	0 23 5                          ; tile.hip:23:5
	s_and_b64 vcc, exec, s[0:1]
	v_lshl_add_u32 v8, s10, 6, v0
	s_cbranch_vccnz .LBB0_2
; %bb.5:                                ;   in Loop: Header=BB0_4 Depth=1
	.loc	0 0 5 is_stmt 0                 ; tile.hip:0:5
	v_lshl_add_u64 v[12:13], v[8:9], 3, s[4:5]
	.loc	0 24 26 is_stmt 1               ; tile.hip:24:26
	v_mov_b32_e32 v2, 0
	v_mov_b32_e32 v3, 0
	v_mov_b32_e32 v4, 0
	v_mov_b32_e32 v5, 0
	s_mov_b32 s11, s3
	v_mov_b64_e32 v[14:15], v[10:11]
.LBB0_6:                                ;   Parent Loop BB0_4 Depth=1
                                        ; =>  This Inner Loop Header: Depth=2
	.loc	0 24 20                         ; tile.hip:24:20
	global_load_dwordx2 v[16:17], v[14:15], off
	.loc	0 23 27                         ; tile.hip:23:27
	s_add_i32 s11, s11, -1
	v_lshl_add_u64 v[14:15], v[14:15], 0, s[6:7]
	s_cmp_eq_u32 s11, 0
	.loc	0 24 18                         ; tile.hip:24:18
	s_waitcnt vmcnt(0)
	ds_write_b64 v6, v[16:17]
	.loc	0 25 7                          ; tile.hip:25:7
	s_waitcnt lgkmcnt(0)
	.loc	0 26 7                          ; tile.hip:26:7
	s_barrier
	.loc	0 27 22                         ; tile.hip:27:22
	global_load_dwordx2 v[16:17], v[12:13], off
	.loc	0 27 42 is_stmt 0               ; tile.hip:27:42
	ds_read_b64 v[18:19], v1 offset:504
	.loc	0 28 7 is_stmt 1                ; tile.hip:28:7
	s_barrier
	.loc	0 27 13                         ; tile.hip:27:13
	s_waitcnt vmcnt(0) lgkmcnt(0)
	v_mfma_f32_16x16x16_f16 v[2:5], v[16:17], v[18:19], v[2:5]
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
		.amdhsa_user_sgpr_count 2
		.amdhsa_user_sgpr_dispatch_ptr 0
		.amdhsa_user_sgpr_queue_ptr 0
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_dispatch_id 0
		.amdhsa_user_sgpr_kernarg_preload_length 0
		.amdhsa_user_sgpr_kernarg_preload_offset 0
		.amdhsa_user_sgpr_private_segment_size 0
		.amdhsa_uses_dynamic_stack 0
		.amdhsa_enable_private_segment 0
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_system_sgpr_workgroup_id_y 0
		.amdhsa_system_sgpr_workgroup_id_z 0
		.amdhsa_system_sgpr_workgroup_info 0
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 20
		.amdhsa_next_free_sgpr 12
		.amdhsa_accum_offset 20
		.amdhsa_reserve_vcc 1
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
