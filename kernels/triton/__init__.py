"""Backends written in Triton in this repository."""
