"""Every run's times in a SQL store, and where they changed for good. Needs the extra `history`."""
