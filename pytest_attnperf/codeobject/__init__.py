"""Compiled kernels without a GPU: compile, read, disassemble, count instructions, and compute occupancy."""
