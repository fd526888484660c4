"""Searches the first slow commit."""
