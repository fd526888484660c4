"""Checks what a published profile says against what is possible."""
