"""Checks whether the statements of a published profile are possible."""
