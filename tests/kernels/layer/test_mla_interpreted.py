"""The layer over Triton's latent attention, interpreted: right through the judge, and pinned configurations."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.mla_block import MlaBlock
from tests.kernels.layer.judge_mla_interpreted import LAYER

INTERPRETING = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)
SIZES = "h4-q96-d32-r16-c64"
CASES = (
    f"mla_block-b1-s17-e160-{SIZES}-f16",
    f"mla_block-b2-s10-p13-e160-{SIZES}-bf16-fp8w",
    f"mla_block-b2-s1-p30-e160-{SIZES}-bf16",
    "mla_block-b1-s3-p20-room40-e160-h3-d24-dv16-r8-c48-f16",
)
"""A prompt, the next chunk of one, one token, and a few of a sequence whose cache has more room."""


@pytest.fixture(scope="module")
def found(interpret: Any) -> Any:
    """What is found of every case, interpreted when it is asked for."""
    return interpret("tests.kernels.layer.judge_mla_interpreted", CASES)


@pytest.mark.parametrize("case", CASES)
def test_right_interpreted(case: str, found: Any) -> None:
    """Prompts, chunks and decode steps pass the judge, with Triton's rope, and with queries and keys copied for it."""
    assert found[case]["problems"] == []
    assert found[case]["config"]["rope"] == "triton.rope"
    assert found[case]["config"]["copied_for_rope"] == "q_nope, q_pe, k_pe"
    assert found[case]["config"]["copied_for_attention"] == "none"
    assert found[case]["stages"][-4:] == ["cache_append", "attention", "flatten", "output_projection"]


@pytest.mark.parametrize("case", CASES[1:3])
def test_a_stored_configuration_is_replayed(case: str, found: Any) -> None:
    """Both the attention and the rope run with what is stored, also where that is not what they would choose."""
    stored, replayed = found[case]["stored"], found[case]["replayed"]
    chosen = {key for key in stored if not key.endswith("config_source")}
    assert {key: replayed[key] for key in chosen} == {key: stored[key] for key in chosen}
    pinned = {key.partition(".")[0] for key, value in replayed.items() if value.startswith("pinned")}
    assert pinned == {"attention", "rope"}


def test_what_triton_lacks_is_refused() -> None:
    """A mask, caches of heads, caches with gaps between sequences, and the operator's own limits."""
    for text, said in (
        (f"b1-s9-e160-{SIZES}-f16-mask", "triton.mla has a causal mask or none"),
        (f"b1-s9-e160-{SIZES}-f16-expanded", "triton.mla attends over cached latents"),
        (f"b2-s1-p9-room20-e160-{SIZES}-f16", "triton.mla needs contiguous latents, and the first 10 rows of 2"),
        ("b1-s9-e160-h4-d32-r16-c576-f16", "latent_dim 576 is above 512"),
    ):
        (reason,) = LAYER.unsupported_reasons(MlaBlock.parse(f"mla_block-{text}"), INTERPRETING)
        assert reason.startswith(said)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_right_on_a_gpu(case: str) -> None:
    """Compiled, it passes the judge on the same blocks."""
    from pytest_attnperf.correctness.judge import Judge
    from pytest_attnperf.correctness.references import References

    block = MlaBlock.parse(case)
    prepared = LAYER.prepare(block, block.make_inputs(1, "cuda", planted=False))
    judge = Judge(prepared, block, references=References(), tolerance=LAYER.tolerance, device="cuda")
    assert judge.check_call("one call", prepared.run, seed=2, planted=True).problems == ()
