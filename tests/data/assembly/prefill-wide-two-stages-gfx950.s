key_loop:
	s_add_i32 s0, s0, 1
	s_cmp_lt_i32 s0, 2
	s_cselect_b32 s0, s0, 0
	s_add_i32 s1, s1, 64
	s_mul_i32 s8, s1, s80
	s_add_i32 s8, s8, s81
	v_add_u32_e32 v64, s8, v64
	v_add_u32_e32 v65, s8, v72
	ds_bpermute_b32 v64, v126, v64
	v_add_u32_e32 v66, s8, v73
	ds_bpermute_b32 v65, v126, v65
	v_add_u32_e32 v67, s8, v80
	ds_bpermute_b32 v66, v126, v66
	ds_bpermute_b32 v67, v126, v67
	s_lshl_b32 s4, s0, 14
	s_add_i32 s9, s4, s82
	s_waitcnt lgkmcnt(3)
	v_lshlrev_b32_e32 v64, 1, v64
	v_cmp_eq_u32_e32 vcc, 1, v115
	s_add_i32 m0, s9, 0x87c0
	s_waitcnt lgkmcnt(2)
	v_lshlrev_b32_e32 v65, 1, v65
	v_cndmask_b32_e32 v64, v111, v64, vcc
	s_waitcnt vmcnt(0) lgkmcnt(0)
	s_barrier
	buffer_load_dwordx4 v64, s[76:79], 0 offen lds
	s_add_i32 m0, s9, 0x97c0
	v_cndmask_b32_e32 v64, v111, v65, vcc
	v_lshlrev_b32_e32 v65, 1, v66
	buffer_load_dwordx4 v64, s[76:79], 0 offen lds
	s_add_i32 m0, s9, 0xa7c0
	v_cndmask_b32_e32 v64, v111, v65, vcc
	v_lshlrev_b32_e32 v65, 1, v67
	buffer_load_dwordx4 v64, s[76:79], 0 offen lds
	s_add_i32 m0, s9, 0xb7c0
	v_cndmask_b32_e32 v64, v111, v65, vcc
	v_add_u32_e32 v65, s5, v98
	buffer_load_dwordx4 v64, s[76:79], 0 offen lds
	ds_read_b128 v[66:69], v65
	ds_read_b128 v[102:105], v65 offset:8192
	s_waitcnt lgkmcnt(1)
	v_mfma_f32_32x32x16_bf16 v[80:95], v[66:69], a[8:11], 0
	v_add_u32_e32 v64, s5, v77
	ds_read_b128 v[70:73], v64
	ds_read_b128 v[106:109], v64 offset:8192
	v_add_u32_e32 v64, s5, v99
	ds_read_b128 a[32:35], v64
	ds_read_b128 a[36:39], v64 offset:8192
	v_add_u32_e32 v64, s5, v116
	ds_read_b128 a[40:43], v64
	ds_read_b128 a[44:47], v64 offset:8192
	v_add_u32_e32 v64, s5, v101
	s_waitcnt lgkmcnt(5)
	v_mfma_f32_32x32x16_bf16 v[80:95], v[70:73], a[0:3], v[80:95]
	ds_read_b128 a[48:51], v64
	ds_read_b128 a[52:55], v64 offset:8192
	v_add_u32_e32 v96, s5, v123
	s_mov_b32 s14, s78
	s_mov_b32 s15, s79
	v_mfma_f32_32x32x16_bf16 v[64:79], v[102:105], a[8:11], 0
	ds_read_b128 v[102:105], v96
	ds_read_b128 a[56:59], v96 offset:8192
	v_add_u32_e32 v96, s5, v122
	ds_read_b128 a[60:63], v96
	ds_read_b128 a[64:67], v96 offset:8192
	v_add_u32_e32 v96, s5, v110
	ds_read_b128 a[68:71], v96
	s_waitcnt lgkmcnt(11)
	v_mfma_f32_32x32x16_bf16 v[64:79], v[106:109], a[0:3], v[64:79]
	ds_read_b128 v[106:109], v96 offset:8192
	v_max_f32_e32 v96, v100, v100
	s_waitcnt lgkmcnt(11)
	v_mfma_f32_32x32x16_bf16 v[80:95], a[32:35], a[12:15], v[80:95]
	s_waitcnt lgkmcnt(10)
	v_mfma_f32_32x32x16_bf16 v[64:79], a[36:39], a[12:15], v[64:79]
	s_waitcnt lgkmcnt(9)
	v_mfma_f32_32x32x16_bf16 v[80:95], a[40:43], a[4:7], v[80:95]
	s_waitcnt lgkmcnt(8)
	v_mfma_f32_32x32x16_bf16 v[64:79], a[44:47], a[4:7], v[64:79]
	s_waitcnt lgkmcnt(7)
	v_mfma_f32_32x32x16_bf16 v[80:95], a[48:51], a[20:23], v[80:95]
	s_waitcnt lgkmcnt(6)
	v_mfma_f32_32x32x16_bf16 v[64:79], a[52:55], a[20:23], v[64:79]
	s_waitcnt lgkmcnt(5)
	v_mfma_f32_32x32x16_bf16 v[80:95], v[102:105], a[16:19], v[80:95]
	s_waitcnt lgkmcnt(4)
	v_mfma_f32_32x32x16_bf16 v[64:79], a[56:59], a[16:19], v[64:79]
	s_waitcnt lgkmcnt(3)
	v_mfma_f32_32x32x16_bf16 v[80:95], a[60:63], a[28:31], v[80:95]
	s_waitcnt lgkmcnt(2)
	v_mfma_f32_32x32x16_bf16 v[64:79], a[64:67], a[28:31], v[64:79]
	s_waitcnt lgkmcnt(1)
	v_mfma_f32_32x32x16_bf16 v[80:95], a[68:71], a[24:27], v[80:95]
	s_waitcnt lgkmcnt(0)
	v_mfma_f32_32x32x16_bf16 v[64:79], v[106:109], a[24:27], v[64:79]
	s_nop 9
	v_max3_f32 v98, v89, v90, v91
	v_max3_f32 v99, v92, v93, v94
	v_max3_f32 v101, v95, v64, v65
	v_max3_f32 v102, v66, v67, v68
	v_max3_f32 v98, v98, v99, v101
	v_max3_f32 v99, v69, v70, v71
	v_max3_f32 v101, v72, v73, v74
	v_max3_f32 v99, v102, v99, v101
	v_max_f32_e32 v101, v81, v81
	v_max_f32_e32 v102, v80, v80
	v_max_f32_e32 v101, v102, v101
	v_max3_f32 v102, v83, v84, v85
	v_max3_f32 v101, v101, v82, v102
	v_max3_f32 v102, v86, v87, v88
	v_max3_f32 v98, v101, v102, v98
	v_max3_f32 v101, v75, v76, v77
	v_max3_f32 v101, v101, v78, v79
	v_max3_f32 v98, v98, v99, v101
	v_mov_b32_e32 v99, v98
	s_nop 1
	v_permlane32_swap_b32_e32 v98, v99
	v_max_f32_e32 v99, v99, v99
	v_max_f32_e32 v98, v98, v98
	v_max_f32_e32 v98, v98, v99
	v_mul_f32_e32 v98, s90, v98
	v_max_f32_e32 v96, v96, v98
	v_pk_fma_f32 v[104:105], s[90:91], v[84:85], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[84:85], s[90:91], v[68:69], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[68:69], s[90:91], v[72:73], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[72:73], s[90:91], v[76:77], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_add3_u32 v77, s3, v112, v113
	s_lshl_b32 s3, s0, 10
	s_and_b32 s3, s3, 0x1ffffc00
	s_add_i32 s3, s4, s3
	s_add_i32 s5, s3, s83
	v_pk_fma_f32 v[98:99], s[90:91], v[80:81], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[80:81], s[90:91], v[64:65], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_add_lshl_u32 v64, s8, v119, 1
	s_mov_b32 m0, s5
	v_add_lshl_u32 v65, s8, v125, 1
	buffer_load_dwordx4 v64, s[12:15], 0 offen lds
	s_add_i32 m0, s5, 0x1100
	v_add_lshl_u32 v64, s8, v121, 1
	buffer_load_dwordx4 v65, s[12:15], 0 offen lds
	s_add_i32 m0, s5, 0x2200
	v_add_lshl_u32 v65, s8, v117, 1
	buffer_load_dwordx4 v64, s[12:15], 0 offen lds
	s_add_i32 m0, s5, 0x3300
	v_pk_fma_f32 v[102:103], s[90:91], v[82:83], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	buffer_load_dwordx4 v65, s[12:15], 0 offen lds
	v_pk_fma_f32 v[106:107], s[90:91], v[86:87], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_sub_f32_e32 v64, v100, v96
	v_pk_fma_f32 v[86:87], s[90:91], v[70:71], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[70:71], s[90:91], v[74:75], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[74:75], s[90:91], v[78:79], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_exp_f32_e32 v100, v98
	v_exp_f32_e32 v101, v99
	v_exp_f32_e32 v102, v102
	v_exp_f32_e32 v103, v103
	v_exp_f32_e32 v78, v104
	v_exp_f32_e32 v79, v105
	v_exp_f32_e32 v98, v106
	v_exp_f32_e32 v99, v107
	v_exp_f32_e32 v76, v64
	ds_read_b64_tr_b16 a[36:37], v77
	ds_read_b64_tr_b16 a[40:41], v77 offset:64
	ds_read_b64_tr_b16 a[44:45], v77 offset:128
	ds_read_b64_tr_b16 a[32:33], v77 offset:192
	ds_read_b64_tr_b16 a[38:39], v77 offset:8704
	ds_read_b64_tr_b16 a[42:43], v77 offset:8768
	ds_read_b64_tr_b16 a[46:47], v77 offset:8832
	ds_read_b64_tr_b16 a[34:35], v77 offset:8896
	v_pk_fma_f32 v[82:83], s[90:91], v[66:67], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_cvt_pk_bf16_f32 v64, v100, v101
	v_cvt_pk_bf16_f32 v65, v102, v103
	v_cvt_pk_bf16_f32 v66, v78, v79
	v_cvt_pk_bf16_f32 v67, v98, v99
	v_pk_mul_f32 v[16:17], v[16:17], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[18:19], v[18:19], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[20:21], v[20:21], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[22:23], v[22:23], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[24:25], v[24:25], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[26:27], v[26:27], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[28:29], v[28:29], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[30:31], v[30:31], v[76:77] op_sel_hi:[1,0]
	v_pk_fma_f32 v[88:89], s[90:91], v[88:89], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[90:91], s[90:91], v[90:91], v[96:97] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	s_waitcnt lgkmcnt(1)
	v_mfma_f32_32x32x16_bf16 v[16:31], a[44:47], v[64:67], v[16:31]
	v_fma_f32 v92, s90, v92, -v96
	v_fma_f32 v93, s91, v93, -v96
	v_fma_f32 v94, s90, v94, -v96
	v_fma_f32 v95, s91, v95, -v96
	v_exp_f32_e32 v88, v88
	v_exp_f32_e32 v89, v89
	v_exp_f32_e32 v90, v90
	v_exp_f32_e32 v91, v91
	v_exp_f32_e32 v92, v92
	v_exp_f32_e32 v93, v93
	v_exp_f32_e32 v94, v94
	v_exp_f32_e32 v95, v95
	v_pk_mul_f32 v[32:33], v[32:33], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[34:35], v[34:35], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[36:37], v[36:37], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[38:39], v[38:39], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[40:41], v[40:41], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[42:43], v[42:43], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[44:45], v[44:45], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[46:47], v[46:47], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[0:1], v[0:1], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[2:3], v[2:3], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[4:5], v[4:5], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[6:7], v[6:7], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[8:9], v[8:9], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[10:11], v[10:11], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[12:13], v[12:13], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[14:15], v[14:15], v[76:77] op_sel_hi:[1,0]
	v_mfma_f32_32x32x16_bf16 v[32:47], a[40:43], v[64:67], v[32:47]
	v_mul_f32_e64 v48, v48, v76
	v_mul_f32_e64 v49, v49, v76
	v_mul_f32_e64 v50, v50, v76
	v_mul_f32_e64 v51, v51, v76
	v_mul_f32_e64 v52, v52, v76
	v_mul_f32_e64 v53, v53, v76
	v_pk_mul_f32 v[54:55], v[54:55], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[56:57], v[56:57], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[58:59], v[58:59], v[76:77] op_sel_hi:[1,0]
	v_pk_mul_f32 v[60:61], v[60:61], v[76:77] op_sel_hi:[1,0]
	s_waitcnt lgkmcnt(0)
	v_mfma_f32_32x32x16_bf16 v[0:15], a[32:35], v[64:67], v[0:15]
	ds_read_b64_tr_b16 v[106:107], v77 offset:9088
	ds_read_b64_tr_b16 v[104:105], v77 offset:384
	ds_read_b64_tr_b16 a[32:33], v77 offset:448
	ds_read_b64_tr_b16 a[34:35], v77 offset:9152
	v_mul_f32_e64 v62, v62, v76
	v_mul_f32_e64 v63, v63, v76
	v_exp_f32_e32 v80, v80
	v_exp_f32_e32 v81, v81
	v_exp_f32_e32 v82, v82
	v_exp_f32_e32 v83, v83
	v_exp_f32_e32 v84, v84
	v_mfma_f32_32x32x16_bf16 v[48:63], a[36:39], v[64:67], v[48:63]
	v_cvt_pk_bf16_f32 v64, v88, v89
	v_cvt_pk_bf16_f32 v65, v90, v91
	v_cvt_pk_bf16_f32 v66, v92, v93
	v_cvt_pk_bf16_f32 v67, v94, v95
	v_exp_f32_e32 v85, v85
	v_exp_f32_e32 v86, v86
	v_exp_f32_e32 v87, v87
	s_waitcnt lgkmcnt(2)
	v_mfma_f32_32x32x16_bf16 v[16:31], v[104:107], v[64:67], v[16:31]
	ds_read_b64_tr_b16 v[104:105], v77 offset:320
	ds_read_b64_tr_b16 v[106:107], v77 offset:9024
	v_exp_f32_e32 v68, v68
	v_exp_f32_e32 v69, v69
	v_exp_f32_e32 v70, v70
	v_exp_f32_e32 v71, v71
	v_exp_f32_e32 v72, v72
	v_exp_f32_e32 v73, v73
	s_waitcnt lgkmcnt(0)
	v_mfma_f32_32x32x16_bf16 v[32:47], v[104:107], v[64:67], v[32:47]
	ds_read_b64_tr_b16 v[104:105], v77 offset:256
	ds_read_b64_tr_b16 v[106:107], v77 offset:8960
	v_exp_f32_e32 v74, v74
	v_exp_f32_e32 v75, v75
	v_pk_add_f32 v[102:103], v[100:101], v[102:103]
	v_pk_add_f32 v[78:79], v[78:79], v[98:99]
	v_pk_add_f32 v[88:89], v[88:89], v[90:91]
	v_pk_add_f32 v[90:91], v[92:93], v[94:95]
	s_waitcnt lgkmcnt(0)
	v_mfma_f32_32x32x16_bf16 v[48:63], v[104:107], v[64:67], v[48:63]
	s_add_i32 s5, s4, 0x87c0
	v_accvgpr_read_b32 v101, a82
	s_cmp_lt_i32 s1, s74
	v_accvgpr_read_b32 v98, a102
	v_accvgpr_read_b32 v99, a84
	v_mov_b32_e32 v100, v96
	v_mfma_f32_32x32x16_bf16 v[0:15], a[32:35], v[64:67], v[0:15]
	ds_read_b64_tr_b16 v[104:105], v77 offset:640
	ds_read_b64_tr_b16 a[32:33], v77 offset:704
	ds_read_b64_tr_b16 v[106:107], v77 offset:9344
	ds_read_b64_tr_b16 a[34:35], v77 offset:9408
	v_cvt_pk_bf16_f32 v64, v80, v81
	v_cvt_pk_bf16_f32 v65, v82, v83
	v_cvt_pk_bf16_f32 v66, v84, v85
	v_cvt_pk_bf16_f32 v67, v86, v87
	v_pk_add_f32 v[80:81], v[80:81], v[82:83]
	v_pk_add_f32 v[82:83], v[84:85], v[86:87]
	s_waitcnt lgkmcnt(1)
	v_mfma_f32_32x32x16_bf16 v[16:31], v[104:107], v[64:67], v[16:31]
	ds_read_b64_tr_b16 v[104:105], v77 offset:512
	ds_read_b64_tr_b16 a[36:37], v77 offset:576
	ds_read_b64_tr_b16 v[106:107], v77 offset:9216
	ds_read_b64_tr_b16 a[38:39], v77 offset:9280
	s_waitcnt lgkmcnt(1)
	v_mfma_f32_32x32x16_bf16 v[48:63], v[104:107], v[64:67], v[48:63]
	s_waitcnt lgkmcnt(0)
	v_mfma_f32_32x32x16_bf16 v[32:47], a[36:39], v[64:67], v[32:47]
	v_mfma_f32_32x32x16_bf16 v[0:15], a[32:35], v[64:67], v[0:15]
	ds_read_b64_tr_b16 v[104:105], v77 offset:768
	ds_read_b64_tr_b16 a[32:33], v77 offset:832
	ds_read_b64_tr_b16 a[36:37], v77 offset:896
	ds_read_b64_tr_b16 a[40:41], v77 offset:960
	ds_read_b64_tr_b16 v[106:107], v77 offset:9472
	ds_read_b64_tr_b16 a[34:35], v77 offset:9536
	ds_read_b64_tr_b16 a[38:39], v77 offset:9600
	ds_read_b64_tr_b16 a[42:43], v77 offset:9664
	v_cvt_pk_bf16_f32 v64, v68, v69
	v_cvt_pk_bf16_f32 v65, v70, v71
	v_pk_add_f32 v[68:69], v[68:69], v[70:71]
	v_pk_add_f32 v[70:71], v[72:73], v[74:75]
	v_cvt_pk_bf16_f32 v66, v72, v73
	v_cvt_pk_bf16_f32 v67, v74, v75
	v_pk_add_f32 v[72:73], v[102:103], v[78:79]
	v_pk_add_f32 v[74:75], v[88:89], v[90:91]
	v_pk_add_f32 v[78:79], v[80:81], v[82:83]
	v_pk_add_f32 v[68:69], v[68:69], v[70:71]
	s_waitcnt lgkmcnt(3)
	v_mfma_f32_32x32x16_bf16 v[48:63], v[104:107], v[64:67], v[48:63]
	v_add_f32_e64 v70, v72, v74
	v_add_f32_e64 v71, v73, v75
	v_add_f32_e64 v68, v78, v68
	v_add_f32_e64 v69, v79, v69
	v_accvgpr_read_b32 v77, a85
	v_accvgpr_read_b32 v80, a98
	v_accvgpr_read_b32 v73, a97
	v_accvgpr_read_b32 v72, a96
	s_waitcnt lgkmcnt(2)
	v_mfma_f32_32x32x16_bf16 v[32:47], a[32:35], v[64:67], v[32:47]
	s_waitcnt lgkmcnt(1)
	v_mfma_f32_32x32x16_bf16 v[16:31], a[36:39], v[64:67], v[16:31]
	s_waitcnt lgkmcnt(0)
	v_mfma_f32_32x32x16_bf16 v[0:15], a[40:43], v[64:67], v[0:15]
	v_add_f32_e64 v64, v70, v68
	v_add_f32_e64 v65, v71, v69
	v_add_f32_e32 v64, v64, v65
	v_mov_b32_e32 v65, v64
	s_nop 1
	v_permlane32_swap_b32_e32 v64, v65
	v_add_f32_e32 v118, v64, v65
	v_fmac_f32_e32 v118, v114, v76
	v_accvgpr_read_b32 v64, a95
	v_mov_b32_e32 v114, v118
	s_cbranch_scc1 64979
