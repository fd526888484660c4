"""Layers over Triton's kernels, interpreted: right through the judge, their stages, and pinned configurations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
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
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one interpreting process found, by case."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    saved = tmp_path_factory.mktemp("interpreted") / "found.json"
    script = Path(__file__).with_name("run_interpreted.py")
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(saved), GROWN, *CASES]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(saved.read_text()))


@pytest.mark.parametrize("case", CASES)
def test_right_over_every_triton_backend(case: str, found: dict[str, Any]) -> None:
    """Prompts, a later part of one, and decode steps, over caches with and without more room, pass the judge."""
    assert found[case]["problems"] == []
    assert found[case]["config"]["rope"] == "triton.rope"
    assert found[case]["config"]["copied_for_rope"] == "q, k"


def test_what_is_transposed_for_the_kernel_is_recorded(found: dict[str, Any]) -> None:
    """Values that a kernel wants in another layout are copied within the call; other kernels read the cache itself."""
    copied = {case.partition("/")[0]: found[case]["config"]["copied_for_attention"] for case in CASES}
    assert copied.pop("layer.triton.flash_trans_v") == "v"
    assert set(copied.values()) == {"none"}


@pytest.mark.parametrize("case", CASES)
def test_a_stored_configuration_is_replayed(case: str, found: dict[str, Any]) -> None:
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


def test_tokens_decoded_one_by_one_are_right(found: dict[str, Any]) -> None:
    """Decoding with one cache that grows is within the budget of the whole prompt."""
    assert found[GROWN]["problems"] == []
