"""Says what a run found, on a terminal."""
