key_loop:
	s_mov_b32 s20, s4
	buffer_load_dwordx4 v[64:67], v86, s[20:23], 0 offen
	buffer_load_dwordx4 v[68:71], v84, s[20:23], 0 offen
	s_waitcnt lgkmcnt(0)
	s_barrier
	s_mov_b32 s0, s76
	s_mov_b32 s2, s22
	s_mov_b32 s3, s23
	v_max_f32_e32 v80, v114, v114
	s_add_i32 s18, s18, 32
	s_cmp_lt_u32 s18, s86
	s_waitcnt vmcnt(1)
	ds_write_b128 v100, v[64:67]
	s_waitcnt vmcnt(0)
	ds_write_b128 v102, v[68:71]
	s_waitcnt lgkmcnt(0)
	s_barrier
	ds_read_b128 v[116:119], v103
	ds_read_b128 v[154:157], v104
	s_waitcnt lgkmcnt(1)
	v_mfma_f32_32x32x16_bf16 v[64:79], v[116:119], v[122:125], 0
	s_waitcnt lgkmcnt(0)
	v_mfma_f32_32x32x16_bf16 v[64:79], v[154:157], v[126:129], v[64:79]
	ds_read_b128 v[116:119], v105
	ds_read_b128 v[154:157], v106
	s_waitcnt lgkmcnt(1)
	v_mfma_f32_32x32x16_bf16 v[64:79], v[116:119], v[130:133], v[64:79]
	s_waitcnt lgkmcnt(0)
	v_mfma_f32_32x32x16_bf16 v[64:79], v[154:157], v[134:137], v[64:79]
	ds_read_b128 v[116:119], v107
	ds_read_b128 v[154:157], v108
	s_waitcnt lgkmcnt(1)
	v_mfma_f32_32x32x16_bf16 v[64:79], v[116:119], v[138:141], v[64:79]
	buffer_load_dwordx4 v[116:119], v86, s[0:3], 0 offen
	s_waitcnt lgkmcnt(0)
	v_mfma_f32_32x32x16_bf16 v[64:79], v[154:157], v[142:145], v[64:79]
	ds_read_b128 v[154:157], v109
	ds_read_b128 v[158:161], v110
	s_waitcnt lgkmcnt(1)
	v_mfma_f32_32x32x16_bf16 v[64:79], v[154:157], v[146:149], v[64:79]
	buffer_load_dwordx4 v[154:157], v84, s[0:3], 0 offen
	s_waitcnt lgkmcnt(0)
	s_barrier
	v_add_u32_e32 v84, s19, v84
	v_add_u32_e32 v86, s19, v86
	s_waitcnt vmcnt(0)
	ds_write2st64_b64 v111, v[116:117], v[154:155] offset1:8
	ds_write2st64_b64 v112, v[118:119], v[156:157] offset1:8
	v_mfma_f32_32x32x16_bf16 v[64:79], v[158:161], v[150:153], v[64:79]
	s_waitcnt lgkmcnt(0)
	s_barrier
	ds_read_b64_tr_b16 v[160:161], v113 offset:6336
	s_nop 8
	v_max_f32_e32 v82, v65, v65
	v_max_f32_e32 v115, v64, v64
	v_max3_f32 v120, v67, v68, v69
	v_max3_f32 v158, v73, v74, v75
	v_max3_f32 v159, v76, v77, v78
	v_max_f32_e32 v82, v115, v82
	v_max3_f32 v121, v70, v71, v72
	v_max3_f32 v115, v158, v159, v79
	v_max3_f32 v82, v82, v66, v120
	v_max3_f32 v82, v82, v121, v115
	v_mov_b32_e32 v115, v82
	s_nop 1
	v_permlane32_swap_b32_e32 v82, v115
	v_max_f32_e32 v115, v115, v115
	v_max_f32_e32 v82, v82, v82
	v_max_f32_e32 v82, v82, v115
	v_mul_f32_e32 v82, s74, v82
	v_max_f32_e32 v80, v80, v82
	v_pk_fma_f32 v[64:65], s[74:75], v[64:65], v[80:81] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[120:121], s[74:75], v[66:67], v[80:81] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[68:69], s[74:75], v[68:69], v[80:81] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[70:71], s[74:75], v[70:71], v[80:81] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_sub_f32_e32 v82, v114, v80
	v_exp_f32_e32 v66, v64
	v_exp_f32_e32 v67, v65
	v_exp_f32_e32 v120, v120
	v_exp_f32_e32 v121, v121
	v_exp_f32_e32 v162, v68
	v_exp_f32_e32 v163, v69
	v_exp_f32_e32 v164, v70
	v_exp_f32_e32 v165, v71
	v_exp_f32_e32 v64, v82
	ds_read_b64_tr_b16 v[168:169], v113 offset:2112
	ds_read_b64_tr_b16 v[172:173], v113 offset:2240
	ds_read_b64_tr_b16 v[176:177], v113 offset:2176
	ds_read_b64_tr_b16 v[180:181], v113 offset:2048
	ds_read_b64_tr_b16 v[184:185], v113 offset:6208
	ds_read_b64_tr_b16 v[118:119], v113 offset:6272
	ds_read_b64_tr_b16 v[156:157], v113 offset:6144
	ds_read_b64_tr_b16 v[166:167], v113
	ds_read_b64_tr_b16 v[178:179], v113 offset:64
	ds_read_b64_tr_b16 v[170:171], v113 offset:128
	ds_read_b64_tr_b16 v[174:175], v113 offset:192
	ds_read_b64_tr_b16 v[182:183], v113 offset:4096
	ds_read_b64_tr_b16 v[154:155], v113 offset:4160
	ds_read_b64_tr_b16 v[158:159], v113 offset:4224
	ds_read_b64_tr_b16 v[116:117], v113 offset:4288
	v_cvt_pk_bf16_f32 v68, v66, v67
	v_cvt_pk_bf16_f32 v69, v120, v121
	v_pk_mul_f32 v[48:49], v[48:49], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[50:51], v[50:51], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[52:53], v[52:53], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[54:55], v[54:55], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[56:57], v[56:57], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[58:59], v[58:59], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[60:61], v[60:61], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[62:63], v[62:63], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[32:33], v[32:33], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[34:35], v[34:35], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[36:37], v[36:37], v[64:65] op_sel_hi:[1,0]
	v_cvt_pk_bf16_f32 v70, v162, v163
	v_cvt_pk_bf16_f32 v71, v164, v165
	v_pk_mul_f32 v[38:39], v[38:39], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[40:41], v[40:41], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[42:43], v[42:43], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[44:45], v[44:45], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[46:47], v[46:47], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[16:17], v[16:17], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[18:19], v[18:19], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[20:21], v[20:21], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[22:23], v[22:23], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[24:25], v[24:25], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[26:27], v[26:27], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[28:29], v[28:29], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[30:31], v[30:31], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[0:1], v[0:1], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[2:3], v[2:3], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[4:5], v[4:5], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[6:7], v[6:7], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[8:9], v[8:9], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[10:11], v[10:11], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[12:13], v[12:13], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[14:15], v[14:15], v[64:65] op_sel_hi:[1,0]
	s_waitcnt lgkmcnt(7)
	v_mfma_f32_32x32x16_bf16 v[48:63], v[166:169], v[68:71], v[48:63]
	v_fma_f32 v72, s74, v72, -v80
	v_fma_f32 v73, s75, v73, -v80
	v_fma_f32 v74, s74, v74, -v80
	v_fma_f32 v75, s75, v75, -v80
	v_fma_f32 v76, s74, v76, -v80
	v_fma_f32 v77, s75, v77, -v80
	v_pk_fma_f32 v[78:79], s[74:75], v[78:79], v[80:81] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_exp_f32_e32 v72, v72
	v_exp_f32_e32 v73, v73
	v_exp_f32_e32 v74, v74
	s_waitcnt lgkmcnt(6)
	v_mfma_f32_32x32x16_bf16 v[32:47], v[178:181], v[68:71], v[32:47]
	v_exp_f32_e32 v75, v75
	v_exp_f32_e32 v76, v76
	v_exp_f32_e32 v77, v77
	v_exp_f32_e32 v78, v78
	v_exp_f32_e32 v79, v79
	v_pk_add_f32 v[66:67], v[66:67], v[120:121]
	v_pk_add_f32 v[120:121], v[162:163], v[164:165]
	s_waitcnt lgkmcnt(5)
	v_mfma_f32_32x32x16_bf16 v[16:31], v[170:173], v[68:71], v[16:31]
	v_add_f32_e64 v66, v66, v120
	v_add_f32_e64 v67, v67, v121
	v_mov_b32_e32 v114, v80
	s_waitcnt lgkmcnt(4)
	v_mfma_f32_32x32x16_bf16 v[0:15], v[174:177], v[68:71], v[0:15]
	v_cvt_pk_bf16_f32 v68, v72, v73
	v_cvt_pk_bf16_f32 v69, v74, v75
	v_cvt_pk_bf16_f32 v70, v76, v77
	v_cvt_pk_bf16_f32 v71, v78, v79
	v_add_f32_e64 v72, v72, v74
	v_add_f32_e64 v73, v73, v75
	v_pk_add_f32 v[74:75], v[76:77], v[78:79]
	s_waitcnt lgkmcnt(3)
	v_mfma_f32_32x32x16_bf16 v[48:63], v[182:185], v[68:71], v[48:63]
	v_add_f32_e64 v72, v72, v74
	v_add_f32_e64 v73, v73, v75
	v_add_f32_e64 v66, v66, v72
	v_add_f32_e64 v67, v67, v73
	v_add_f32_e32 v65, v66, v67
	v_mov_b32_e32 v66, v65
	s_nop 1
	v_permlane32_swap_b32_e32 v65, v66
	s_waitcnt lgkmcnt(2)
	v_mfma_f32_32x32x16_bf16 v[32:47], v[154:157], v[68:71], v[32:47]
	v_add_f32_e32 v82, v65, v66
	v_fmac_f32_e32 v82, v101, v64
	v_mov_b32_e32 v101, v82
	s_waitcnt lgkmcnt(1)
	v_mfma_f32_32x32x16_bf16 v[16:31], v[158:161], v[68:71], v[16:31]
	s_waitcnt lgkmcnt(0)
	v_mfma_f32_32x32x16_bf16 v[0:15], v[116:119], v[68:71], v[0:15]
	s_cbranch_scc1 65228
