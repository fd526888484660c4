"""Draws tables for a terminal: widths, colours, rounding."""
