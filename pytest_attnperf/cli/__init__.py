"""The command `attnperf`."""

from pytest_attnperf.cli.program import main

__all__ = ["main"]
