from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.profilers.kernel_families import (
    MATCHED_CHARACTERS,
    NATURES,
    OTHER,
    FamilyRules,
    KernelFamily,
)

PAGE = (Path(__file__).parents[3] / "docs" / "profiling.md").read_text(encoding="utf-8")

NAMES = {
    "GEMM": [
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_MI16x16x1_SN_1LDSB0_APM1_ABV0_ACED0_AF0EM1_AF1EM1_AMAS3_ASGT",
        "Cijk_Alik_Bljk_HSS_BH_Bias_HA_S_SAV_UserArgs_MT16x128x32_MI16x16x1_SN_LDSB1_AFC1 [clone .kd]",
        "Custom_Cijk_Alik_Bljk_F8BS_BH_Bias_shortname0_gfx950",
        "void rocblas_gemvn_kernel<64, 4, int, float, float, float>(int, int, float, long, float const*)",
        "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 1, 16, 8, 4, 4>(int, int, int, int)",
        "ampere_fp16_s16816gemm_fp16_128x128_ldg8_relu_f2f_stages_32x5_tn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off",
        "nvjet_tst_128x96_64x7_4x1_v_bz_bias_TNT",
        "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16_64x64_64x4_nn_align8>(Params)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, false>()",
        "void gemvNSP_kernel<float, float, float, float, 1, 32, 4, 1024>(cublasGemvParamsEx<int>)",
        "void ck_tile::kentry<1, ck_tile::GroupedGemmKernel<ck_tile::GemmSpatiallyLocalTilePartitioner<...",
        "fused_moe_kernel",
        "gemm_stream_k_kernel",
        "triton_tem_fused_addmm_3",
        "aten::addmm",
        "_ZN5aiter47fmoe_bf16_blockscaleFp8_g1u1_novs_silu_1tg_ps_32x256E",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1_swiglu",
        "_w8a8_block_fp8_matmul",
        "bmm_E4m3_E4m3E4m3_Fp32_t128x8x512u2_s6_et64x8_m64x8x32",
        "_lora_shrink_kernel",
    ],
    "attention": [
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::half_t>>",
        "void pytorch_flash::flash_fwd_splitkv_combine_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloop>>>",
        "fmha_cutlassF_f16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>::Params)",
        "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVSAsync<...>>>",
        "aiter::fmha_fwd_hd128_bf16_causal_group",
        "aiter::mla_dec_stage1_bf16_a16w16_subQ16_mqa16",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
        "void vllm::paged_attention_v1_kernel<unsigned short, unsigned short, 128, 16, 128>()",
        "attn_fwd.kd",
        "_attn_bwd_dkdv",
        "kernel_unified_attention_2d",
        "_fwd_grouped_kernel_stage1.kd",
        "void flash_attn_tile<128, 64, 2, false>(char const*, char const*, float*)",
        "void flashinfer::BatchPrefillWithRaggedKVCacheKernel<flashinfer::KernelTraits<1, 128>>",
        "flash_attn_copy_kv_softmax_kernel",
        "triton_tem_fused_flex_attention_0",
        "prefill_forward_kernel",
        "decode_reduce_kernel",
        "backward_dkv_kernel",
        "attention_lds_tiles",
        "attention_best.kd",
        "staged_row_softmax_kernel",
        "qk_scores",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "pa_bf16_pertokenFp8_gqa8_1tg_4w",
        "mla_a8w8_qh16_qseqlen1_gqaratio16_ps",
        "reduce_segments",
        "bwd_kernel_dk_dv",
    ],
    "quantised mat-mul": [
        "void mul_mat_q<(ggml_type)2, 128, false>(char const*, int const*, int const*) [clone .kd]",
        "void mul_mat_vec_q<(ggml_type)14, 1, false, false>(void const*, void const*, int const*)",
        "void moe_q4_K<c10::Half, true>",
        "void marlin_moe_wna16::Marlin<x>(int4 const*)",
    ],
    "normalisation": [
        "void layer_norm_kernel<__half>(int, int, __half*, __half const*)",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float, false>",
        "std::enable_if<T2>(int)0&&vllm::_typeConvert<T1>::exists, void>::type vllm::fused_add_rms_norm_kernel",
        "void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<ck_tile::Rmsnorm2dFwdPipelineOnePass<...>>>",
        "void flashinfer::norm::GemmaRMSNormKernel<8u, __nv_bfloat16>",
        "gemma_fused_add_rmsnorm",
        "MIOpenBatchNormFwdTrainSpatial",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2",
        "triton_per_fused_native_layer_norm_0",
        "layernorm_kernel",
        "aten::native_layer_norm",
        "_fused_rms_mxfp4_quant_kernel",
    ],
    "softmax": [
        "void (anonymous namespace)::softmax_warp_forward<c10::Half, c10::Half, float, 7, false, false>",
        "void soft_max_f32<true, 512, 512, float>(float const*, float const*, soft_max_params) [clone .kd]",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>",
        "triton_per_fused__softmax_1",
        "softmax_kernel",
    ],
    "rope": [
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)",
        "void rope_norm<true, false, float, __half>(float const*, __half*, int, int) [clone .kd]",
        "rope_fused_3way_kernel_v2",
        "void aiter::kn_entry_2c_sbhd_cached_indirect_inplace<x>",
        "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<true, 128u>",
    ],
    "activation": [
        "void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::silu_kernel<c10::BFloat16>), true>",
        "void unary_gated_op_kernel<&(op_silu(float)), float>(float const*, float const*, float*)",
        "void vllm::act_and_mul_quant_kernel<c10::BFloat16, c10::Float8_e4m3fn>",
        "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>",
    ],
    "elementwise": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, char*>",
        "void at::native::unrolled_elementwise_kernel<at::native::MulScalarFunctor<float>, LoadWithCast<1>>",
        "void k_bin_bcast<&(op_add(float, float)), float, float, float, float const*>(float const*)",
        "SubTensorOpWithScalar1d",
        "void addVectors_kernel<__half>(__half*, __half*, __half*, int)",
        "aten::masked_fill_",
    ],
    "bias add": ["void addBiasBatched_kernel<__half>(__half*, __half const*)", "_add_bias_batched_kernel"],
    "conversion": [
        "void copyTypeConverted_kernel<__half, float>(__half*, float*, int)",
        "void convert_unary<float, __half>(void const*, __half*, long) [clone .kd]",
        "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16tofloat32_copy_kernel_cuda(at::Tensor)>",
        "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIterator&)>",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)"
        "::{lambda()#3}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4, "
        "at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >",
        "void at::native::elementwise_kernel_manual_unroll<128, 4, at::native::gpu_kernel_impl<at::native::"
        "direct_copy_kernel_cuda(at::TensorIteratorBase&)",
        "void cpy_scalar<&(void cpy_1_scalar<float, __half>(char const*, char*))>(char const*, char*)",
        "triton_poi_fused__to_copy_3",
        "aten::_to_copy",
    ],
    "quantisation": [
        "quantize_q8_1(float const*, void*, long, long) [clone .kd]",
        "void vllm::dynamic_per_token_scaled_fp8_quant_kernel_strided<c10::BFloat16>",
        "void dequantize_block_q4_0<__half>(void const*, __half*)",
        "void aiter::data_to_scale_kernel<c10::BFloat16>",
        "cvt_fp16_to_fp4",
    ],
    "tensor copy": [
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
        "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const>",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<at::native::OpaqueType<2u>, unsigned int>",
        "void cpy_scalar<&(void cpy_1_scalar<float, float>(char const*, char*))>(char const*, char*)",
        "aten::copy_",
    ],
    "transpose": [
        "void NCHWtoNHWC_kernel<float, float>(float*, float*)",
        "batched_transpose_32x32_dword",
        "permute102",
    ],
    "reduction": [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>",
        "void cub::DeviceReduceSingleTileKernel<cub::Policy600>",
        "void moe_sum_kernel<c10::BFloat16, 8>",
    ],
    "indexing": [
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int)",
        "void at::native::(anonymous namespace)::indexSelectSmallIndex<float, long, unsigned int, 2, 2, -2>",
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<...>>",
        "void k_get_rows_float<float, float>(float const*, int const*, float*, long)",
    ],
    "KV cache": [
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>",
        "cp_mha_gather_cache_kernel",
        "_fused_qk_rope_cat_and_cache_mla_kernel",
        "void k_set_rows<float, long, __half>(float const*, long const*, __half*)",
    ],
    "memory copy": [
        "__amd_rocclr_copyBuffer",
        "__amd_rocclr_copyBufferRectAligned.kd",
        "Memcpy HtoD (Pageable -> Device)",
        "HOST_TO_DEVICE",
        "MEMORY_COPY_DEVICE_TO_HOST",
        "CopyDeviceToHost",
    ],
    "fill": [
        "__amd_rocclr_fillBufferAligned.kd",
        "Memset (Device)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<c10::BFloat16>, std::array<char*> >",
        "aten::zero_",
    ],
    "communication": [
        "rccl_main_kernel(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void vllm::cross_device_reduce_1stage<__hip_bfloat16, 8>",
        "void mori::moe::EpDispatchIntraNodeKernel<x>",
    ],
    "random numbers": [
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>",
        "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1>",
    ],
    "sort and top-k": [
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<...>",
        "void vllm::moe::topkGatingSoftmax<4, 64, 4, 16, 64, int>",
        "void moe_fused_gate_kernel_dynamic<x>",
        "void ck_tile::kentry<2, ck_tile::MoeSortingMultiPhaseKernel_P23<ck_tile::MoeSortingProblemMp<int>>>",
    ],
    "convolution": [
        "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex0_bt128x128x32_wt32x32x8_ws1x1_wr2x2",
        "sm80_xmma_wgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc",
        "miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_stride1",
        "ampere_fp16_s16816cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
        "_causal_conv1d_fwd_kernel",
    ],
    "fused elementwise": ["triton_poi_fused_add_mul_silu_4", "triton_poi_fused_1.kd"],
    "fused reduction": ["triton_red_fused_sum_0", "triton_per_fused_amax_abs_2"],
    "other": ["NormKernel1(int, double, double, double const*, double*)", "JacobiIterationKernel(int, double)"],
}
"""Names as profilers wrote them, some cut short, by what the kernels do."""


@pytest.mark.parametrize(("family", "name"), [(family, name) for family, names in NAMES.items() for name in names])
def test_family_of_a_real_name(family: str, name: str) -> None:
    """Names that rocprofv3, rocprof and torch's profiler wrote are put where the kernel's work belongs."""
    assert FamilyRules.load_default().find_family(name).name == family


@pytest.mark.parametrize(
    ("name", "nature"),
    [
        ("__amd_rocclr_copyBuffer", "copy"),
        ("void copyTypeConverted_kernel<__half, float>(__half*, float*, int)", "conversion"),
        ("__amd_rocclr_fillBufferAligned", "fill"),
        ("rccl_main_kernel(ncclDevComm*, unsigned long, ncclWork*)", "communication"),
        ("batched_transpose_32x32_dword", "conversion"),
        ("attn_fwd", "compute"),
        ("JacobiIterationKernel", "other"),
    ],
)
def test_nature_tells_memory_work_from_computing(name: str, nature: str) -> None:
    """A kernel that converts types is no copy, whatever its name begins with."""
    assert FamilyRules.load_default().find_family(name).nature == nature


def test_kind_decides_where_the_name_says_nothing() -> None:
    """An unknown name of a copy or a memory set is one, and that of a kernel stays unknown."""
    rules = FamilyRules.load_default()
    found = [rules.find_family("SDMA Transfer", kind) for kind in ("copy", "set", "kernel")]
    assert found == [KernelFamily("memory copy", "copy"), KernelFamily("fill", "fill"), OTHER]


def test_every_default_rule_is_needed() -> None:
    """Each rule but those by kind decides one of the names above or of the extra ones, and says why it exists."""
    extra = ["aten::matmul", "aten::add_", "triton_poi_fused__to_copy_0", "aten::clone", "multi_tensor_apply_kernel<4>"]
    extra += ["void (anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>"]
    names = [name.removesuffix(" [clone .kd]").removesuffix(".kd") for each in NAMES.values() for name in each] + extra
    deciding = set()
    for name in names:
        deciding |= {
            next((rule.pattern for rule in FamilyRules.load_default().rules if rule.pattern.search(name)), None)
        }
    idle = [
        rule.pattern.pattern
        for rule in FamilyRules.load_default().rules
        if not rule.kind and rule.pattern not in deciding
    ]
    assert idle == []
    assert all(rule.why for rule in FamilyRules.load_default().rules)


def _file(path: Path, *rules: Any, **changed: Any) -> Path:
    path.write_text(json.dumps({"schema": 1, "rules": list(rules), **changed}))
    return path


def _rule(**changed: Any) -> dict[str, Any]:
    return {"pattern": "^mine", "family": "attention", "nature": "compute", **changed}


def test_page_lists_every_family() -> None:
    """docs/profiling.md names each family of the default rules with its nature, and no other."""
    table = PAGE.partition("<!-- families: begin -->\n")[2].partition("<!-- families: end -->")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    documented = [
        KernelFamily(family.strip(), nature.strip()) for nature, families in rows for family in families.split(",")
    ]
    assert set(documented) == {rule.family for rule in FamilyRules.load_default().rules} | {OTHER}
    assert len(set(documented)) == len(documented)


def test_example_of_the_page_is_a_rules_file(tmp_path: Path) -> None:
    """The file that the page shows can be read, and does what the page says of it."""
    path = tmp_path / "own.json"
    path.write_text(
        PAGE.partition("\n## Kernel families")[2].partition("```json\n")[2].partition("```")[0], encoding="utf-8"
    )
    rules = FamilyRules.load(path)
    assert rules.find_family("my_attention_v2") == KernelFamily("attention", "compute")
    assert rules.find_family("JacobiIterationKernel(int, double)") == KernelFamily("stencil", "compute")


def test_own_rules_come_first(tmp_path: Path) -> None:
    """A user's rule beats the default ones, which still know all other names."""
    rules = FamilyRules.load(
        _file(tmp_path / "own.json", _rule(pattern="^Cijk_", family="my GEMM"), _rule(family="mine"))
    )
    assert rules.find_family("Cijk_Ailk_Bljk").name == "my GEMM"
    assert rules.find_family("mine_copyBuffer") == KernelFamily("mine", "compute")
    assert rules.find_family("attn_fwd").name == "attention"


def test_rule_of_one_kind_leaves_others_alone(tmp_path: Path) -> None:
    """A rule with a kind takes nothing of another kind."""
    rules = FamilyRules.load(
        _file(tmp_path / "own.json", _rule(pattern="", kind="copy", family="all copies", nature="copy"))
    )
    assert rules.find_family("HOST_TO_DEVICE", "copy").name == "all copies"
    assert rules.is_memory_work("HOST_TO_DEVICE", "copy")
    assert rules.find_family("HOST_TO_DEVICE", "kernel").name == "memory copy"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (_rule(nature="memory"), f"rule 2: nature is 'memory'; allowed are {', '.join(NATURES)}"),
        (
            _rule(kind="dispatch"),
            "rule 2: kind is 'dispatch'; allowed are kernel, copy, set, operator, or none for all",
        ),
        (_rule(pattern="(["), "rule 2: pattern '([' is no regular expression of Python: unterminated character set"),
        (_rule(pattern="x" * 501), "rule 2: pattern has 501 characters, at most 500; split it into several rules"),
        (
            _rule(pattern="(a+)+$"),
            "rule 2: pattern '(a+)+$' may take for ever: '+' repeats a group that itself repeats",
        ),
        (_rule(pattern=""), "rule 2: pattern is empty and would match every name; only a rule with a kind"),
        (_rule(family=" "), "rule 2: family is ' ', must be a name such as 'attention'"),
        (_rule(regex="x"), "rule 2 has a field 'regex'; known are pattern, family, nature, kind, why"),
        (_rule(why=3), "rule 2: why is 3, must be text"),
        ({"pattern": "x", "nature": "copy"}, "rule 2 has no family; needed are pattern, family, nature"),
        ("attention", "rule 2 is 'attention', must be an object with pattern, family, nature, kind, why"),
    ],
)
def test_bad_rule_is_named(tmp_path: Path, rule: Any, expected: str) -> None:
    """The message holds file, number of the rule, field, the value seen, and what is allowed."""
    path = _file(tmp_path / "own.json", _rule(), rule)
    with pytest.raises(UsageError) as caught:
        FamilyRules.load(path)
    assert f"{path}: {expected}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "is no JSON: "),
        ("[]", "schema is None; known is 1"),
        ('{"schema": 2, "rules": []}', "schema is 2; known is 1"),
        ('{"schema": 1, "rules": {}}', "rules is dict, must be a list of objects with pattern"),
    ],
)
def test_bad_file_is_named(tmp_path: Path, text: str, expected: str) -> None:
    """A file that holds no rules is refused with what it should hold."""
    path = tmp_path / "own.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=expected) as caught:
        FamilyRules.load(path)
    assert str(path) in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    """A file that is not there is an error of use."""
    with pytest.raises(UsageError, match=r"cannot read the rules of kernel families .*none\.json: .*No such file"):
        FamilyRules.load(tmp_path / "none.json")


def test_only_the_beginning_of_a_name_is_matched() -> None:
    """What stands behind the first 1000 characters decides nothing, so a name of any length takes bounded time."""
    assert FamilyRules.load_default().find_family("x" * MATCHED_CHARACTERS + "_attn_fwd") == OTHER
    assert FamilyRules.load_default().find_family("x" * (MATCHED_CHARACTERS - 9) + "_attn_fwd").name == "attention"


def test_long_names_take_little_time() -> None:
    """Names without end that nearly match are answered in milliseconds each, and once per name."""
    names = [
        part * (9000 // len(part)) for part in ("direct_copy_kernel<", "LoadWithCast ", "mean_", "gpu_kernel_impl<")
    ]
    began = time.process_time()
    rules = FamilyRules(FamilyRules.load_default().rules)
    for name in names * 100:
        rules.find_family(name)
    assert time.process_time() - began < 0.5
