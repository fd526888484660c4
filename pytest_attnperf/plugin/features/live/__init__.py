"""Progress of a run, on the last line of a terminal, or from time to time in a log."""
