"""What is said of a case, and why: pure functions of measurements, noise and policy."""
