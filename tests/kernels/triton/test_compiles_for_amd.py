from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LDS_BYTES = {"gfx942": 64 * 1024, "gfx950": 160 * 1024}
"""Local data share of one workgroup, from AMD's CDNA3 and CDNA4 instruction set guides."""


@pytest.mark.parametrize("arch", sorted(LDS_BYTES))
def test_every_rule_compiles_within_lds_and_without_spills(arch: str) -> None:
    """On a machine without a GPU, each shipped rule of an AMD architecture becomes code that fits its LDS.

    Only the published rule may spill: its figures were tuned on another kernel, and changing them would leave it
    without a source.
    """
    backends = pytest.importorskip("triton.backends").backends
    if "amd" not in backends:
        pytest.skip(f"this triton was built without its AMD backend; it has {', '.join(sorted(backends))}")
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(Path(__file__).with_name("compile_for_amd.py")), arch]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    rules = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(rule["head_dim"], rule["element_bits"]) for rule in rules} >= {(256, 16), (256, 32)}
    for rule in rules:
        assert 0 < rule["lds_bytes"] <= LDS_BYTES[arch], rule
        assert rule["vgpr_spills"] == 0 or rule["source"].startswith("published"), rule
