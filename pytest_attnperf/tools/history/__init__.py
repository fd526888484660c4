"""Keeps every run's times in a SQL store, and finds lasting changes. Needs the extra `history`."""
