"""Attention of packed sequences."""
