"""Code objects: every kernel in every shipped configuration, compiled for architectures that need not be present."""

import pytest


@pytest.mark.attnperf_code
def test_code_object(code_object, kernel_build):
    """The kernel does not spill, keeps its matrix instructions and stores, and fits as many waves as before."""
    code_object.gate(kernel_build)
