"""RMSNorm in one pass: `rms_norm` for users, `rms_norm_triton` and `plain_rms_norm` for tests."""

from own_kernel.kernel import plain_rms_norm, rms_norm, rms_norm_triton

__all__ = ["plain_rms_norm", "rms_norm", "rms_norm_triton"]
