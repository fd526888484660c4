"""Finds which component of two environments made cases slower or faster: decides what to measure, and what it shows."""
