"""Statistics over processes and pairs of processes, from the standard library alone."""
