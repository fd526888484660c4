"""How pytest is wired: the only imports of pytest besides `testing`."""
