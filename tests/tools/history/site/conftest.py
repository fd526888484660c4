"""The site of a made history, and a headless Chromium to open its pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reports.html.conftest import browser, wait_for
from tests.tools.history.site.made_history import fill_store, write_made_site

__all__ = ["browser"]
READY = "return document.documentElement.dataset.drawn === 'site'"


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made history."""
    return fill_store(tmp_path_factory.mktemp("history") / "history.sqlite")


@pytest.fixture(scope="session")
def site(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its site."""
    pytest.importorskip("jinja2", reason="the site needs jinja2")
    folder = tmp_path_factory.mktemp("published") / "site"
    write_made_site(store, folder)
    return folder


@pytest.fixture
def visit(browser: Any, site: Path) -> Callable[..., Any]:
    """Opens a page of a site by its path, and waits until it is drawn; forgets what the browser had logged before."""

    def visited(path: str, address: str = "", folder: Path = site) -> Any:
        browser.get("about:blank")
        for kind in ("browser", "performance"):
            browser.get_log(kind)
        browser.get((folder / path).as_uri() + address)
        wait_for(browser, READY)
        return browser

    return visited


@pytest.fixture
def wait() -> Callable[[Any, str], Any]:
    """`wait_for`."""
    return wait_for
