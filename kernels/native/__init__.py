"""Backends made of what torch brings."""
