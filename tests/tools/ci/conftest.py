"""What the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tools.ci.fake_github import FakeGitHub, serving


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    """A fake GitHub, running."""
    with serving() as fake:
        yield fake
