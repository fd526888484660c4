"""The backward pass of attention, in three kernels."""
