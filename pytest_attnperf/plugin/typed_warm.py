"""`attnperf warm`: pytest as it is typed for that."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_attnperf.plugin.own_pytest import Loader, no_xdist, own_options

INTERRUPTED = 130
"""As a shell says of a command that was interrupted."""

IMPORTED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""That this package is loaded already is no news to whoever types `attnperf warm`."""


def run_pytest(words: Sequence[str]) -> int:
    """Warm what these words of pytest's command line select; 0 all ready, 1 not all, 130 interrupted, else 2."""
    with own_options():
        ended = int(pytest.main(["--attnperf-warm", *IMPORTED, *no_xdist(), *words], plugins=[Loader()]))
    known = {0: 0, int(pytest.ExitCode.TESTS_FAILED): 1, int(pytest.ExitCode.INTERRUPTED): INTERRUPTED}
    return known.get(ended, 2)
