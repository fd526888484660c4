"""Reads profilers' output and draws conclusions: where the time goes, and what limits a kernel."""
