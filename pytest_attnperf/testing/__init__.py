"""A fake device and a throw-away project, for tests of this package and of its users."""
