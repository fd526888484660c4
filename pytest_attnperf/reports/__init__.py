"""Results made readable: tables, terminal lines, JUnit properties, JSON. Sees records and results only."""
