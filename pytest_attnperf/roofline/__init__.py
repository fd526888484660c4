"""What the hardware allows: floors of time, and whether a measured time is plausible."""
