"""Dispatch tables from measured times: which backend to use for which workload, and a function to paste."""
