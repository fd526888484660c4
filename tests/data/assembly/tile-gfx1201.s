	.amdgcn_target "amdgcn-amd-amdhsa--gfx1201"
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
	s_load_b64 s[2:3], s[0:1], 0x18
	.loc	0 20 25                         ; tile.hip:20:25
	s_wait_kmcnt 0x0
	s_cmp_lt_i32 s2, 1
	.loc	0 20 3 is_stmt 0                ; tile.hip:20:3
	s_cbranch_scc1 .LBB0_6
; %bb.1:
	.loc	0 19 14 is_stmt 1               ; tile.hip:19:14
	s_clause 0x1
	s_load_b128 s[4:7], s[0:1], 0x0
	s_load_b64 s[8:9], s[0:1], 0x10
	s_cmp_gt_i32 s3, 0
	.loc	0 20 3                          ; tile.hip:20:3
	v_dual_mov_b32 v10, 0 :: v_dual_lshlrev_b32 v17, 4, v0
	s_cselect_b32 s0, -1, 0
	s_mov_b32 s1, 0
	v_cndmask_b32_e64 v1, 0, 1, s0
	s_delay_alu instid0(VALU_DEP_2)
	v_sub_nc_u32_e32 v18, 0, v17
	s_wait_kmcnt 0x0
	v_add_co_u32 v11, s0, s6, v17
	s_wait_alu depctr_va_sdst(0)
	v_add_co_ci_u32_e64 v12, null, s7, 0, s0
	v_cmp_ne_u32_e64 s0, 1, v1
	s_branch .LBB0_3
.LBB0_2:                                ;   in Loop: Header=BB0_3 Depth=1
	.loc	0 30 5                          ; tile.hip:30:5
	v_lshlrev_b64_e32 v[13:14], 5, v[9:10]
	.loc	0 20 36                         ; tile.hip:20:36
	s_add_co_i32 s1, s1, 1
	.loc	0 20 25 is_stmt 0               ; tile.hip:20:25
	s_wait_alu depctr_sa_sdst(0)
	s_cmp_eq_u32 s1, s2
	s_delay_alu instid0(VALU_DEP_1)
	.loc	0 30 5 is_stmt 1                ; tile.hip:30:5
	v_add_co_u32 v13, vcc_lo, s8, v13
	s_wait_alu depctr_va_vcc(0)
	v_add_co_ci_u32_e64 v14, null, s9, v14, vcc_lo
	.loc	0 30 24 is_stmt 0               ; tile.hip:30:24
	s_clause 0x1
	global_store_b128 v[13:14], v[5:8], off offset:16
	global_store_b128 v[13:14], v[1:4], off
	.loc	0 20 3 is_stmt 1                ; tile.hip:20:3
	s_cbranch_scc1 .LBB0_6
.LBB0_3:                                ; =>This Loop Header: Depth=1
                                        ;     Child Loop BB0_5 Depth 2
	.loc	0 0 3 is_stmt 0                 ; tile.hip:0:3
	v_lshl_add_u32 v9, s1, 6, v0
	v_dual_mov_b32 v8, v10 :: v_dual_mov_b32 v7, v10
	v_dual_mov_b32 v6, v10 :: v_dual_mov_b32 v5, v10
	v_dual_mov_b32 v4, v10 :: v_dual_mov_b32 v3, v10
	v_dual_mov_b32 v2, v10 :: v_dual_mov_b32 v1, v10
	.loc	0 23 5 is_stmt 1                ; tile.hip:23:5
	s_and_b32 vcc_lo, exec_lo, s0
	s_wait_alu depctr_sa_sdst(0)
	s_cbranch_vccnz .LBB0_2
; %bb.4:                                ;   in Loop: Header=BB0_3 Depth=1
	.loc	0 0 5 is_stmt 0                 ; tile.hip:0:5
	v_lshlrev_b64_e32 v[2:3], 4, v[9:10]
	v_dual_mov_b32 v1, 0 :: v_dual_mov_b32 v14, v12
	v_mov_b32_e32 v13, v11
	s_mov_b32 s6, s3
	s_delay_alu instid0(VALU_DEP_2) | instskip(NEXT) | instid1(VALU_DEP_4)
	v_dual_mov_b32 v5, v1 :: v_dual_mov_b32 v6, v1
	v_add_co_u32 v15, vcc_lo, s4, v2
	s_wait_alu depctr_va_vcc(0)
	v_add_co_ci_u32_e64 v16, null, s5, v3, vcc_lo
	v_dual_mov_b32 v2, v1 :: v_dual_mov_b32 v3, v1
	v_dual_mov_b32 v4, v1 :: v_dual_mov_b32 v7, v1
	v_mov_b32_e32 v8, v1
.LBB0_5:                                ;   Parent Loop BB0_3 Depth=1
                                        ; =>  This Inner Loop Header: Depth=2
	.loc	0 24 20 is_stmt 1               ; tile.hip:24:20
	global_load_b128 v[19:22], v[13:14], off
	.loc	0 23 27                         ; tile.hip:23:27
	v_add_co_u32 v13, vcc_lo, 0x400, v13
	s_wait_alu depctr_va_vcc(0)
	v_add_co_ci_u32_e64 v14, null, 0, v14, vcc_lo
	s_wait_alu depctr_sa_sdst(0)
	s_add_co_i32 s6, s6, -1
	s_wait_alu depctr_sa_sdst(0)
	s_cmp_eq_u32 s6, 0
	.loc	0 24 18                         ; tile.hip:24:18
	s_wait_loadcnt 0x0
	ds_store_b128 v17, v[19:22]
	.loc	0 25 7                          ; tile.hip:25:7
	s_wait_dscnt 0x0
	.loc	0 26 7                          ; tile.hip:26:7
	s_barrier_signal -1
	s_barrier_wait -1
	.loc	0 27 22                         ; tile.hip:27:22
	global_load_b128 v[19:22], v[15:16], off
	.loc	0 27 42 is_stmt 0               ; tile.hip:27:42
	ds_load_b128 v[23:26], v18 offset:1008
	.loc	0 28 7 is_stmt 1                ; tile.hip:28:7
	s_barrier_signal -1
	s_barrier_wait -1
	.loc	0 27 13                         ; tile.hip:27:13
	s_wait_loadcnt_dscnt 0x0
	v_wmma_f32_16x16x16_f16 v[1:8], v[19:22], v[23:26], v[1:8]
	.loc	0 23 5                          ; tile.hip:23:5
	s_cbranch_scc0 .LBB0_5
	s_branch .LBB0_2
.LBB0_6:
	.loc	0 32 1                          ; tile.hip:32:1
	s_endpgm
.Ltmp0:
	.section	.rodata,"a",@progbits
	.p2align	6, 0x0
	.amdhsa_kernel tile
		.amdhsa_group_segment_fixed_size 1024
		.amdhsa_private_segment_fixed_size 0
		.amdhsa_kernarg_size 32
		.amdhsa_user_sgpr_count 2
		.amdhsa_user_sgpr_dispatch_ptr 0
		.amdhsa_user_sgpr_queue_ptr 0
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_dispatch_id 0
		.amdhsa_user_sgpr_private_segment_size 0
		.amdhsa_wavefront_size32 1
		.amdhsa_uses_dynamic_stack 0
		.amdhsa_enable_private_segment 0
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_system_sgpr_workgroup_id_y 0
		.amdhsa_system_sgpr_workgroup_id_z 0
		.amdhsa_system_sgpr_workgroup_info 0
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 27
		.amdhsa_next_free_sgpr 10
		.amdhsa_reserve_vcc 1
		.amdhsa_float_round_mode_32 0
		.amdhsa_float_round_mode_16_64 0
		.amdhsa_float_denorm_mode_32 3
		.amdhsa_float_denorm_mode_16_64 3
		.amdhsa_fp16_overflow 0
		.amdhsa_workgroup_processor_mode 1
		.amdhsa_memory_ordered 1
		.amdhsa_forward_progress 1
		.amdhsa_inst_pref_size 4
		.amdhsa_round_robin_scheduling 0
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
