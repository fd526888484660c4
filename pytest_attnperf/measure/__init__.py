"""Measuring one case inside its worker: warm-up, timers, stopping, rejection, memory, and the subject itself."""
