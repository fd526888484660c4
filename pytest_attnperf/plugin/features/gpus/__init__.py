"""Which GPUs a run uses, alone and under pytest-xdist."""
