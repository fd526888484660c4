"""Which backend to take where, from measured times: points, decisions, regions, and a function to paste."""
