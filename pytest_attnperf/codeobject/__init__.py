"""Compiled kernels without a GPU: compile, read, disassemble, count, and say what fits a compute unit."""
