"""Searches a kernel's configurations: space, searches, journal, and the decision whether a winner is one."""
