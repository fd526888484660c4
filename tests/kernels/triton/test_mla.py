from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any

import pytest

from kernels.triton.mla.backend import BACKENDS, DECODE, DECODE_KERNELS, PREFILL
from kernels.triton.mla.builds import KERNELS, PERSISTENT_KERNEL
from pytest_attnperf.errors import UsageError
from pytest_attnperf.kernel_builds import ALL_ARCHS, TritonSource
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.mla import Mla

pytestmark = pytest.mark.usefixtures("one_thread")

BACKEND = BACKENDS[0]
INTERPRETING = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)

PREFILLS = (
    "mla-b2-s31-h3-d16-r16-c32-f16-causal",
    "mla-b1-s33-kv70-h2-d24-dv16-r8-c48-bf16-causal-lse",
    "mla-b1-s33-kv65-h1-d40-dv64-r24-c64-f32-lse",
    "mla-b2-s64-h1-d16-dv48-r8-c16-f32-causal",
    "mla-b1-s9-kv97-h3-d40-r16-c64-bf16",
    "mla-b2-s40-kv32-h2-d16-dv33-r12-c48-f16-lse",
    "mla-b1-s65-h2-d64-r32-c128-bf16-causal",
    "mla-b1-s12-kv64-h4-d32-r8-c32-f16-causal-lse",
)
DECODES = (
    "mla-b2-s1-kv97-h4-d16-r16-c32-f16",
    "mla-b1-s1-kv300-h3-d24-dv16-r8-c48-bf16-causal-lse",
    "mla-b3-s3-kv65-h5-d40-dv64-r24-c64-f32-causal-lse",
    "mla-b1-s8-h2-d16-r8-c16-bf16-causal",
    "mla-b2-s2-kv33-h20-d16-dv33-r12-c48-f16-causal-lse",
    "mla-b9-s1-kv40-h16-d64-r32-c128-f32",
    "mla-b1-s4-kv260-h3-d32-r8-c32-bf16-lse",
    "mla-b1-s8-kv200-h2-d40-r16-c64-f16-causal",
)


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """What every problem gives, interpreted when it is asked for."""
    return interpret("kernels.triton.mla.backend", [f"triton.mla/{text}" for text in (*PREFILLS, *DECODES)])


@pytest.mark.parametrize("text", [*PREFILLS, *DECODES])
def test_right_on_every_small_problem(text: str, interpreted: Any, judge: Any) -> None:
    """Interpreted, it is within budget across dtypes, masks, ragged lengths, head counts and padded dimensions."""
    given = interpreted[f"triton.mla/{text}"]
    assert judge(text, given["outputs"]) == ()
    assert given["unchanged"]
    assert given["replays"]


def test_each_form_runs_with_its_own_configuration(interpreted: Any) -> None:
    """Up to 8 queries per sequence take the split kernels, more the one kernel; both record source and sizes."""
    for texts, kernel in ((PREFILLS, "mla"), (DECODES, "mla_decode")):
        for text in texts[2:4]:
            config = interpreted[f"triton.mla/{text}"]["config"]
            assert {name.partition(".")[0] for name in config} == {kernel}
            assert config[f"{kernel}.config_arch"] == "interpreter"
            assert "small tiles" in config[f"{kernel}.config_source"]


def test_many_parts_are_merged_where_a_rule_says_so(interpreted: Any) -> None:
    """The interpreter's rule for few rows merges from 5 parts on, and one case has 10; the other rules never do."""
    merging = {
        text: interpreted[f"triton.mla/{text}"]["config"]["mla_decode.MERGE_PARTS"]
        for text in DECODES
        if "mla_decode.MERGE_PARTS" in interpreted[f"triton.mla/{text}"]["config"]
    }
    assert set(merging.values()) == {"4"}
    assert 0 < len(merging) < len(DECODES)
    assert "mla-b1-s1-kv300-h3-d24-dv16-r8-c48-bf16-causal-lse" in merging
    for arch in ALL_ARCHS:
        assert not any(rule.config.get("MERGE_PARTS") for rule in DECODE.load_rules(arch)), "AMD's kernels stay"


def mistaken(text: str, mistake: str) -> dict[str, Any]:
    """The outputs of a kernel with one mistake."""
    workload = Mla.parse(text)
    q_nope, q_pe, latent, k_pe, wkv_b = workload.make_inputs(1, "cpu", planted=True)
    if mistake == "last key dropped":
        latent, k_pe = latent[:, :-1].contiguous(), k_pe[:, :-1].contiguous()
    elif mistake == "no rotated part":
        k_pe = k_pe * 0
    elif mistake == "W_UK of another head":
        wkv_b = wkv_b.roll(1, 0)
    elif mistake == "last latent columns dropped":
        latent = latent.clone()
        latent[..., -8:] = 0
    elif mistake == "not causal":
        workload = dataclasses.replace(workload, causal=False)
    return dict(workload.plain((q_nope, q_pe, latent, k_pe, wkv_b)))


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("mla-b1-s1-kv300-h8-d24-r8-c48-bf16", "last key dropped"),
        ("mla-b1-s33-kv300-h3-d24-r8-c48-f16", "last key dropped"),
        ("mla-b1-s33-kv70-h2-d64-r8-c64-f16-causal", "no rotated part"),
        ("mla-b1-s33-kv70-h2-d24-r8-c48-bf16-causal", "W_UK of another head"),
        ("mla-b1-s4-kv70-h2-d24-r8-c48-bf16-causal", "last latent columns dropped"),
        ("mla-b1-s33-kv70-h2-d24-r8-c48-bf16-causal", "not causal"),
    ],
)
def test_a_typical_mistake_is_rejected(text: str, mistake: str, judge: Any) -> None:
    """The plain computation passes, and with one mistake in it does not."""
    assert judge(text, mistaken(text, "")) == ()
    assert judge(text, mistaken(text, mistake)) != ()


@pytest.mark.parametrize("keys", [-1, 1])
def test_a_mask_off_by_one_is_rejected(keys: int, judge: Any) -> None:
    """Rows that see one key less than they should are rejected, and so are rows that see one more."""
    functional = pytest.importorskip("torch.nn.functional")
    workload = Mla.parse("mla-b1-s33-kv70-h2-d24-r8-c48-bf16-causal")
    q_nope, q_pe, latent, k_pe, wkv_b = workload.make_inputs(1, "cpu", planted=True)
    # Bottom-right alignment follows the number of keys: the last one is cut off, or one of zeros put behind it.
    latent, k_pe = (functional.pad(part, (0, 0, 0, keys)).contiguous() for part in (latent, k_pe))
    shifted = dataclasses.replace(workload, seq_kv=70 + keys)
    assert judge(workload.id, shifted.plain((q_nope, q_pe, latent, k_pe, wkv_b))) != ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("s8-h2-d64-r32-c576-f16", "latent_dim 576 is above 512, the largest this kernel takes"),
        ("s8-h2-d264-dv64-r32-c64-f16", "nope_dim 264 is above 256, the largest this kernel takes"),
        ("s8-h2-d64-dv264-r32-c64-f16", "value_dim 264 is above 256, the largest this kernel takes"),
        ("s8-h2-d64-r264-c64-f16", "rope_dim 264 is above 256, the largest this kernel takes"),
    ],
)
def test_says_what_it_does_not_compute(text: str, reason: str) -> None:
    """Dimensions that do not fit are each refused by one reason with the value seen."""
    assert BACKEND.unsupported_reasons(Mla.parse(f"mla-b1-{text}"), INTERPRETING) == [reason]


@pytest.mark.parametrize(("dtype", "matrix"), [("f16", True), ("bf16", True), ("f32", False)])
@pytest.mark.parametrize(("seq_q", "kernels"), [(8, DECODE_KERNELS), (9, ("mla_kernel",))])
def test_what_it_declares(seq_q: int, kernels: tuple[str, ...], dtype: str, matrix: bool) -> None:
    """Its own kernels must be among what ran on a GPU; half precision is multiplied by matrix instructions."""
    pytest.importorskip("triton")
    workload = Mla(1, seq_q, 2, 16, 16, 32, dtype=dtype)
    declares = BACKEND.prepare(workload, workload.make_inputs(0, "cpu", planted=False)).declares
    assert (declares.kernels, declares.never) == (kernels, ("scaled_dot_product",))
    assert declares.matrix is matrix


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({0: (1, 4, 2, 16, 1)}, "q_nope, k_pe and wkv_b have 5, 3 and 3 dimensions; needed are"),
        ({1: (1, 4, 3, 8)}, r"q_pe has shape \(1, 4, 3, 8\); by the other arguments it must be \(1, 4, 2, 8\)"),
        ({2: (1, 6, 32)}, r"kv_latent has shape \(1, 6, 32\); by the other arguments it must be \(1, 5, 32\)"),
        ({4: (2, 16, 32)}, r"wkv_b has shape \(2, 16, 32\); by the other arguments it must be \(2, 17, 32\)"),
        ({2: (1, 3, 32), 3: (1, 3, 8)}, "causal needs at least as many keys as queries, got 3 and 4"),
    ],
)
def test_the_launchers_refuse_tensors_that_do_not_fit(changes: dict[int, Sequence[int]], message: str) -> None:
    """What is wrong with a tensor is said with its name, its shape and the one that is needed, before a launch."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.mla.decode import mla_decode
    from kernels.triton.mla.launch import mla_prefill

    shapes = [(1, 4, 2, 16), (1, 4, 2, 8), (1, 5, 32), (1, 5, 8), (2, 32, 32)]
    tensors = [torch.zeros(*changes.get(index, shape)) for index, shape in enumerate(shapes)]
    for launch in (mla_prefill, mla_decode):
        with pytest.raises(UsageError, match=message):
            launch(*tensors, causal=True, with_lse=False, config={})


def test_the_launchers_refuse_dtypes_and_strides() -> None:
    """Another dtype, two dtypes, and a tensor that is not contiguous are each named."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.mla.launch import check_tensors

    good = Mla(1, 4, 2, 16, 8, 32).make_inputs(0, "cpu", planted=False)
    check_tensors(*good, causal=True)
    for index, tensor, message in (
        (0, good[0].double(), "q_nope has dtype torch.float64; allowed are float16, bfloat16 and float32"),
        (3, good[3].float(), "k_pe is torch.float32 on cpu; q_nope is torch.float16 on cpu"),
        (2, torch.zeros(1, 32, 4, dtype=torch.half).transpose(1, 2), "kv_latent has shape .* must be contiguous"),
    ):
        with pytest.raises(UsageError, match=message):
            check_tensors(*[*good[:index], tensor, *good[index + 1 :]], causal=True)


@pytest.mark.parametrize(
    ("seq_kv", "block_n", "programs", "wanted", "keys"),
    [(4096, 64, 32, 132, 1024), (4096, 64, 200, 132, 4096), (97, 32, 1, 100, 32), (1, 64, 1, 100, 64)],
)
def test_keys_are_split_until_the_device_is_full(
    seq_kv: int, block_n: int, programs: int, wanted: int, keys: int
) -> None:
    """Parts are whole tiles, none is empty, and there are no more programs than wanted unless one each is more."""
    pytest.importorskip("triton")
    from kernels.triton.mla.decode import split_keys

    assert split_keys(seq_kv, block_n, programs, wanted) == keys


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1151", "gfx1201"])
def test_rdna_is_refused_with_the_reason(arch: str) -> None:
    """Neither compiled for nor run on RDNA, whose registers do not hold 512 latent dimensions."""
    device = DeviceInfo(kind="rocm", arch=arch, product="radeon")
    reasons = BACKEND.unsupported_reasons(Mla.parse(DECODES[0]), device)
    assert len(reasons) == 1
    assert "has only 256 vector registers per wave" in reasons[0]
    assert all(kernel.unsupported_reasons(arch) == reasons for kernel in KERNELS)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "sm_90", "gfx908"])
def test_every_rule_is_built_as_it_is_launched(arch: str) -> None:
    """Each rule has a build with an id of its own, which gives every argument of its kernel; at most 8 per kernel."""
    jit = pytest.importorskip("triton.runtime.jit")
    for kernel in (one for one in KERNELS if one is not PERSISTENT_KERNEL):
        builds = kernel.builds(arch)
        assert 3 <= len(builds) <= 8
        for build in builds:
            source = build.source
            assert isinstance(source, TritonSource)
            function = getattr(importlib.import_module(source.module), source.function)
            assert isinstance(function, jit.JITFunction)
            assert source.signature.keys() | source.constants.keys() == set(function.arg_names)


@pytest.mark.parametrize("space", [PREFILL, DECODE], ids=lambda space: space.kernel)
def test_every_problem_has_a_rule(space: Any) -> None:
    """Every architecture has a configuration for the smallest and the largest problems that are not refused."""
    for arch in (*ALL_ARCHS, "sm_90", "interpreter", "unknown"):
        for bits in (16, 32):
            for latent in (1, 512):
                problem = {"latent_dim": latent, "element_bits": bits, "rows": 1 if latent == 1 else 8 * 512}
                assert space.choose(arch, {name: problem[name] for name in space.properties}).rule.source


@pytest.mark.gpu
@pytest.mark.parametrize("text", [*PREFILLS, *DECODES])
def test_right_on_every_small_problem_on_a_gpu(text: str, judge: Any) -> None:
    """Compiled, it is within budget on the same problems."""
    workload = Mla.parse(text)
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    assert judge(text, prepared.outputs(prepared.run()), device="cuda") == ()


@pytest.mark.gpu
@pytest.mark.parametrize(
    "text",
    [
        "mla-b1-s130-kv300-h2-d128-r64-c512-bf16-causal-lse",
        "mla-b2-s1-kv1000-h16-d128-r64-c512-bf16-lse",
        "mla-b2-s2-kv1000-h128-d128-r64-c512-f16-causal",
        "mla-b1-s20-kv100-h2-d128-r64-c512-f32-causal",
    ],
)
def test_right_with_deepseeks_dimensions_on_a_gpu(text: str, judge: Any) -> None:
    """Compiled with latents of 512, it is within budget on ragged lengths."""
    workload = Mla.parse(text)
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    assert judge(text, prepared.outputs(prepared.run()), device="cuda") == ()
