"""What the builds of a Triton kernel declare, against the kernel itself."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from pytest_attnperf.kernel_builds import TritonSource


def assert_declares_every_argument(kernel: Any) -> None:
    """Signature and constants together are the arguments of the function, each once, in the module that holds it."""
    pytest.importorskip("triton")
    for build in kernel.builds("gfx942"):
        source = build.source
        assert isinstance(source, TritonSource)
        function: Any = getattr(importlib.import_module(source.module), source.function)
        assert sorted([*source.signature, *source.constants]) == sorted(function.arg_names)
        assert set(source.divisible_by_16) <= source.signature.keys()
