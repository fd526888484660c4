"""Writes results, and profiles, in the forms that other programs read."""
