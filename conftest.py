"""Registers this repository's kernels through the plugin's public hook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import kernels as registered

if TYPE_CHECKING:
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.kernel_builds import KernelRegistry


FIRST = (
    "test_demo test_prefill test_decode test_gemm test_softmax test_rmsnorm test_layernorm test_rope "
    "test_bandwidth test_mla test_varlen test_mixed test_backward test_attention_layer test_mla_layer "
    "test_attention_stages test_hip_ladder test_prefill_features test_trans_v"
)
"""Files whose tables people wait for, in this order; an ini key would stop a pytest without the plugin."""


def pytest_configure(config: pytest.Config) -> None:
    """Run these files first, unless another order was typed."""
    if getattr(config.option, "attnperf_first", "") is None:
        config.option.attnperf_first = FIRST


# Optional, so that the tree can still be collected by a pytest that does not have the plugin.
@pytest.hookimpl(optionalhook=True)
def pytest_attnperf_register_backends(registry: Registry) -> None:
    """Add the backends under kernels/."""
    registered.register(registry)


@pytest.hookimpl(optionalhook=True)
def pytest_attnperf_register_kernels(kernels: KernelRegistry) -> None:
    """Add the kernels under kernels/ that can be compiled for an architecture without having it."""
    registered.register_kernels(kernels)
