"""Python environments as data: what is installed in them, and others that are put together from two of them."""
