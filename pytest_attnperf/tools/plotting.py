"""What diagrams share: matplotlib without the user's settings, and files that are equal where their points are.

matplotlib draws (the extra `plots`) and is imported only here and in what draws, when a plot is asked for. The same
points give the same bytes under the same matplotlib: fixed ids, no date, none of the user's settings.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError
from pytest_attnperf.reports.text.figures import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = {".svg": "svg", ".png": "png"}
DPI = 100
# Names are foreign text: a `$` in them begins no formula.
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "pytest-attnperf",
    "text.parse_math": False,
}
_NO_XML = re.compile("[\x00-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")


def form_of(path: Path) -> str:
    """Return the form of a file by its suffix. Raises UsageError for one that is not known."""
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise UsageError(f"a plot cannot be written as {path.name!r}; known are {' and '.join(FORMATS)}")
    return form


def rendered(draw: Callable[[], Figure], form: str) -> bytes:
    """Return the bytes of the figure that `draw` makes. Raises UsageError where matplotlib is missing."""
    with _matplotlib():
        stream = io.BytesIO()
        # Without these keys matplotlib writes the time and its own version.
        nothing = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
        draw().savefig(stream, format=form, dpi=DPI, metadata=nothing)
    return stream.getvalue()


def foreign_text(text: str, limit: int) -> str:
    """Return a name of a file or a program without characters that XML forbids, on one line."""
    return one_line(_NO_XML.sub(" ", text), limit)


@contextmanager
def _matplotlib() -> Iterator[None]:
    """Lend matplotlib with its own defaults, whatever the user's matplotlibrc says."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(f"a plot needs matplotlib ({error}): pip install 'pytest-attnperf[plots]'") from error
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield
