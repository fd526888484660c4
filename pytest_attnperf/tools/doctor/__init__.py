"""`attnperf doctor`: what this machine and these packages do to the numbers, and the command that mends it."""
