"""Matrix multiplication: in tiles, in equal shares (stream-K), and for a few rows."""
