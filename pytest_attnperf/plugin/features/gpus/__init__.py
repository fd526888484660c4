"""Chooses the GPUs of a run, alone and under pytest-xdist."""
