"""Copy, read, write and triad."""
