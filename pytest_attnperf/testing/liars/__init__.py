"""Backends that lie, one for each rule of the judge, and their honest twins: tests the judge on your machine.

    pytest_plugins = ["pytest_attnperf.testing.liars"]        # in a conftest.py

registers all of them as `liar.<trick>` and `twin.<trick>`, of op family 'prefill'. Each supports one workload only
(see `LIARS`). Every liar must fail with its verdict, and every twin must pass. `pytest suites/` shows that the liars
fail, except those with `needs_timing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_attnperf.testing.liars.arithmetic import ARITHMETIC
from pytest_attnperf.testing.liars.caching import CACHING
from pytest_attnperf.testing.liars.deferring import DEFERRING
from pytest_attnperf.testing.liars.liar import Liar
from pytest_attnperf.testing.liars.masking import MASKING
from pytest_attnperf.testing.liars.posing import POSING
from pytest_attnperf.testing.liars.racing import RACING
from pytest_attnperf.testing.liars.timing import TIMING
from pytest_attnperf.testing.liars.untimed import UNTIMED
from pytest_attnperf.testing.liars.watching import WATCHING
from pytest_attnperf.testing.liars.writing import WRITING

if TYPE_CHECKING:
    from pytest_attnperf.backends import Registry

LIARS: tuple[Liar, ...] = (
    *(*MASKING, *ARITHMETIC, *WRITING, *CACHING, *DEFERRING, *UNTIMED),
    *(*POSING, *RACING, *WATCHING, *TIMING),
)
"""Every trick that the judge must detect."""


def pytest_attnperf_register_backends(registry: Registry) -> None:
    """Registers the cheating backends `liar.<trick>`, one for every trick in LIARS, then an honest counterpart of each,
    `twin.<trick>`."""
    registry.add(*(liar.lying for liar in LIARS))
    registry.add(*(liar.honest for liar in LIARS))
