"""What `import pytest_attnperf` gives."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

import pytest_attnperf


def test_every_name_is_there_and_has_a_docstring() -> None:
    """Each of `__all__` can be imported, and says what it is."""
    for name in pytest_attnperf.__all__:
        exported = getattr(pytest_attnperf, name)
        assert name == "__version__" or exported.__doc__, name


def test_nothing_is_imported_before_it_is_used() -> None:
    """`import pytest_attnperf` loads no other module of ours, and neither torch nor pytest."""
    script = "import json, sys, pytest_attnperf; print(json.dumps(list(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout)
    assert [name for name in loaded if re.match(r"pytest_attnperf\.|torch\b|_?pytest\b(?!_attnperf)", name)] == []


def test_an_unknown_name_lists_what_is_exported() -> None:
    """A misspelt import names what there is."""
    with pytest.raises(AttributeError, match=r"has no attribute 'CaseHandel'; it exports Backend, CaseHandle, CaseRes"):
        _ = pytest_attnperf.CaseHandel
