"""Limits of the hardware: floors of time, and whether a measured time is plausible."""
