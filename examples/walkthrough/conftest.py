"""Sabotages one backend as ATTNPERF_SABOTAGE asks: slow:N (every N-th call runs twice), wrong, nan, or nothing."""

from __future__ import annotations

import os

import pytest

from pytest_attnperf.backends import Registry
from pytest_attnperf.testing.saboteurs import Slowed, WritesNaN, WritesNothing, WrongValue

TARGET = "native.sdpa_flash"


@pytest.hookimpl(trylast=True)
def pytest_attnperf_register_backends(registry: Registry) -> None:
    kind, _, amount = os.environ.get("ATTNPERF_SABOTAGE", "").partition(":")
    if not kind:
        return
    honest = registry.get(TARGET)
    saboteurs = {
        "slow": lambda: Slowed(honest, every=int(amount or 10)),
        "wrong": lambda: WrongValue(honest),
        "nan": lambda: WritesNaN(honest),
        "nothing": lambda: WritesNothing(honest),
    }
    if kind not in saboteurs:
        raise pytest.UsageError(f"ATTNPERF_SABOTAGE={kind!r} is not known; choose one of: {', '.join(saboteurs)}")
    registry.replace(saboteurs[kind]())
