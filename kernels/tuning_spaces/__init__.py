"""What our kernels declare to the tuner: values to try, constraints, and builds."""
