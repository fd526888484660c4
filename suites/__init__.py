"""Workload sets with their origin, and one short test file per op family."""
