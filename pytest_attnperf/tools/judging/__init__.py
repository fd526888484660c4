"""`attnperf judge`: a verdict on one kernel file that nobody trusts."""
