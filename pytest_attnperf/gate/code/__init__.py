"""Compares compiled kernels with stored ones: registers, spills, LDS, instruction classes."""
