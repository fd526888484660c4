"""Readers of what profilers write, and what is concluded from it: where time goes, and what binds a kernel."""
