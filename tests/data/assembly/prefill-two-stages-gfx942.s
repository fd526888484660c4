key_loop:
	s_add_i32 s17, s17, 32
	s_mul_i32 s0, s17, s92
	s_add_i32 s0, s0, s93
	v_add_lshl_u32 v64, s0, v135, 1
	v_add_lshl_u32 v65, s0, v136, 1
	buffer_load_dwordx4 v[216:219], v64, s[4:7], 0 offen
	buffer_load_dwordx4 v[220:223], v65, s[4:7], 0 offen
	s_waitcnt lgkmcnt(0)
	s_barrier
	ds_read2_b64 v[112:115], v155 offset1:2
	ds_read2_b64 v[116:119], v155 offset0:4 offset1:6
	ds_read2_b64 v[164:167], v155 offset0:8 offset1:10
	s_waitcnt lgkmcnt(2)
	v_mfma_f32_32x32x8_bf16 v[64:79], v[112:113], v[100:101], 0
	ds_read2_b64 v[170:173], v155 offset0:12 offset1:14
	ds_read2_b64 v[174:177], v155 offset0:16 offset1:18
	ds_read2_b64 v[178:181], v155 offset0:20 offset1:22
	v_add_lshl_u32 v112, s0, v137, 1
	s_mov_b32 s82, s6
	s_mov_b32 s83, s7
	v_add_lshl_u32 v113, s0, v138, 1
	buffer_load_dwordx4 v[186:189], v112, s[80:83], 0 offen
	buffer_load_dwordx4 v[190:193], v113, s[80:83], 0 offen
	ds_read2_b64 v[182:185], v155 offset0:24 offset1:26
	v_mfma_f32_32x32x8_bf16 v[64:79], v[114:115], v[104:105], v[64:79]
	ds_read2_b64 v[194:197], v155 offset0:28 offset1:30
	ds_read2st64_b64 v[198:201], v157 offset0:16 offset1:20
	ds_read2st64_b64 v[202:205], v158 offset0:16 offset1:20
	ds_read2st64_b64 v[206:209], v159 offset0:24 offset1:28
	ds_read2st64_b64 v[210:213], v160 offset0:24 offset1:28
	ds_read2st64_b64 v[120:123], v159 offset0:16 offset1:20
	v_max_f32_e32 v128, v169, v169
	s_cmp_lt_i32 s17, s90
	s_waitcnt vmcnt(0)
	v_perm_b32 v214, v190, v186, s18
	s_waitcnt lgkmcnt(11)
	v_mfma_f32_32x32x8_bf16 v[64:79], v[116:117], v[84:85], v[64:79]
	v_perm_b32 v163, v191, v187, s18
	v_perm_b32 v168, v193, v189, s19
	v_mfma_f32_32x32x8_bf16 v[64:79], v[118:119], v[88:89], v[64:79]
	ds_read2st64_b64 v[124:127], v160 offset0:16 offset1:20
	ds_read2st64_b64 v[112:115], v157 offset0:24 offset1:28
	ds_read2st64_b64 v[116:119], v158 offset0:24 offset1:28
	s_waitcnt lgkmcnt(0)
	s_barrier
	v_mfma_f32_32x32x8_bf16 v[64:79], v[164:165], v[80:81], v[64:79]
	v_perm_b32 v164, v191, v187, s19
	v_perm_b32 v165, v192, v188, s18
	v_mfma_f32_32x32x8_bf16 v[64:79], v[166:167], v[92:93], v[64:79]
	v_perm_b32 v166, v192, v188, s19
	v_perm_b32 v167, v193, v189, s18
	v_mfma_f32_32x32x8_bf16 v[64:79], v[170:171], v[96:97], v[64:79]
	v_perm_b32 v170, v190, v186, s19
	ds_write_b128 v139, v[216:219]
	ds_write_b128 v139, v[220:223] offset:4096
	ds_write2_b32 v150, v214, v170 offset1:16
	ds_write2_b32 v151, v163, v164 offset0:32 offset1:48
	ds_write2_b32 v152, v165, v166 offset0:64 offset1:80
	ds_write2_b32 v153, v167, v168 offset0:96 offset1:112
	v_mfma_f32_32x32x8_bf16 v[64:79], v[172:173], v[108:109], v[64:79]
	v_mfma_f32_32x32x8_bf16 v[64:79], v[174:175], v[102:103], v[64:79]
	v_mfma_f32_32x32x8_bf16 v[64:79], v[176:177], v[106:107], v[64:79]
	v_mfma_f32_32x32x8_bf16 v[64:79], v[178:179], v[86:87], v[64:79]
	v_mfma_f32_32x32x8_bf16 v[64:79], v[180:181], v[90:91], v[64:79]
	v_mfma_f32_32x32x8_bf16 v[64:79], v[182:183], v[82:83], v[64:79]
	v_mfma_f32_32x32x8_bf16 v[64:79], v[184:185], v[94:95], v[64:79]
	v_mfma_f32_32x32x8_bf16 v[64:79], v[194:195], v[98:99], v[64:79]
	v_mfma_f32_32x32x8_bf16 v[64:79], v[196:197], v[110:111], v[64:79]
	s_nop 10
	v_max_f32_e32 v170, v65, v65
	v_max_f32_e32 v171, v64, v64
	v_max_f32_e32 v170, v171, v170
	v_max3_f32 v171, v67, v68, v69
	v_max3_f32 v172, v73, v74, v75
	v_max3_f32 v173, v76, v77, v78
	v_max3_f32 v174, v70, v71, v72
	v_max3_f32 v170, v170, v66, v171
	v_max3_f32 v171, v172, v173, v79
	v_max3_f32 v170, v170, v174, v171
	ds_bpermute_b32 v171, v154, v170
	s_waitcnt lgkmcnt(0)
	v_max_f32_e32 v171, v171, v171
	v_max_f32_e32 v170, v170, v171
	v_mul_f32_e32 v170, s78, v170
	v_max_f32_e32 v128, v128, v170
	v_pk_fma_f32 v[64:65], s[78:79], v[64:65], v[128:129] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[66:67], s[78:79], v[66:67], v[128:129] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_exp_f32_e32 v170, v64
	v_exp_f32_e32 v171, v65
	v_exp_f32_e32 v66, v66
	v_exp_f32_e32 v67, v67
	v_sub_f32_e32 v64, v169, v128
	v_and_b32_sdwa v169, v170, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v65, v171, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_add3_u32 v169, v170, v169, s20
	v_and_b32_sdwa v173, v66, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_add3_u32 v65, v171, v65, s20
	v_lshrrev_b32_e32 v169, 16, v169
	v_cmp_o_f32_e32 vcc, v170, v170
	v_exp_f32_e32 v64, v64
	v_and_b32_sdwa v172, v67, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_add3_u32 v173, v66, v173, s20
	v_lshrrev_b32_e32 v65, 16, v65
	v_pk_fma_f32 v[68:69], s[78:79], v[68:69], v[128:129] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_cndmask_b32_e32 v169, v162, v169, vcc
	v_cmp_o_f32_e32 vcc, v171, v171
	v_add3_u32 v172, v67, v172, s20
	v_lshrrev_b32_e32 v173, 16, v173
	v_cndmask_b32_e32 v65, v162, v65, vcc
	v_cmp_o_f32_e32 vcc, v66, v66
	v_exp_f32_e32 v68, v68
	v_lshrrev_b32_e32 v172, 16, v172
	v_pk_fma_f32 v[70:71], s[78:79], v[70:71], v[128:129] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_cndmask_b32_e32 v173, v162, v173, vcc
	v_cmp_o_f32_e32 vcc, v67, v67
	v_exp_f32_e32 v69, v69
	v_exp_f32_e32 v70, v70
	v_cndmask_b32_e32 v172, v162, v172, vcc
	v_exp_f32_e32 v71, v71
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
	v_perm_b32 v173, v172, v173, s18
	v_perm_b32 v172, v65, v169, s18
	v_and_b32_sdwa v169, v68, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v65, v69, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_mfma_f32_32x32x8_bf16 v[48:63], v[198:199], v[172:173], v[48:63]
	v_add3_u32 v169, v68, v169, s20
	v_and_b32_sdwa v175, v70, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_add3_u32 v65, v69, v65, s20
	v_lshrrev_b32_e32 v169, 16, v169
	v_cmp_o_f32_e32 vcc, v68, v68
	v_and_b32_sdwa v174, v71, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_lshrrev_b32_e32 v65, 16, v65
	v_mfma_f32_32x32x8_bf16 v[0:15], v[212:213], v[172:173], v[0:15]
	v_fma_f32 v72, s78, v72, -v128
	v_fma_f32 v73, s79, v73, -v128
	v_cndmask_b32_e32 v169, v162, v169, vcc
	v_cmp_o_f32_e32 vcc, v69, v69
	v_exp_f32_e32 v72, v72
	v_pk_fma_f32 v[74:75], s[78:79], v[74:75], v[128:129] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_cndmask_b32_e32 v65, v162, v65, vcc
	v_cmp_o_f32_e32 vcc, v70, v70
	v_mfma_f32_32x32x8_bf16 v[32:47], v[204:205], v[172:173], v[32:47]
	v_exp_f32_e32 v73, v73
	v_exp_f32_e32 v74, v74
	v_exp_f32_e32 v75, v75
	v_pk_fma_f32 v[76:77], s[78:79], v[76:77], v[128:129] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[78:79], s[78:79], v[78:79], v[128:129] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_exp_f32_e32 v76, v76
	v_exp_f32_e32 v77, v77
	v_mfma_f32_32x32x8_bf16 v[16:31], v[206:207], v[172:173], v[16:31]
	v_add3_u32 v173, v70, v175, s20
	v_add3_u32 v172, v71, v174, s20
	v_lshrrev_b32_e32 v173, 16, v173
	v_lshrrev_b32_e32 v172, 16, v172
	v_cndmask_b32_e32 v173, v162, v173, vcc
	v_cmp_o_f32_e32 vcc, v71, v71
	v_and_b32_sdwa v175, v74, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v174, v75, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_cndmask_b32_e32 v172, v162, v172, vcc
	v_perm_b32 v173, v172, v173, s18
	v_perm_b32 v172, v65, v169, s18
	v_and_b32_sdwa v169, v72, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v65, v73, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_mfma_f32_32x32x8_bf16 v[48:63], v[202:203], v[172:173], v[48:63]
	v_add3_u32 v169, v72, v169, s20
	v_add3_u32 v65, v73, v65, s20
	v_lshrrev_b32_e32 v169, 16, v169
	v_cmp_o_f32_e32 vcc, v72, v72
	v_lshrrev_b32_e32 v65, 16, v65
	v_exp_f32_e32 v78, v78
	v_cndmask_b32_e32 v169, v162, v169, vcc
	v_mfma_f32_32x32x8_bf16 v[0:15], v[208:209], v[172:173], v[0:15]
	v_cmp_o_f32_e32 vcc, v73, v73
	v_exp_f32_e32 v79, v79
	v_pk_add_f32 v[66:67], v[170:171], v[66:67]
	v_cndmask_b32_e32 v65, v162, v65, vcc
	v_cmp_o_f32_e32 vcc, v74, v74
	v_pk_add_f32 v[68:69], v[68:69], v[70:71]
	v_pk_add_f32 v[70:71], v[72:73], v[74:75]
	v_mfma_f32_32x32x8_bf16 v[32:47], v[200:201], v[172:173], v[32:47]
	v_add_f32_e64 v72, v76, v78
	v_add_f32_e64 v73, v77, v79
	v_add_f32_e64 v66, v66, v68
	v_add_f32_e64 v67, v67, v69
	v_add_f32_e64 v68, v70, v72
	v_add_f32_e64 v69, v71, v73
	v_cmp_o_f32_e64 s[0:1], v78, v78
	v_cmp_o_f32_e64 s[2:3], v79, v79
	v_cmp_o_f32_e64 s[10:11], v76, v76
	v_pk_add_f32 v[66:67], v[66:67], v[68:69]
	v_mfma_f32_32x32x8_bf16 v[16:31], v[210:211], v[172:173], v[16:31]
	v_add3_u32 v173, v74, v175, s20
	v_add3_u32 v172, v75, v174, s20
	v_lshrrev_b32_e32 v173, 16, v173
	v_lshrrev_b32_e32 v172, 16, v172
	v_cndmask_b32_e32 v173, v162, v173, vcc
	v_cmp_o_f32_e32 vcc, v75, v75
	s_nop 1
	v_cndmask_b32_e32 v172, v162, v172, vcc
	v_perm_b32 v173, v172, v173, s18
	v_perm_b32 v172, v65, v169, s18
	v_and_b32_sdwa v65, v77, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_add3_u32 v65, v77, v65, s20
	v_mfma_f32_32x32x8_bf16 v[48:63], v[120:121], v[172:173], v[48:63]
	v_and_b32_sdwa v120, v78, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_lshrrev_b32_e32 v65, 16, v65
	v_cmp_o_f32_e32 vcc, v77, v77
	v_mov_b32_e32 v169, v128
	s_nop 0
	v_cndmask_b32_e32 v65, v162, v65, vcc
	v_mfma_f32_32x32x8_bf16 v[0:15], v[118:119], v[172:173], v[0:15]
	v_and_b32_sdwa v118, v76, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v119, v79, v161 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_add3_u32 v74, v76, v118, s20
	v_add3_u32 v75, v79, v119, s20
	v_lshrrev_b32_e32 v70, 16, v74
	v_lshrrev_b32_e32 v72, 16, v75
	v_cndmask_b32_e64 v68, v162, v70, s[10:11]
	v_mfma_f32_32x32x8_bf16 v[32:47], v[126:127], v[172:173], v[32:47]
	v_cndmask_b32_e64 v70, v162, v72, s[2:3]
	v_perm_b32 v68, v65, v68, s18
	v_add_f32_e32 v65, v66, v67
	ds_bpermute_b32 v66, v154, v65
	v_mfma_f32_32x32x8_bf16 v[16:31], v[112:113], v[172:173], v[16:31]
	v_add3_u32 v112, v78, v120, s20
	v_lshrrev_b32_e32 v71, 16, v112
	v_cndmask_b32_e64 v69, v162, v71, s[0:1]
	v_perm_b32 v69, v70, v69, s18
	s_nop 1
	v_mfma_f32_32x32x8_bf16 v[48:63], v[124:125], v[68:69], v[48:63]
	v_mfma_f32_32x32x8_bf16 v[32:47], v[122:123], v[68:69], v[32:47]
	v_mfma_f32_32x32x8_bf16 v[16:31], v[116:117], v[68:69], v[16:31]
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v117, v65, v66
	v_fmac_f32_e32 v117, v156, v64
	v_mov_b32_e32 v156, v117
	v_mfma_f32_32x32x8_bf16 v[0:15], v[114:115], v[68:69], v[0:15]
	s_cbranch_scc1 65091
