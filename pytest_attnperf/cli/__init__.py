"""The command `attnperf`."""

from pytest_attnperf.cli.main import main

__all__ = ["main"]
