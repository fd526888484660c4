"""What all of this project's tests share: `pytester`, and the reason why a GPU test cannot run here."""

from __future__ import annotations

import functools

import pytest

pytest_plugins = ["pytester", "pytest_attnperf.testing.project"]


@functools.cache
def gpu_missing_reason() -> str:
    """Why no GPU test can run on this machine; empty when one can."""
    try:
        import torch
    except ModuleNotFoundError as error:
        return f"needs a GPU, and torch is not installed ({error})"
    return "" if torch.cuda.is_available() else f"needs a GPU that torch {torch.__version__} can use"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a GPU test where there is none. Asked when the test is about to run, so collecting never imports torch."""
    if item.get_closest_marker("gpu") is None:
        return
    if reason := gpu_missing_reason():
        pytest.skip(reason)
