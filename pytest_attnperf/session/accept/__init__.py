"""Takes a wanted slowdown or another identity into the baselines."""
