"""Says in words why a case has its verdict."""
