"""Backends of ROCm/aiter. The package of that name on PyPI is an unrelated one."""
