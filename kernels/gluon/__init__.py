"""Kernels in Gluon, Triton's dialect with explicit layouts, shared memory and copies: a file per architecture."""
