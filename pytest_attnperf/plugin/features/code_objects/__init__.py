"""Compiled kernels in place of timed cases."""
