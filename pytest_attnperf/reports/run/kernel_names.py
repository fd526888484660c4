"""Names of kernels, which profilers give with all template arguments, cut to what tells them apart."""

from __future__ import annotations

from pytest_attnperf.records.counters import without_parameters
from pytest_attnperf.reports.text.figures import one_line

ELLIPSIS = "..."


def short_name(name: str, width: int) -> str:
    """A kernel's name in at most `width` columns: without return type and parameters, then without its middle.

    'void at::native::f<4, Add<float> >(int, Add<float>)' -> 'at::native::f<4, Add<float> >'. The end stays, because
    names of one library differ there.
    """
    clean = one_line(name, 4 * max(width, 1) + len(name)).strip()
    return middle_cut(without_parameters(clean.removeprefix("void ")), width)


def middle_cut(text: str, width: int) -> str:
    """The text in at most `width` columns, its middle left out; three fifths of what is kept are its beginning."""
    if len(text) <= width:
        return text
    kept = max(width - len(ELLIPSIS), 0)
    behind = kept * 2 // 5
    return f"{text[: kept - behind]}{ELLIPSIS[: max(width, 0)]}{text[len(text) - behind :] if behind else ''}"
