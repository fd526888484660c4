"""Profiles to show, and the browser of the pages' tests."""

from __future__ import annotations

from tests.reports.html.conftest import browser, open_page

__all__ = ["browser", "open_page"]
