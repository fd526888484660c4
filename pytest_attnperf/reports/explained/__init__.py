"""A verdict in words: what it means, why, what it is not, what to do next, and every figure behind it."""
