"""Statistics over processes, from the standard library alone."""
