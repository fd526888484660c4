"""Unfused attention, one kernel per stage."""
