"""Stored measurements, and published figures that are shown beside them."""
