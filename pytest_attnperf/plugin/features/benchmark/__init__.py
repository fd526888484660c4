"""Passes the samples of cases to pytest-benchmark."""
