"""`pytest_attnperf.testing.fake.device` by the name that users' conftest files have."""

from pytest_attnperf.testing.fake.device import *  # noqa: F403
