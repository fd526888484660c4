"""Backends made of torch's own operators."""
