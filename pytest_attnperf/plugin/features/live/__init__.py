"""How far a run is, on a line of a terminal or now and then in a log."""
