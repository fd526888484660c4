"""Text of the command `attnperf occupancy`: occupancy of compiled kernels."""
