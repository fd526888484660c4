"""Parts that a page is put together from: a heading, sentences, charts and tables, for readers of any command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.reports.html.charts import Spec
from pytest_attnperf.reports.html.embedding import Json


@dataclass(frozen=True)
class Figure:
    """A Vega-Lite chart with its data.

    spec      a specification whose layers read the named sets of `data`; `charts.make_base` has what all of them share
    title     what it shows, also read aloud
    caption   a sentence under it: how to read it, what was left out; '' for none
    """

    title: str
    spec: Spec
    data: Mapping[str, Sequence[Mapping[str, Json]]]
    caption: str = ""


@dataclass(frozen=True)
class TableHead:
    """A column of a table. Numbers are set flush right; `title` explains the heading."""

    text: str
    is_number: bool = False
    title: str = ""


@dataclass(frozen=True)
class PageTable:
    """A table of formatted texts; the first cell of a row is its heading. `caption` says what it lists."""

    caption: str
    heads: tuple[TableHead, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A section of a page, reachable at '#name'.

    name      letters, digits and '-', unique in its page
    title     its heading; `short` is its link in the navigation ('' for the heading)
    lead      sentences above the charts, each a paragraph
    folded    tables are behind a heading that opens them, where charts already show their figures
    """

    name: str
    title: str
    lead: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[PageTable, ...] = ()
    short: str = ""
    folded: bool = False


def list_chart_data(sections: Sequence[Section]) -> Json:
    """Returns {'spec', 'data'} of every figure, in the order in which the template numbers them."""
    return [
        {"spec": figure.spec, "data": {name: list(values) for name, values in figure.data.items()}}
        for section in sections
        for figure in section.figures
    ]
