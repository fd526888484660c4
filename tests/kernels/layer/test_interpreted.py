"""Layers over Triton's kernels, interpreted: right through the judge, their stages, and pinned configurations."""

from __future__ import annotations

from typing import Any

import pytest

PROMPT = "block-b1-s5-room40-h2-hk1-d64-f16-bias"
GROWN = f"grown/{PROMPT}"
CASES = (
    f"layer.triton.flash_persistent/{PROMPT}",
    f"layer.triton.flash_trans_v/{PROMPT}",
    f"layer.triton.staged/{PROMPT}",
    "layer.triton.flash/block-b2-s9-p20-h2-hk1-d16-bf16",
    "layer.triton.flash_decode/block-b2-s3-p20-room40-e24-h4-hk2-d16-f32",
)
"""Those of one block in a row, for a reference is kept for one only."""


@pytest.fixture(scope="module")
def found(interpret: Any) -> Any:
    """What is found of every case, interpreted when it is asked for."""
    return interpret("tests.kernels.layer.judge_interpreted", (GROWN, *CASES))


@pytest.mark.parametrize("case", CASES)
def test_right_over_every_triton_backend(case: str, found: Any) -> None:
    """Prompts, a later part of one, and decode steps, over caches with and without more room, pass the judge."""
    assert found[case]["problems"] == []
    assert found[case]["config"]["rope"] == "triton.rope"
    assert found[case]["config"]["copied_for_rope"] == "q, k"


def test_what_is_transposed_for_the_kernel_is_recorded(found: Any) -> None:
    """Values that a kernel wants in another layout are copied within the call; other kernels read the cache itself."""
    copied = {case.partition("/")[0]: found[case]["config"]["copied_for_attention"] for case in CASES}
    assert copied.pop("layer.triton.flash_trans_v") == "v"
    assert set(copied.values()) == {"none"}


@pytest.mark.parametrize("case", CASES)
def test_a_stored_configuration_is_replayed(case: str, found: Any) -> None:
    """Both the attention and the rope run with what is stored, also where that is not what they would choose."""
    stored, replayed, chosen = (found[case][name] for name in ("stored", "replayed", "config"))
    assert stored != chosen
    assert {key: replayed[key] for key in stored if not key.endswith("config_source")} == {
        key: value for key, value in stored.items() if not key.endswith("config_source")
    }
    assert {key.partition(".")[0] for key, value in replayed.items() if value.startswith("pinned")} == {
        "attention",
        "rope",
    }


def test_tokens_decoded_one_by_one_are_right(found: Any) -> None:
    """Decoding with one cache that grows is within the budget of the whole prompt."""
    assert found[GROWN]["problems"] == []
