"""Features: what a run does besides judging cases. Each is loaded only if it is on."""
