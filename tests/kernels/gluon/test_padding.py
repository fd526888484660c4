"""Rows are copied into longer rows with zeros behind, and cut out of them again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

PROGRAM = """
import torch
from kernels.gluon.prefill.padding import resize_rows
for shape, columns in (((3, 7, 2, 59), 64), ((1, 5, 111), 112), ((40, 59), 64), ((2, 3, 64), 59), ((9, 8), 8)):
    x = torch.randn(shape).to(torch.bfloat16)
    expected = torch.nn.functional.pad(x, (0, columns - shape[-1]))
    assert torch.equal(resize_rows(x, columns), expected), (shape, columns)
    out = torch.full_like(expected, float("nan"))
    assert shape[-1] == columns or torch.equal(resize_rows(x, columns, out), expected) and torch.equal(out, expected)
assert resize_rows(x, 8) is x
print("equal")
"""


def test_rows_are_padded_and_cut() -> None:
    """Of any number and length, by Triton's interpreter; rows that fit stay where they are."""
    root = Path(__file__).parents[3]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(root)}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr
