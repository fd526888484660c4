"""A profile as sections of a page: what `attnperf profile` prints, as charts and tables."""
