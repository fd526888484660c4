"""The source tree that AITER_SOURCE names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kernels.aiter.contract.source import HOW, Source


@pytest.fixture(scope="session")
def source() -> Source:
    """A real tree; skips without one, fails where the variable names none."""
    root = os.environ.get("AITER_SOURCE", "")
    if not root:
        pytest.skip(HOW)
    found = Source(Path(root))
    if found.path("aiter.ops.mha") is None:
        pytest.fail(f"AITER_SOURCE={root} holds no aiter/ops/mha.py; {HOW}")
    return found
