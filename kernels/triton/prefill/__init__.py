"""Dense attention forward, once per block and with a fixed number of programs."""
