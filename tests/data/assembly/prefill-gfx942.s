prefill_forward_kernel:
	.file	1 "/src/kernels/triton" "prefill_forward.py"
	.loc	1 100 0 prologue_end
	s_branch .LBB0_0
.LBB0_0:
	.loc	1 126 9 is_stmt 0
	s_cbranch_execz .LBB0_2
	.loc	1 126 9
	global_load_dwordx4 v[6:9], v[4:5], off
.LBB0_2:
	.loc	1 126 9
	s_cbranch_execz .LBB0_4
	.loc	1 126 9 is_stmt 0
	global_load_dwordx4 v[2:5], v[2:3], off
.LBB0_4:
	.loc	1 126 9
	s_cbranch_execz .LBB0_6
	.loc	1 126 9 is_stmt 0
	global_load_dwordx4 v[14:17], v[12:13], off
.LBB0_6:
	.loc	1 126 9
	s_cbranch_execz .LBB0_8
	.loc	1 126 9 is_stmt 0
	global_load_dwordx4 v[10:13], v[10:11], off
.LBB0_8:
	.loc	1 126 9
	ds_write2st64_b64 v20, v[6:7], v[2:3] offset1:8
	ds_write2st64_b64 v20, v[14:15], v[10:11] offset0:16 offset1:24
	.loc	1 126 9
	ds_write2st64_b64 v2, v[8:9], v[4:5] offset1:8
	ds_write2st64_b64 v2, v[16:17], v[12:13] offset0:16 offset1:24
	.loc	1 126 9
	s_barrier
	ds_read_b64 v[152:153], v3
	ds_read_b64 v[154:155], v4
	ds_read_b64 v[156:157], v5
	ds_read_b64 v[158:159], v6
	.loc	1 126 9
	ds_read_b64 v[160:161], v3
	ds_read_b64 v[162:163], v4
	ds_read_b64 v[164:165], v5
	ds_read_b64 v[166:167], v2
	.loc	1 68 5
	s_cbranch_scc1 .LBB0_11
.LBB0_10:
	.loc	1 49 16
	global_load_dwordx4 v[36:39], v[32:33], off
	global_load_dwordx4 v[44:47], v[34:35], off
	.loc	1 80 21
	s_barrier
	.loc	1 80 21
	ds_write_b128 v90, v[42:45]
	ds_write_b128 v90, v[38:41] offset:512
	s_barrier
	.loc	1 49 16
	global_load_dwordx4 v[64:67], v[32:33], off
	global_load_dwordx4 v[68:71], v[34:35], off
	.loc	1 80 21
	ds_read_b128 v[134:137], v92
	ds_read_b128 v[138:141], v93
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[48:63], v[134:135], v[152:153], 0
	.loc	1 80 21
	ds_read_b128 v[184:187], v99
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[32:47], v[136:137], v[152:153], 0
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[48:63], v[138:139], v[154:155], v[48:63]
	v_mfma_f32_32x32x8_f16 v[32:47], v[140:141], v[154:155], v[32:47]
	.loc	1 80 21
	ds_read_b128 v[134:137], v94
	ds_read_b128 v[138:141], v95
	ds_read_b128 v[148:151], v96
	ds_read_b128 v[176:179], v97
	ds_read_b128 v[180:183], v98
	.loc	1 49 16
	s_barrier
	ds_write_b32 v100, v88
	ds_write_b32 v101, v64 offset:128
	ds_write_b32 v102, v68 offset:256
	ds_write_b32 v103, v65 offset:384
	ds_write_b32 v104, v69 offset:512
	ds_write_b32 v106, v66 offset:640
	ds_write_b32 v107, v70 offset:768
	ds_write_b32 v108, v67 offset:896
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[48:63], v[134:135], v[156:157], v[48:63]
	.loc	1 49 16
	s_barrier
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[32:47], v[136:137], v[156:157], v[32:47]
	v_mfma_f32_32x32x8_f16 v[48:63], v[138:139], v[158:159], v[48:63]
	v_mfma_f32_32x32x8_f16 v[32:47], v[140:141], v[158:159], v[32:47]
	.loc	1 49 16
	ds_read2st64_b64 v[134:137], v109 offset1:8
	ds_read2st64_b64 v[138:141], v110 offset1:8
	ds_read2st64_b64 v[142:145], v111 offset1:8
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[48:63], v[148:149], v[160:161], v[48:63]
	.loc	1 49 16
	ds_read2st64_b64 v[146:149], v112 offset1:8
	ds_read2st64_b64 v[168:171], v113 offset1:8
	ds_read2st64_b64 v[172:175], v114 offset1:8
	ds_read2st64_b64 v[64:67], v115 offset1:8
	ds_read2st64_b64 v[68:71], v116 offset1:8
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[32:47], v[150:151], v[160:161], v[32:47]
	v_mfma_f32_32x32x8_f16 v[48:63], v[176:177], v[162:163], v[48:63]
	v_mfma_f32_32x32x8_f16 v[32:47], v[178:179], v[162:163], v[32:47]
	v_mfma_f32_32x32x8_f16 v[48:63], v[180:181], v[164:165], v[48:63]
	v_mfma_f32_32x32x8_f16 v[32:47], v[182:183], v[164:165], v[32:47]
	v_mfma_f32_32x32x8_f16 v[48:63], v[184:185], v[166:167], v[48:63]
	v_mfma_f32_32x32x8_f16 v[32:47], v[186:187], v[166:167], v[32:47]
	.file	2 "/src/triton/language" "standard.py"
	.loc	2 216 16
	ds_bpermute_b32 v118, v89, v88
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[0:15], v[134:135], v[150:151], v[0:15]
	.loc	1 42 12 is_stmt 1
	v_mfma_f32_32x32x8_f16 v[16:31], v[140:141], v[150:151], v[16:31]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[0:15], v[138:139], v[134:135], v[0:15]
	.loc	1 42 12 is_stmt 1
	v_mfma_f32_32x32x8_f16 v[16:31], v[136:137], v[134:135], v[16:31]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[0:15], v[142:143], v[134:135], v[0:15]
	.loc	1 42 12 is_stmt 1
	v_mfma_f32_32x32x8_f16 v[16:31], v[148:149], v[134:135], v[16:31]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[0:15], v[146:147], v[134:135], v[0:15]
	.loc	1 42 12 is_stmt 1
	v_mfma_f32_32x32x8_f16 v[16:31], v[144:145], v[134:135], v[16:31]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[0:15], v[168:169], v[134:135], v[0:15]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[16:31], v[174:175], v[134:135], v[16:31]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[0:15], v[172:173], v[134:135], v[0:15]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[16:31], v[170:171], v[134:135], v[16:31]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[0:15], v[64:65], v[136:137], v[0:15]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[16:31], v[70:71], v[136:137], v[16:31]
	.loc	2 314 12
	ds_bpermute_b32 v35, v89, v34
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[0:15], v[68:69], v[32:33], v[0:15]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[16:31], v[66:67], v[32:33], v[16:31]
	.loc	1 68 5
	s_cbranch_scc1 .LBB0_10
	s_branch .LBB0_12
.LBB0_11:
.LBB0_12:
	.loc	1 68 5
	s_cbranch_scc1 .LBB0_24
	.loc	1 68 5
	s_branch .LBB0_15
.LBB0_14:
	.loc	1 50 12 is_stmt 1
	s_barrier
	ds_write_b32 v134, v168
	ds_write_b32 v135, v32 offset:128
	ds_write_b32 v136, v32 offset:256
	ds_write_b32 v137, v32 offset:384
	ds_write_b32 v138, v32 offset:512
	ds_write_b32 v139, v32 offset:640
	ds_write_b32 v140, v32 offset:768
	ds_write_b32 v141, v32 offset:896
	s_barrier
	ds_read2st64_b64 v[32:35], v142 offset1:8
	ds_read2st64_b64 v[36:39], v143 offset1:8
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[0:15], v[32:33], v[168:169], v[0:15]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[16:31], v[38:39], v[168:169], v[16:31]
	.loc	1 50 12
	ds_read2st64_b64 v[78:81], v144 offset1:8
	.loc	1 50 12
	ds_read2st64_b64 v[82:85], v145 offset1:8
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[0:15], v[36:37], v[32:33], v[0:15]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[16:31], v[34:35], v[32:33], v[16:31]
	.loc	1 50 12
	ds_read2st64_b64 v[58:61], v146 offset1:8
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[0:15], v[78:79], v[36:37], v[0:15]
	.loc	1 50 12
	ds_read2st64_b64 v[54:57], v147 offset1:8
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[16:31], v[84:85], v[36:37], v[16:31]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[0:15], v[82:83], v[62:63], v[0:15]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[16:31], v[80:81], v[62:63], v[16:31]
	v_mfma_f32_32x32x8_f16 v[0:15], v[58:59], v[76:77], v[0:15]
	.loc	1 50 12
	ds_read2st64_b64 v[50:53], v148 offset1:8
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[16:31], v[56:57], v[76:77], v[16:31]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[0:15], v[54:55], v[58:59], v[0:15]
	.loc	1 50 12
	ds_read2st64_b64 v[46:49], v149 offset1:8
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[16:31], v[60:61], v[58:59], v[16:31]
	v_mfma_f32_32x32x8_f16 v[0:15], v[50:51], v[54:55], v[0:15]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[16:31], v[48:49], v[54:55], v[16:31]
	v_mfma_f32_32x32x8_f16 v[0:15], v[46:47], v[42:43], v[0:15]
	v_mfma_f32_32x32x8_f16 v[16:31], v[52:53], v[42:43], v[16:31]
	.loc	1 68 5
	s_cbranch_scc0 .LBB0_23
.LBB0_15:
	.loc	1 50 12 is_stmt 1
	s_cbranch_execz .LBB0_17
	.loc	1 50 12
	global_load_dwordx4 v[36:39], v[32:33], off
.LBB0_17:
	.loc	1 50 12
	s_cbranch_execz .LBB0_19
	.loc	1 50 12
	global_load_dwordx4 v[34:37], v[34:35], off
.LBB0_19:
	.loc	1 80 21 is_stmt 1
	s_barrier
	ds_write_b128 v125, v[32:35]
	ds_write_b128 v125, v[38:41] offset:512
	s_barrier
	ds_read_b128 v[188:191], v126
	ds_read_b128 v[192:195], v127
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[32:47], v[188:189], v[152:153], 0
	.loc	1 80 21
	ds_read_b128 v[196:199], v128
	ds_read_b128 v[200:203], v129
	ds_read_b128 v[204:207], v130
	ds_read_b128 v[208:211], v131
	ds_read_b128 v[212:215], v132
	ds_read_b128 v[216:219], v133
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[48:63], v[190:191], v[152:153], 0
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[32:47], v[192:193], v[154:155], v[32:47]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[48:63], v[194:195], v[154:155], v[48:63]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[32:47], v[196:197], v[156:157], v[32:47]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[48:63], v[198:199], v[156:157], v[48:63]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[32:47], v[200:201], v[158:159], v[32:47]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[48:63], v[202:203], v[158:159], v[48:63]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[32:47], v[204:205], v[160:161], v[32:47]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[48:63], v[206:207], v[160:161], v[48:63]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[32:47], v[208:209], v[162:163], v[32:47]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[48:63], v[210:211], v[162:163], v[48:63]
	.loc	1 42 12 is_stmt 1
	v_mfma_f32_32x32x8_f16 v[32:47], v[212:213], v[164:165], v[32:47]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[48:63], v[214:215], v[164:165], v[48:63]
	.loc	1 42 12
	v_mfma_f32_32x32x8_f16 v[32:47], v[216:217], v[166:167], v[32:47]
	.loc	1 42 12 is_stmt 1
	v_mfma_f32_32x32x8_f16 v[48:63], v[218:219], v[166:167], v[48:63]
	.loc	2 216 16
	ds_bpermute_b32 v41, v123, v40
	.loc	2 314 12
	ds_bpermute_b32 v151, v123, v41
	.loc	1 50 12
	s_cbranch_execz .LBB0_21
	.loc	1 50 12
	global_load_dwordx4 v[32:35], v[32:33], off
.LBB0_21:
	.loc	1 50 12
	s_cbranch_execz .LBB0_14
	.loc	1 50 12
	global_load_dwordx4 v[36:39], v[36:37], off
	s_branch .LBB0_14
.LBB0_23:
.LBB0_24:
	.loc	1 152 5
	s_cbranch_execz .LBB0_26
	.loc	1 152 5
	global_store_dwordx2 v[4:5], v[2:3], off
	global_store_dwordx2 v[0:1], v[2:3], off offset:16
	.loc	1 152 5
	global_store_dwordx2 v[0:1], v[2:3], off offset:32
	global_store_dwordx2 v[0:1], v[2:3], off offset:48
	global_store_dwordx2 v[0:1], v[2:3], off offset:64
	global_store_dwordx2 v[0:1], v[2:3], off offset:80
	global_store_dwordx2 v[0:1], v[2:3], off offset:96
	global_store_dwordx2 v[0:1], v[2:3], off offset:112
.LBB0_26:
	.loc	1 155 9
	s_barrier
	ds_write_b32 v3, v2
	s_barrier
	s_cbranch_execz .LBB0_28
	ds_read_b32 v2, v1
	.loc	1 155 9 is_stmt 1
	global_store_dword v[0:1], v2, off
.LBB0_28:
	.loc	1 100 1
	s_endpgm
.Lfunc_end0:
