"""What a number was made on: GPUs, the device and its specification, the fingerprint that a comparison needs."""
