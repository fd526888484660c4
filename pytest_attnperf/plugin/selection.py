"""What of the suite the command line selects."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.plugin import options


def is_unfiltered(config: pytest.Config) -> bool:
    """Whether everything was selected: only then does an entry without a case mean that a case has gone."""
    get = config.getoption
    filters = (
        options.run_text(config, "code-set"),
        get("keyword", default=""),
        get("markexpr", default=""),
        get("lf", default=False),
    )
    narrowed = any(filters) or any("::" in str(arg) for arg in config.args)
    by_us = any(options.run_text(config, name) for name in ("backend", "workload", "model", "code-set"))
    return not narrowed and not by_us


def whole_parts(config: pytest.Config) -> tuple[Path, ...]:
    """Files and folders that are selected as a whole; none where cases of them were picked out."""
    start = config.invocation_params.dir
    return tuple(Path(start, str(arg)).resolve() for arg in config.args) if is_unfiltered(config) else ()
