"""Templates, style and scripts of the site, which all its pages share; pages load these from the site's folder only."""

from __future__ import annotations

import functools
import importlib.resources
from typing import Any

from pytest_attnperf.reports.html.skeleton import join_scripts, make_environment, read_file

SCRIPTS = ("state.js", "theme.js", "drawing.js", "table.js")
"""Files of the run's page that the site uses too."""

OWN_SCRIPTS = ("hover.js", "site_table.js", "pages.js")
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
"""A browser takes 'self' for the pages' own folder, or all local files for a page from a disk; nothing inline runs."""


SHARED = "head.html"
"""Of the run's page: the content policy and what a browser must know first."""


@functools.cache
def load_site_template(name: str) -> Any:
    """Returns a template of this folder, which may include what all pages have. Raises HtmlReportError if Jinja is
    missing."""
    environment = make_environment(lambda one: read_file(one) if one == SHARED else read_site_file(one))
    environment.globals["policy"] = POLICY
    return environment.get_template(name)


def join_style() -> str:
    """Returns the style sheet of all pages."""
    return f"{read_file('page.css')}\n{read_site_file('site.css')}"


def join_site_script() -> str:
    """Returns the script of all pages."""
    return "\n".join([join_scripts(SCRIPTS), *(read_site_file(name) for name in OWN_SCRIPTS)])


def read_site_file(name: str) -> str:
    """Returns the text of a file of this folder."""
    return importlib.resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8")
