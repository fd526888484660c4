"""Decode attention over a cache, in splits that a second kernel joins."""
