"""One self-contained HTML file of sections: what a command shows in a terminal, for readers who would rather look.

It has the style, the theme, the tooltips and the content policy of a run's page (`page`), and no table of cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.reports.html.charts import build_config
from pytest_attnperf.reports.html.embedding import script_json
from pytest_attnperf.reports.html.sections import Section, list_chart_data
from pytest_attnperf.reports.html.skeleton import (
    build_content_policy,
    join_scripts,
    load_bundle,
    load_template,
    read_file,
    replace_surrogates,
)

SCRIPTS = ("state.js", "theme.js", "drawing.js", "sections.js", "document.js")


def write_document(path: Path, title: str, sections: Sequence[Section]) -> None:
    """Writes the page of `render_document` to `path`. Raises HtmlReportError if a library that it needs is missing."""
    write_atomically(path, render_document(title, sections).encode("utf-8", "replace"))


def render_document(title: str, sections: Sequence[Section]) -> str:
    """Returns an HTML page with one heading, links to its sections, and the sections; the same input gives the same
    text. Raises HtmlReportError if jinja2 or vl_convert is missing."""
    style, script = read_file("page.css"), join_scripts(SCRIPTS)
    has_charts = any(section.figures for section in sections)
    bundle = load_bundle() if has_charts else ""
    data = {"config": build_config(), "sections": list_chart_data(sections)}
    page = load_template("document.html").render(
        title=title,
        sections=sections,
        style=style,
        script=script,
        bundle=bundle,
        data=script_json(data),
        policy=build_content_policy(style, script, *([bundle] if bundle else [])),
    )
    return replace_surrogates(page)
