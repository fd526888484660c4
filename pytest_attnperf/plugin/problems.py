"""What goes wrong at the end of a run is gathered, so that it keeps nothing else from being written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pytest_attnperf.errors import BaselineError


@contextlib.contextmanager
def noted(problems: list[str]) -> Iterator[None]:
    """One file that cannot be read or written must not keep the others from being written."""
    try:
        yield
    except (BaselineError, OSError) as error:
        problems.append(str(error))
