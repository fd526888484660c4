"""Our own attention kernels in HIP: one source for AMD, NVIDIA and an emulator on the CPU."""
