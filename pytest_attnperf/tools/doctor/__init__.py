"""`attnperf doctor`: finds what disturbs measurements on this machine, and names a command that fixes it."""
