"""`attnperf report` without a mode: shows runs as tables, a page and files, and other files behind them in the page.

Those others are known by their content: a dispatch table and a tuning run by their field `schema`, 'KIND/VERSION', and
what a profiler wrote by its form.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pytest_attnperf.cli.output import asked_forms, choose_ink, count_columns, open_page, write_forms, write_report_page
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.reports.html.sections import Section
    from pytest_attnperf.reports.run.joined import Joined

WIDTH = 110
"""Columns if no terminal tells its width."""

BASELINES = Path("baselines")
SHOWN_POINTS = 200


class KindReader(Protocol):
    """A module that reads a kind of file, of the version SCHEMA."""

    SCHEMA: str

    def read_sections(self, data: bytes, where: str, prefix: str) -> list[Section]:
        """Returns the sections of a file's content. `where` is its name in errors, `prefix` begins their names."""


def _load_dispatch() -> KindReader:
    from pytest_attnperf.tools.dispatch import dispatch_page

    return dispatch_page


def _load_tune() -> KindReader:
    from pytest_attnperf.tools.tuner import tune_page

    return tune_page


KINDS: dict[str, Callable[[], KindReader]] = {"attnperf.dispatch": _load_dispatch, "attnperf.tune": _load_tune}
"""Kind -> what imports its reader."""

IN_FOLDER = "tune.json"
"""File by which a folder is that of a finished tuning run."""

BYTES_MAX = 1 << 28
HEAD_BYTES = 1 << 16
TITLE_LIMIT = 60
_SCHEMA_TEXT = re.compile(rb'"schema"\s*:\s*"')
"""In the head of a file of KINDS; that of results is a number, and they are not read here."""


def split_files(paths: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """Returns (results and baselines, files of KINDS and profiles) of these paths, each in order. A folder with
    IN_FOLDER stands for that file. Raises UsageError for a file whose kind or version is not known."""
    results: list[Path] = []
    others: list[Path] = []
    for path in paths:
        file = path / IN_FOLDER if (path / IN_FOLDER).is_file() else path
        if _find_kind(file) is not None or _is_profile(file):
            others.append(file)
        else:
            results.append(path)
    return results, others


def read_all_sections(files: Sequence[Path]) -> list[Section]:
    """Returns the sections of files that `split_files` found, in order; names are unique. Raises UsageError for a file
    that cannot be read."""
    sections: list[Section] = []
    for number, file in enumerate(files, 1):
        kind = _find_kind(file)
        word = "profile" if kind is None else kind.rpartition(".")[2]
        prefix = f"{word}-{number}" if len(files) > 1 else word
        if kind is None:
            sections += _read_profile(file, prefix)
        else:
            sections += KINDS[kind]().read_sections(_read(file), str(file), prefix)
    return sections


def _read_profile(path: Path, prefix: str) -> list[Section]:
    """Returns the sections of a profile, named after it. Raises ProfileError if nothing of it can be used, UsageError
    for a folder of several."""
    from pytest_attnperf.reports.text.figures import one_line
    from pytest_attnperf.tools.profilers.page.profile_sections import read_sections
    from pytest_attnperf.tools.profilers.reading import list_runs

    runs = list_runs(path)
    if len(runs) > 1:
        listed = one_line(", ".join(runs), 400)
        raise UsageError(
            f"{path} holds {len(runs)} profiles: {listed}; name the files of those that the page is to show"
        )
    title = one_line(path.name, TITLE_LIMIT)
    return [
        replace(
            one, name=f"{prefix}-{one.name}", title=f"{title}: {one.title}", short=f"{title}: {one.short or one.title}"
        )
        for one in read_sections(path)
    ]


def _is_profile(path: Path) -> bool:
    """Returns whether a path is what a profiler wrote: JSON with a field `schema` is ours."""
    from pytest_attnperf.tools.profilers.reading import is_profile

    return path.exists() and b'"schema"' not in _read_head(path) and is_profile(path)


def _read_head(path: Path) -> bytes:
    """Returns the beginning of a JSON file; nothing for any other path."""
    if not path.is_file() or path.suffix != ".json":
        return b""
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def _read(path: Path) -> bytes:
    from pytest_attnperf.records.regular_file import read_regular

    return read_regular(path, BYTES_MAX)


def _find_kind(path: Path) -> str | None:
    """Returns the kind of a JSON file of KINDS; None for any other path, such as results. Raises UsageError for a kind
    or a version that this version does not read."""
    if not _SCHEMA_TEXT.search(_read_head(path)):
        return None
    import msgspec

    try:
        fields = msgspec.json.decode(_read(path), type=dict[str, msgspec.Raw])
        schema = msgspec.json.decode(fields["schema"], type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
        return None
    kind = schema.rpartition("/")[0]
    if kind not in KINDS:
        raise UsageError(
            f"{path}: field `schema` is {schema[:80]!r}; a page shows: {', '.join(KINDS)}. Name a file of these kinds"
        )
    read = KINDS[kind]().SCHEMA
    if schema != read:
        raise UsageError(
            f"{path}: field `schema` is {schema[:80]!r}; this version reads {read}. Use the pytest-attnperf that "
            "wrote it, or make the file again"
        )
    return kind


def show_runs(options: argparse.Namespace) -> int:
    """Prints the tables of the runs, or writes the reports that options ask for."""
    from pytest_attnperf.plugin.report_inputs import read_runs
    from pytest_attnperf.reports.files.folder import has_gaps

    if options.history and options.report is None:
        raise UsageError("--history is shown only in the page: add --report DIR")
    results, others = split_files(options.results)
    if others and options.report is None:
        raise UsageError(f"{others[0]} is shown only in the page: add --report DIR, or --open")
    options.sections = read_all_sections(others)
    if not results:
        return _write_sections(options)
    joined = read_runs(results)
    if not _write_asked_forms(joined, options):
        sys.stdout.write(f"{_render_text(joined, options)}\n")
    if options.report is not None and has_gaps(options.report):
        return 2
    if options.open:
        open_page(options.report)
    return 1 if joined.has_failed else 0


def _write_sections(options: argparse.Namespace) -> int:
    """Writes the page of files that are no results, alone. Returns 0. Raises UsageError for options that need
    results."""
    given = [*asked_forms(options), *(["history"] if options.history else [])]
    if given:
        raise UsageError(
            f"--{given[0]} needs results, and none of these files holds any; drop it, or name results, too"
        )
    write_report_page(options, "report", "Report", options.sections)
    return 0


def _render_text(joined: Joined, options: argparse.Namespace) -> str:
    from pytest_attnperf.reports.run.run_text import run_text

    width, verbosity = count_columns(WIDTH), options.verbose - options.quiet
    return run_text(joined, width=width, ink=choose_ink(options.color), verbosity=verbosity)


def _write_asked_forms(joined: Joined, options: argparse.Namespace) -> bool:
    """Writes the forms that options ask for, and names files on standard error. Returns False if none is asked for."""
    from pytest_attnperf.plugin.report_inputs import ceilings_of, histories_of
    from pytest_attnperf.reports.run.terminal import TEXT_LIMIT
    from pytest_attnperf.reports.text.figures import one_line

    shown: dict[str, Any] = {}
    if options.report is not None:
        shown["histories"] = histories_of(joined, options.history, SHOWN_POINTS) if options.history else ()
        shown["ceilings"] = ceilings_of(joined, [BASELINES])
        shown["sections"] = options.sections
    asked = asked_forms(options)
    for line in write_forms(joined, options.report, asked, **shown):
        sys.stderr.write(f"{one_line(line, TEXT_LIMIT)}\n")
    return options.report is not None or bool(asked)
