"""Occupancy of compiled kernels, for the command of that name."""
