key_loop:
	s_mul_i32 s0, s12, s90
	s_add_i32 s0, s0, s91
	s_mov_b32 s20, s4
	v_add_lshl_u32 v64, s0, v157, 1
	v_add_lshl_u32 v68, s0, v158, 1
	buffer_load_dwordx4 v[64:67], v64, s[20:23], 0 offen
	s_nop 0
	buffer_load_dwordx4 v[68:71], v68, s[20:23], 0 offen
	s_waitcnt lgkmcnt(0)
	s_barrier
	s_mov_b32 s16, s80
	s_mov_b32 s18, s22
	s_mov_b32 s19, s23
	v_max_f32_e32 v144, v146, v146
	s_add_i32 s12, s12, 32
	s_cmp_lt_u32 s12, s92
	s_waitcnt vmcnt(0)
	ds_write2_b64 v162, v[64:65], v[68:69] offset1:16
	ds_write2_b64 v162, v[66:67], v[70:71] offset0:32 offset1:48
	s_waitcnt lgkmcnt(0)
	s_barrier
	ds_read_b64 v[112:113], v164
	ds_read_b64 v[114:115], v165
	ds_read_b64 v[116:117], v174
	ds_read_b64 v[118:119], v175
	s_waitcnt lgkmcnt(3)
	v_mfma_f32_32x32x8_bf16 v[64:79], v[112:113], v[80:81], 0
	ds_read_b64 v[122:123], v184
	ds_read_b64 v[124:125], v185
	ds_read_b64 v[126:127], v186
	ds_read_b64 v[198:199], v187
	s_waitcnt lgkmcnt(6)
	v_mfma_f32_32x32x8_bf16 v[64:79], v[114:115], v[84:85], v[64:79]
	s_waitcnt lgkmcnt(5)
	v_mfma_f32_32x32x8_bf16 v[64:79], v[116:117], v[88:89], v[64:79]
	s_waitcnt lgkmcnt(4)
	v_mfma_f32_32x32x8_bf16 v[64:79], v[118:119], v[92:93], v[64:79]
	ds_read_b64 v[112:113], v176
	ds_read_b64 v[114:115], v177
	ds_read_b64 v[116:117], v178
	ds_read_b64 v[118:119], v179
	s_waitcnt lgkmcnt(3)
	v_mfma_f32_32x32x8_bf16 v[64:79], v[112:113], v[96:97], v[64:79]
	s_waitcnt lgkmcnt(2)
	v_mfma_f32_32x32x8_bf16 v[64:79], v[114:115], v[100:101], v[64:79]
	s_waitcnt lgkmcnt(1)
	v_mfma_f32_32x32x8_bf16 v[64:79], v[116:117], v[104:105], v[64:79]
	v_add_lshl_u32 v116, s0, v160, 1
	s_waitcnt lgkmcnt(0)
	v_mfma_f32_32x32x8_bf16 v[64:79], v[118:119], v[108:109], v[64:79]
	ds_read_b64 v[112:113], v180
	ds_read_b64 v[114:115], v181
	ds_read_b64 v[118:119], v182
	ds_read_b64 v[120:121], v183
	s_waitcnt lgkmcnt(3)
	v_mfma_f32_32x32x8_bf16 v[64:79], v[112:113], v[82:83], v[64:79]
	v_add_lshl_u32 v112, s0, v159, 1
	s_waitcnt lgkmcnt(2)
	v_mfma_f32_32x32x8_bf16 v[64:79], v[114:115], v[86:87], v[64:79]
	buffer_load_dwordx4 v[112:115], v112, s[16:19], 0 offen
	s_waitcnt lgkmcnt(1)
	v_mfma_f32_32x32x8_bf16 v[64:79], v[118:119], v[90:91], v[64:79]
	buffer_load_dwordx4 v[116:119], v116, s[16:19], 0 offen
	s_waitcnt lgkmcnt(0)
	s_barrier
	v_mfma_f32_32x32x8_bf16 v[64:79], v[120:121], v[94:95], v[64:79]
	s_waitcnt vmcnt(0)
	v_perm_b32 v120, v116, v112, s24
	v_mfma_f32_32x32x8_bf16 v[64:79], v[122:123], v[98:99], v[64:79]
	v_perm_b32 v112, v116, v112, s25
	v_perm_b32 v116, v117, v113, s24
	v_perm_b32 v113, v117, v113, s25
	v_perm_b32 v117, v118, v114, s24
	v_perm_b32 v114, v118, v114, s25
	v_perm_b32 v118, v119, v115, s24
	v_perm_b32 v115, v119, v115, s25
	v_mfma_f32_32x32x8_bf16 v[64:79], v[124:125], v[102:103], v[64:79]
	ds_write2_b32 v188, v120, v112 offset1:16
	ds_write2_b32 v189, v116, v113 offset0:32 offset1:48
	ds_write2_b32 v190, v117, v114 offset0:64 offset1:80
	ds_write2_b32 v191, v118, v115 offset0:96 offset1:112
	s_waitcnt lgkmcnt(0)
	s_barrier
	ds_read2st64_b64 v[136:139], v192 offset1:4
	v_mfma_f32_32x32x8_bf16 v[64:79], v[126:127], v[106:107], v[64:79]
	ds_read2st64_b64 v[140:143], v193 offset1:4
	ds_read2st64_b64 v[116:119], v194 offset1:4
	ds_read2st64_b64 v[124:127], v195 offset1:4
	ds_read2st64_b64 v[128:131], v194 offset0:8 offset1:12
	ds_read2st64_b64 v[132:135], v195 offset0:8 offset1:12
	ds_read2st64_b64 v[112:115], v192 offset0:8 offset1:12
	ds_read2st64_b64 v[120:123], v193 offset0:8 offset1:12
	v_mfma_f32_32x32x8_bf16 v[64:79], v[198:199], v[110:111], v[64:79]
	s_nop 10
	v_max_f32_e32 v147, v65, v65
	v_max_f32_e32 v150, v64, v64
	v_max3_f32 v198, v67, v68, v69
	v_max3_f32 v200, v73, v74, v75
	v_max3_f32 v201, v76, v77, v78
	v_max_f32_e32 v147, v150, v147
	v_max3_f32 v199, v70, v71, v72
	v_max3_f32 v150, v200, v201, v79
	v_max3_f32 v147, v147, v66, v198
	v_max3_f32 v147, v147, v199, v150
	ds_bpermute_b32 v150, v151, v147
	s_waitcnt lgkmcnt(0)
	v_max_f32_e32 v150, v150, v150
	v_max_f32_e32 v147, v147, v150
	v_mul_f32_e32 v147, s78, v147
	v_max_f32_e32 v144, v144, v147
	v_pk_fma_f32 v[64:65], s[78:79], v[64:65], v[144:145] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[198:199], s[78:79], v[66:67], v[144:145] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[202:203], s[78:79], v[70:71], v[144:145] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_sub_f32_e32 v71, v146, v144
	v_pk_fma_f32 v[200:201], s[78:79], v[68:69], v[144:145] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_exp_f32_e32 v66, v64
	v_exp_f32_e32 v67, v65
	v_exp_f32_e32 v68, v198
	v_exp_f32_e32 v69, v199
	v_exp_f32_e32 v64, v71
	v_and_b32_sdwa v150, v66, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v199, v68, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v198, v69, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
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
	v_and_b32_sdwa v65, v67, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_add3_u32 v65, v67, v65, s13
	v_add3_u32 v150, v66, v150, s13
	v_add3_u32 v198, v69, v198, s13
	v_add3_u32 v199, v68, v199, s13
	v_lshrrev_b32_e32 v150, 16, v150
	v_lshrrev_b32_e32 v65, 16, v65
	v_cmp_o_f32_e32 vcc, v67, v67
	v_lshrrev_b32_e32 v199, 16, v199
	v_lshrrev_b32_e32 v198, 16, v198
	v_cmp_o_f32_e64 s[0:1], v68, v68
	v_cmp_o_f32_e64 s[2:3], v69, v69
	v_cmp_o_f32_e64 s[6:7], v66, v66
	v_cndmask_b32_e32 v65, v197, v65, vcc
	v_cndmask_b32_e64 v199, v197, v199, s[0:1]
	v_cndmask_b32_e64 v150, v197, v150, s[6:7]
	v_cndmask_b32_e64 v198, v197, v198, s[2:3]
	v_exp_f32_e32 v70, v200
	v_exp_f32_e32 v71, v201
	v_exp_f32_e32 v146, v202
	v_exp_f32_e32 v147, v203
	v_perm_b32 v199, v198, v199, s24
	v_perm_b32 v198, v65, v150, s24
	v_pk_mul_f32 v[4:5], v[4:5], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[6:7], v[6:7], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[8:9], v[8:9], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[10:11], v[10:11], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[12:13], v[12:13], v[64:65] op_sel_hi:[1,0]
	v_pk_mul_f32 v[14:15], v[14:15], v[64:65] op_sel_hi:[1,0]
	v_mfma_f32_32x32x8_bf16 v[48:63], v[136:137], v[198:199], v[48:63]
	v_and_b32_sdwa v65, v71, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v136, v70, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v137, v147, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_add3_u32 v65, v71, v65, s13
	v_add3_u32 v136, v70, v136, s13
	v_add3_u32 v137, v147, v137, s13
	v_lshrrev_b32_e32 v65, 16, v65
	v_mfma_f32_32x32x8_bf16 v[32:47], v[142:143], v[198:199], v[32:47]
	v_and_b32_sdwa v142, v146, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_add3_u32 v142, v146, v142, s13
	v_cmp_o_f32_e32 vcc, v71, v71
	v_cmp_o_f32_e64 s[0:1], v146, v146
	v_cmp_o_f32_e64 s[2:3], v147, v147
	v_cmp_o_f32_e64 s[6:7], v70, v70
	v_cndmask_b32_e32 v65, v197, v65, vcc
	v_mfma_f32_32x32x8_bf16 v[16:31], v[128:129], v[198:199], v[16:31]
	v_lshrrev_b32_e32 v128, 16, v136
	v_lshrrev_b32_e32 v129, 16, v142
	v_lshrrev_b32_e32 v136, 16, v137
	v_cndmask_b32_e64 v128, v197, v128, s[6:7]
	v_cndmask_b32_e64 v129, v197, v129, s[0:1]
	v_pk_fma_f32 v[72:73], s[78:79], v[72:73], v[144:145] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_pk_fma_f32 v[74:75], s[78:79], v[74:75], v[144:145] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_mfma_f32_32x32x8_bf16 v[0:15], v[134:135], v[198:199], v[0:15]
	v_cndmask_b32_e64 v134, v197, v136, s[2:3]
	v_perm_b32 v129, v134, v129, s24
	v_perm_b32 v128, v65, v128, s24
	v_exp_f32_e32 v73, v73
	v_exp_f32_e32 v72, v72
	v_exp_f32_e32 v74, v74
	v_exp_f32_e32 v75, v75
	v_mfma_f32_32x32x8_bf16 v[48:63], v[140:141], v[128:129], v[48:63]
	v_and_b32_sdwa v65, v73, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v134, v72, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v135, v75, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v136, v74, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_add3_u32 v65, v73, v65, s13
	v_add3_u32 v134, v72, v134, s13
	v_add3_u32 v135, v75, v135, s13
	v_mfma_f32_32x32x8_bf16 v[32:47], v[138:139], v[128:129], v[32:47]
	v_add3_u32 v136, v74, v136, s13
	v_lshrrev_b32_e32 v65, 16, v65
	v_cmp_o_f32_e32 vcc, v73, v73
	v_cmp_o_f32_e64 s[0:1], v74, v74
	v_cmp_o_f32_e64 s[2:3], v75, v75
	v_cmp_o_f32_e64 s[6:7], v72, v72
	v_cndmask_b32_e32 v65, v197, v65, vcc
	v_mfma_f32_32x32x8_bf16 v[16:31], v[132:133], v[128:129], v[16:31]
	v_lshrrev_b32_e32 v132, 16, v134
	v_lshrrev_b32_e32 v133, 16, v136
	v_lshrrev_b32_e32 v134, 16, v135
	v_fma_f32 v76, s78, v76, -v144
	v_fma_f32 v77, s79, v77, -v144
	v_pk_fma_f32 v[78:79], s[78:79], v[78:79], v[144:145] op_sel_hi:[1,1,0] neg_lo:[0,0,1] neg_hi:[0,0,1]
	v_exp_f32_e32 v77, v77
	v_exp_f32_e32 v76, v76
	v_mfma_f32_32x32x8_bf16 v[0:15], v[130:131], v[128:129], v[0:15]
	v_cndmask_b32_e64 v128, v197, v132, s[6:7]
	v_cndmask_b32_e64 v129, v197, v133, s[0:1]
	v_cndmask_b32_e64 v130, v197, v134, s[2:3]
	v_perm_b32 v129, v130, v129, s24
	v_perm_b32 v128, v65, v128, s24
	v_exp_f32_e32 v78, v78
	v_exp_f32_e32 v79, v79
	v_mfma_f32_32x32x8_bf16 v[48:63], v[116:117], v[128:129], v[48:63]
	v_and_b32_sdwa v65, v77, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v116, v76, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_and_b32_sdwa v117, v79, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_add3_u32 v65, v77, v65, s13
	v_add3_u32 v116, v76, v116, s13
	v_add3_u32 v117, v79, v117, s13
	v_pk_add_f32 v[66:67], v[66:67], v[68:69]
	v_mfma_f32_32x32x8_bf16 v[32:47], v[126:127], v[128:129], v[32:47]
	v_and_b32_sdwa v126, v78, v196 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
	v_add3_u32 v126, v78, v126, s13
	v_add_f32_e64 v68, v70, v146
	v_add_f32_e64 v69, v71, v147
	v_add_f32_e64 v70, v72, v74
	v_add_f32_e64 v71, v73, v75
	v_pk_add_f32 v[72:73], v[76:77], v[78:79]
	v_lshrrev_b32_e32 v65, 16, v65
	v_cmp_o_f32_e32 vcc, v77, v77
	v_mfma_f32_32x32x8_bf16 v[16:31], v[112:113], v[128:129], v[16:31]
	v_lshrrev_b32_e32 v112, 16, v116
	v_lshrrev_b32_e32 v113, 16, v126
	v_lshrrev_b32_e32 v116, 16, v117
	v_cmp_o_f32_e64 s[0:1], v78, v78
	v_cmp_o_f32_e64 s[2:3], v79, v79
	v_cmp_o_f32_e64 s[6:7], v76, v76
	v_pk_add_f32 v[66:67], v[66:67], v[68:69]
	v_mfma_f32_32x32x8_bf16 v[0:15], v[122:123], v[128:129], v[0:15]
	v_add_f32_e64 v68, v70, v72
	v_add_f32_e64 v69, v71, v73
	v_cndmask_b32_e64 v112, v197, v112, s[6:7]
	v_cndmask_b32_e32 v65, v197, v65, vcc
	v_cndmask_b32_e64 v113, v197, v113, s[0:1]
	v_cndmask_b32_e64 v116, v197, v116, s[2:3]
	v_pk_add_f32 v[66:67], v[66:67], v[68:69]
	v_perm_b32 v113, v116, v113, s24
	v_perm_b32 v112, v65, v112, s24
	v_add_f32_e32 v65, v66, v67
	ds_bpermute_b32 v66, v151, v65
	v_mfma_f32_32x32x8_bf16 v[48:63], v[124:125], v[112:113], v[48:63]
	v_mov_b32_e32 v146, v144
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v150, v65, v66
	v_fmac_f32_e32 v150, v163, v64
	v_mov_b32_e32 v163, v150
	v_mfma_f32_32x32x8_bf16 v[32:47], v[118:119], v[112:113], v[32:47]
	v_mfma_f32_32x32x8_bf16 v[16:31], v[120:121], v[112:113], v[16:31]
	v_mfma_f32_32x32x8_bf16 v[0:15], v[114:115], v[112:113], v[0:15]
	s_cbranch_scc1 65043
