"""Files beside results that `attnperf report` shows in its page, recognised by their field `schema`: 'KIND/VERSION'."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.reports.html.sections import Section

KINDS = {
    "attnperf.dispatch": "pytest_attnperf.tools.dispatch.dispatch_page",
    "attnperf.tune": "pytest_attnperf.tools.tuner.tune_page",
}
"""Kind -> module with SCHEMA and read_sections(data, where, prefix)."""

IN_FOLDER = "tune.json"
"""File by which a folder is that of a finished tuning run."""

BYTES_MAX = 1 << 28


def split_files(paths: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """Returns (results and baselines, files of KINDS) of these paths, each in order. A folder with IN_FOLDER stands for
    that file. Raises UsageError for a file whose kind or version is not known."""
    results: list[Path] = []
    others: list[Path] = []
    for path in paths:
        file = path / IN_FOLDER if (path / IN_FOLDER).is_file() else path
        is_one = file.is_file() and file.suffix == ".json" and _find_kind(_read(file), str(file)) is not None
        if is_one:
            others.append(file)
        else:
            results.append(path)
    return results, others


def read_all_sections(files: Sequence[Path]) -> list[Section]:
    """Returns the sections of files that `split_files` found, in order; names are unique. Raises UsageError for a file
    that cannot be read."""
    sections: list[Section] = []
    for number, file in enumerate(files, 1):
        data = _read(file)
        kind = _find_kind(data, str(file))
        assert kind is not None, "split_files found it"
        module: Any = import_module(KINDS[kind])
        prefix = f"{kind.rpartition('.')[2]}-{number}" if len(files) > 1 else kind.rpartition(".")[2]
        sections += module.read_sections(data, str(file), prefix)
    return sections


def _read(path: Path) -> bytes:
    from pytest_attnperf.records.regular_file import read_regular

    return read_regular(path, BYTES_MAX)


def _find_kind(data: bytes, where: str) -> str | None:
    """Returns the kind of a file; None for one without a text as `schema`, such as results. Raises UsageError for a
    kind or a version that this version does not read."""
    import msgspec

    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        schema = msgspec.json.decode(fields["schema"], type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
        return None
    kind = schema.rpartition("/")[0]
    if kind not in KINDS:
        raise UsageError(
            f"{where}: field `schema` is {schema[:80]!r}; a page shows: {', '.join(KINDS)}. Name a file of these kinds"
        )
    read: str = import_module(KINDS[kind]).SCHEMA
    if schema != read:
        raise UsageError(
            f"{where}: field `schema` is {schema[:80]!r}; this version reads {read}. Use the pytest-attnperf that "
            "wrote it, or make the file again"
        )
    return kind
