"""Hostile files for every reader: how they are made, which function reads them, and what it must not do meanwhile."""
