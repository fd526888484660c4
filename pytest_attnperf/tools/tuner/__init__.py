"""Searches a kernel's configurations: space, searches, journal, and the decision whether the winner is better."""
