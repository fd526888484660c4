"""Dense attention forward over transposed values."""
