"""What our kernels declare to the tuner: the values to try of each, and what they are compiled as."""
