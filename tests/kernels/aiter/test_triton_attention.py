"""aiter's Triton attention and its backward pass, through stubs in place of its modules; and its limits."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.aiter.triton_attention import PARTS, TritonMha
from pytest_attnperf.backends import Backend, Prepared, Tensors
from pytest_attnperf.correctness.references import References
from pytest_attnperf.errors import AttnperfError, UnsupportedError, UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import parse_workload
from tests.kernels.judging import find_problems

torch = pytest.importorskip("torch")
HERE = Path(__file__).parent
MI300X = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
BUCKET = {"BLOCK_M": 128, "BLOCK_N": 64, "PRELOAD_V": False, "waves_per_eu": 2, "num_warps": 4, "num_stages": 1}
KERNEL = "def _attn_fwd(\n    q_ptr, {0}BLOCK_DMODEL_PE: tl.constexpr, PRELOAD_V: tl.constexpr\n): ...\n"
TRITON, DAO = "aiter.triton", "aiter.triton_dao"
REFERENCES = References()
MODULE = "aiter.ops.triton.attention.mha"
FORWARD = (
    "prefill-b2-s9-kv13-h4-hk2-d16-f16-causal-lse",
    "prefill-b1-s40-h2-d20-bf16-alibi",
    "prefill-b1-s40-h2-d16-w7-bf16-causal-lse",
    "prefill-b1-s13-kv9-h2-d16-f16-causal",
    "prefill-b1-s8-h2-d16-f32-lse",
    "varlen-q5_33_17-kv6_33_19-h4-hk1-d32-f16-causal-lse",
    "varlen-q5_9-h4-hk2-d32-w4-bf16-causal-alibi",
)
BACKWARD = ("backward-b2-s9-kv13-h4-hk2-d16-bf16-causal", "varlen_backward-q5_33-kv8_40-h4-hk2-d16-f16-causal")


def part(name: str, family: str) -> Backend:
    """The part of a backend for one family."""
    return next(one for who, of, one in PARTS if (who, of) == (name, family))


@pytest.fixture
def aiter(aiter_package: Callable[..., Path]) -> Callable[..., Path]:
    """A package with stubs of the Triton attention; further files replace or add to them."""

    def put(**files: str) -> Path:
        dao = (HERE / "stub_dao.py").read_text()
        folder = "ops/triton/_triton_kernels"
        given = {
            "ops/triton/attention/mha.py": (HERE / "stub_triton_mha.py").read_text(),
            "ops/triton/attention/mha_onekernel_bwd.py": dao,
            f"{folder}/flash_attn_triton_amd/interface_v2.py": dao,
            f"{folder}/attention/mha.py": KERNEL.format("SLIDING_WINDOW: tl.constexpr, "),
            "ops/triton/configs/gfx942-MHA-DEFAULT.json": json.dumps({"fwd": {"default": BUCKET}}),
            "_version.py": "__version__ = '9.9'",
        }
        return aiter_package({**given, **files})

    put()
    return put


def prepared(name: str, text: str, seed: int = 1) -> tuple[Prepared, Workload, Tensors]:
    """Bound to planted inputs."""
    workload = parse_workload(text)
    inputs = workload.make_inputs(seed, "cpu", planted=True)
    return part(name, workload.family).prepare(workload, inputs), workload, inputs


def wrong(bound: Prepared, workload: Workload, inputs: Tensors, seed: int = 1) -> tuple[str, ...]:
    """What the judge's arithmetic finds wrong with what it returns now."""
    expected = REFERENCES.compute_expected(workload, inputs, seed=seed, planted=True)
    return find_problems(expected, bound.outputs(bound.run()), part(TRITON, workload.family).tolerance)


@pytest.mark.parametrize("text", [*FORWARD, *BACKWARD])
def test_the_default_implementation_is_right(aiter: Callable[..., Path], text: str) -> None:
    """Layouts, masks, windows, slopes and log-sum-exp reach the function so that it computes the workload."""
    assert part(TRITON, parse_workload(text).family).unsupported_reasons(parse_workload(text), MI300X) == []
    bound, workload, inputs = prepared(TRITON, text)
    assert wrong(bound, workload, inputs) == ()
    assert bound.config["path"] == "triton"


def test_inputs_that_are_loaded_later(aiter: Callable[..., Path]) -> None:
    """They are converted as the first ones were; the forward pass of a backward pass runs anew."""
    for text in (FORWARD[1], BACKWARD[0]):
        bound, workload, _ = prepared(TRITON, text)
        later = workload.make_inputs(2, "cpu", planted=True)
        bound.load(later)
        assert wrong(bound, workload, later, 2) == ()


@pytest.mark.parametrize("text", [FORWARD[0], FORWARD[1], FORWARD[5], *BACKWARD])
def test_dao_ai_is_right_and_put_back(aiter: Callable[..., Path], text: str) -> None:
    """The other implementation runs in the call alone, with its own layout of lse; afterwards the default is set."""
    assert part(DAO, parse_workload(text).family).unsupported_reasons(parse_workload(text), MI300X) == []
    bound, workload, inputs = prepared(DAO, text)
    assert wrong(bound, workload, inputs) == ()
    assert (bound.config["path"], bound.config["toggle._MHA_IMPL"]) == ("triton_dao", "dao_ai")
    assert sys.modules[MODULE]._MHA_IMPL == "default"


def test_the_strides_of_the_process_reach_the_backward_pass(
    aiter: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`mha_set_use_int64_strides` is recorded as it is set, so it must hold for what is timed."""
    prepared(TRITON, BACKWARD[0])
    kernels = sys.modules["aiter.ops.triton.attention.mha_onekernel_bwd"]
    given = []

    @functools.wraps(kernels.flash_attn_onekernel_backward)
    def noted(*args: Any, **kwargs: Any) -> Any:
        given.append(kwargs["USE_INT64_STRIDES"])
        return noted.__wrapped__(*args, **{**kwargs, "USE_INT64_STRIDES": True})  # type: ignore[attr-defined]

    monkeypatch.setattr(kernels, "flash_attn_onekernel_backward", noted)
    for value in (True, False):
        monkeypatch.setattr(sys.modules[MODULE], "_USE_INT64_STRIDES", value)
        bound, *_ = prepared(TRITON, BACKWARD[0])
        assert bound.config["toggle._USE_INT64_STRIDES"] == str(value)
    assert given == [True, False]


@pytest.mark.parametrize("name", [TRITON, DAO])
def test_a_forward_pass_without_a_configuration_is_unsupported(aiter: Callable[..., Path], name: str) -> None:
    """The untimed forward pass of a backward case calls aiter, too, and fails for the same reasons."""
    text = (HERE / "stub_triton_mha.py").read_text()
    absent = "    raise FileNotFoundError(2, 'No such file', '/c/gfx942-MHA-DEFAULT.json')\n"
    head = "def _forward(q, k, v, scale, causal, window, slopes, bounds, packed):\n"
    assert head in text
    aiter(**{"ops/triton/attention/mha.py": text.replace(head, head + absent)})
    with pytest.raises(UnsupportedError, match="no Triton MHA config for gfx942"):
        prepared(name, BACKWARD[0])


def test_another_alignment_of_the_mask_is_found(aiter: Callable[..., Path]) -> None:
    """A causal mask aligned to the top left is wrong where there are more keys than queries."""
    bound, workload, inputs = prepared(TRITON, FORWARD[0])
    sys.modules[MODULE].TOP_LEFT = True  # type: ignore[attr-defined]
    assert wrong(bound, workload, inputs) != ()


def test_another_implementation_than_promised_is_refused(aiter: Callable[..., Path]) -> None:
    """A library that ignores the toggle would time the default kernel under the name of the other."""
    text = (HERE / "stub_triton_mha.py").read_text()
    aiter(**{"ops/triton/attention/mha.py": text.replace('if _MHA_IMPL == "dao_ai"', "if False")})
    with pytest.raises(AttnperfError, match="is to run aiter's triton_dao, but what ran is: triton;"):
        prepared(DAO, FORWARD[0])


def test_the_toggle_of_the_process_does_not_leak_in(aiter: Callable[..., Path]) -> None:
    """`aiter.triton` runs the default kernel whatever the process has set, and leaves that as it was."""
    prepared(TRITON, FORWARD[0])
    sys.modules[MODULE].mha_set_impl("dao_ai")
    bound, workload, inputs = prepared(TRITON, FORWARD[0])
    assert bound.config["path"] == "triton"
    assert sys.modules[MODULE]._MHA_IMPL == "dao_ai"
    assert wrong(bound, workload, inputs) == ()


def test_an_aiter_without_the_toggle(aiter: Callable[..., Path]) -> None:
    """Its default implementation is the only one: `aiter.triton_dao` is unsupported, `aiter.triton` runs."""
    text = (HERE / "stub_triton_mha.py").read_text()
    aiter(**{"ops/triton/attention/mha.py": f"{text}\ndel _MHA_IMPL, mha_set_impl\n"})
    with pytest.raises(UnsupportedError, match=r"has no aiter\.ops\.triton\.attention\.mha\.mha_set_impl"):
        prepared(DAO, FORWARD[0])


def test_the_old_place_is_found(aiter_package: Callable[..., Path]) -> None:
    """Until v0.1.9 the module lies in ops/triton itself."""
    aiter_package({"ops/triton/mha.py": (HERE / "stub_triton_mha.py").read_text()})
    bound, workload, inputs = prepared(TRITON, FORWARD[0])
    assert wrong(bound, workload, inputs) == ()


def test_the_configuration_of_aiters_file_is_recorded(aiter: Callable[..., Path]) -> None:
    """What its lookup gives is in the record with versions and toggles, and nothing is passed to the call."""
    bound, *_ = prepared(TRITON, FORWARD[1])
    said = bound.config
    assert (said["BLOCK_M"], said["PRELOAD_V"], said["config_source"]) == ("128", "False", "aiter's file")
    assert (said["aiter"], said["padded_in_call"], said["toggle._USE_FUSED_BWD_KERNEL"]) == ("9.9", "True", "False")
    assert sys.modules[MODULE].CALLS[-1]["config"] is None
    assert sys.modules[MODULE].CALLS[-1]["slopes"] == (2, 1)


def test_a_given_configuration_reaches_the_call_and_is_replayed(aiter: Callable[..., Path]) -> None:
    """`with_config` passes it, its record can be pinned, and a stored configuration of aiter's own is passed, too."""
    values = {"BLOCK_M": 64, "BLOCK_N": 32, "PRELOAD_V": True, "num_warps": 4}
    workload = parse_workload(FORWARD[0])
    inputs = workload.make_inputs(1, "cpu", planted=False)
    backend = TritonMha(TRITON).with_config(values)
    bound = backend.prepare(workload, inputs)
    bound.run()
    assert sys.modules[MODULE].CALLS[-1]["config"] == values
    assert bound.config["config_source"] == "given to the call"
    assert TritonMha(TRITON).replay_config(bound.config).values == values
    assert TritonMha(TRITON).replay_config(prepared(TRITON, FORWARD[0])[0].config).values["BLOCK_N"] == 64


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"path": "triton"}, "holds no BLOCK_M"),
        ({"BLOCK_M": "64"}, "has no BLOCK_N"),
        ({"BLOCK_M": "wide", "BLOCK_N": "32"}, "the stored BLOCK_M is 'wide', must be a whole number"),
        ({"BLOCK_M": "64", "BLOCK_N": "32", "PRELOAD_V": "1"}, "the stored PRELOAD_V is '1', must be True or False"),
    ],
)
def test_what_cannot_be_pinned(config: dict[str, str], told: str) -> None:
    """An entry that is missing or no value is named."""
    with pytest.raises(UsageError, match=told):
        TritonMha(TRITON).replay_config(config)


def test_what_is_no_configuration() -> None:
    """Unknown names are refused, and every configuration of what aiter tunes itself."""
    with pytest.raises(UsageError, match=r"a configuration of aiter\.triton has TILE"):
        TritonMha(TRITON).with_config({"BLOCK_M": 1, "BLOCK_N": 1, "TILE": 2})
    with pytest.raises(UsageError, match=r"aiter\.triton_dao ignores a configuration"):
        TritonMha(DAO, impl="dao_ai").with_config({"BLOCK_M": 1, "BLOCK_N": 1})


@pytest.mark.parametrize(("names", "told"), [((), "has no PRELOAD_V"), (("PRELOAD_V",), "needs PRELOAD_V")])
def test_a_configuration_that_the_kernel_does_not_fit(
    aiter: Callable[..., Path], names: tuple[str, ...], told: str
) -> None:
    """PRELOAD_V is mandatory where the kernel has it, and forbidden where it has not."""
    values: dict[str, Any] = {"BLOCK_M": 64, "BLOCK_N": 32, **({} if names else {"PRELOAD_V": True})}
    text = (HERE / "stub_triton_mha.py").read_text().replace('"PRELOAD_V", "BLOCK_M"', f'*{names!r}, "BLOCK_M"')
    aiter(**{"ops/triton/attention/mha.py": text})
    workload = parse_workload(FORWARD[0])
    with pytest.raises(UnsupportedError, match=told):
        TritonMha(TRITON).with_config(values).prepare(workload, workload.make_inputs(1, "cpu", planted=False))


REFUSED = (
    (TRITON, "prefill-b1-s16-h2-d64-f16-bias", "takes no bias matrix"),
    (TRITON, "prefill-b1-s16-h2-d64-f8e4m3fnuz", "quantises within the call"),
    (TRITON, "prefill-b1-s16-h2-d64-w1-f16-causal", "which it reads as none"),
    (TRITON, "prefill-b1-s16-kv8-h2-d64-f16-causal-lse", "stores 0 as log-sum-exp of rows that see no key"),
    (TRITON, "varlen-q8-kv4-h2-d64-f16-causal", "past the end of its sequence"),
    (TRITON, "prefill-b1-s16-h2-d512-f16", "up to a head_dim of 256, this one is 512"),
    (TRITON, "prefill-b1-s16-h2-d64-dv128-f16", "powers of 2 from 16 on, not 64 and 128"),
    (TRITON, "prefill-b1-s16-h2-d192-dv96-f16", "powers of 2 from 16 on, not 192 and 96"),
    (DAO, "prefill-b1-s16-h2-d64-f32", "takes bf16, f16, not f32"),
    (DAO, "prefill-b1-s16-h2-d64-w9-f16-causal", "takes no sliding window"),
    (DAO, "prefill-b1-s16-h2-d192-dv128-f16", "takes one head dimension"),
    (TRITON, "backward-b1-s16-h2-d64-f32", "is offered for bf16, f16, not for f32"),
    (TRITON, "backward-b1-s16-h2-d20-f16", "that are multiples of 8, not for 20"),
    (DAO, "backward-b1-s16-kv8-h2-d64-f16-causal", "was not verified for rows that see no key"),
    (TRITON, "varlen_backward-q8_4-kv2x4-h2-d64-f16-causal", "was not verified for rows that see no key"),
)


@pytest.mark.parametrize(("name", "text", "told"), REFUSED)
def test_what_it_does_not_take(aiter: Callable[..., Path], name: str, text: str, told: str) -> None:
    """Every limit has a reason of its own."""
    workload = parse_workload(text)
    assert told in "; ".join(part(name, workload.family).unsupported_reasons(workload, MI300X))


def test_pe_dimensions_are_taken(aiter: Callable[..., Path]) -> None:
    """192 beside 128 is what the kernel calls positional encoding."""
    assert TritonMha(TRITON).unsupported_reasons(parse_workload("prefill-b1-s16-h2-d192-dv128-f16"), MI300X) == []


def test_an_older_kernel_takes_no_window(aiter: Callable[..., Path]) -> None:
    """Whether it has one is read from the arguments of the kernel in the installed files."""
    aiter(**{"ops/triton/_triton_kernels/attention/mha.py": KERNEL.format("")})
    (reason,) = TritonMha(TRITON).unsupported_reasons(parse_workload(FORWARD[2]), MI300X)
    assert "takes no sliding window" in reason


def test_an_architecture_without_a_file(aiter: Callable[..., Path]) -> None:
    """Named with those that have one; a configuration of one's own makes up for it, and dao_ai needs none."""
    mi200 = DeviceInfo(kind="rocm", arch="gfx90a", product="mi250")
    workload = parse_workload(FORWARD[0])
    (reason,) = TritonMha(TRITON).unsupported_reasons(workload, mi200)
    assert reason.startswith("this aiter has no Triton attention configuration for gfx90a; it has gfx942")
    given = TritonMha(TRITON).with_config({"BLOCK_M": 64, "BLOCK_N": 32})
    assert given.unsupported_reasons(workload, mi200) == part(DAO, "prefill").unsupported_reasons(workload, mi200) == []


def test_not_on_other_devices(aiter: Callable[..., Path]) -> None:
    """On an NVIDIA GPU it is unsupported, whatever is installed."""
    h200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
    for text in (FORWARD[0], BACKWARD[0]):
        workload = parse_workload(text)
        reasons = part(TRITON, workload.family).unsupported_reasons(workload, h200)
        assert reasons[0] == "aiter runs on ROCm devices, this one is cuda (sm_90)"


@pytest.mark.parametrize(
    ("text", "arch", "bucket"),
    [
        ("prefill-b1-s16-h2-d128-f16", "gfx942", "default"),
        ("prefill-b1-s16-h2-d64-f16", "gfx942", "default"),
        ("prefill-b1-s16-h2-d64-f16", "gfx950", "small_head"),
        ("varlen-q16-h2-d60-f16", "gfx950", "small_head"),
        ("prefill-b1-s16-h2-d16-f16", "gfx950", "default"),
        ("prefill-b1-s16-h2-d64-f32", "gfx950", "dropout_or_fp32"),
        ("prefill-b1-s16-h2-d192-dv128-bf16", "gfx942", "pe"),
        ("prefill-b1-s16-h2-d192-dv128-f32", "gfx942", "pe_dropout_or_fp32"),
    ],
)
def test_the_bucket_of_a_workload(text: str, arch: str, bucket: str) -> None:
    """As aiter's lookup decides: by element type and head dimensions."""
    assert TritonMha(TRITON).bucket_of(parse_workload(text), arch) == bucket  # type: ignore[arg-type]


def test_the_bucket_follows_the_installed_file(aiter: Callable[..., Path]) -> None:
    """A file without a bucket is not asked for it."""
    workload: Any = parse_workload("prefill-b1-s16-h2-d192-dv128-bf16")
    assert TritonMha(TRITON).bucket_of(workload, "gfx942") == "default"
