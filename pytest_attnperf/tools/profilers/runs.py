"""Which files below a folder belong to one run: rocprofv3 leaves several per process, with one prefix in one folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.tools.profilers.csv_table import columns_of, head_of
from pytest_attnperf.tools.profilers.forms import AGENTS, UNUSED, Form, form_of, prefix_of, wanted

ROCPD = "rocpd"
CHROME = "torch.profiler"
LISTED = 20
"""Runs that an error names; beyond these it says how many more."""


@dataclass(frozen=True)
class ProfileFile:
    """A file that can be read. folder: below the one that was searched, '' for itself; ending: '' where not known."""

    path: Path
    form: Form | str
    folder: str = ""
    prefix: str = ""
    ending: str = ""

    @property
    def form_name(self) -> str:
        """The form in words."""
        return self.form if isinstance(self.form, str) else self.form.name


@dataclass(frozen=True)
class Run:
    """Files with one prefix in one folder."""

    name: str
    files: tuple[ProfileFile, ...]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(sorted({file.form_name for file in self.files}))})"


@dataclass(frozen=True)
class Found:
    """What a folder holds. broken: files with the name of a profiler's that cannot be read, and why."""

    files: tuple[ProfileFile, ...]
    broken: tuple[tuple[Path, str], ...] = ()
    ignored: int = 0


def files_below(folder: Path) -> Found:
    """Every file of a profiler in this folder and those below it."""
    files, broken, ignored = [], [], 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or not path.name.lower().endswith((".csv", ".db", ".json", ".json.gz")):
            continue
        try:
            form = form_of_file(path)
        except ProfileError as error:
            if prefix_of(path.stem)[1]:
                broken.append((path, str(error)))
            else:
                ignored += 1
            continue
        prefix, ending = prefix_of(path.name.partition(".json")[0] if form == CHROME else path.stem)
        if form is None or ending in UNUSED:
            ignored += 1
            continue
        below = path.parent.relative_to(folder).as_posix()
        files.append(ProfileFile(path, form, "" if below == "." else below, prefix, ending))
    return Found(tuple(files), tuple(broken), ignored)


def form_of_file(path: Path) -> Form | str | None:
    """What a file is by its content; None for what no reader knows. Raises ProfileError for what is no text."""
    from pytest_attnperf.tools.profilers.rocpd.reader import is_sqlite

    if is_sqlite(path):
        return ROCPD
    head = head_of(path)
    if path.name.lower().endswith(".json.gz") or (head.lstrip()[:1] in (b"{", b"[") and b'"traceEvents"' in head):
        return CHROME
    return None if head.lstrip()[:1] in (b"{", b"[") else form_of(columns_of(path), path.stem)


def runs_of(files: Iterable[ProfileFile]) -> tuple[Run, ...]:
    """Files by run. Those that know only the machine are no run of their own."""
    by_folder: dict[str, list[ProfileFile]] = {}
    for file in files:
        by_folder.setdefault(file.folder, []).append(file)
    runs = []
    for folder, inside in sorted(by_folder.items()):
        by_prefix: dict[str, list[ProfileFile]] = {}
        for file in _with_prefixes(inside):
            by_prefix.setdefault(file.prefix, []).append(file)
        for prefix, together in sorted(by_prefix.items()):
            runs.append(Run("/".join(part for part in (folder, prefix) if part) or ".", tuple(together)))
    return tuple(run for run in runs if any(file.form is not AGENTS for file in run.files))


def _with_prefixes(files: Sequence[ProfileFile]) -> list[ProfileFile]:
    """Renamed files of one folder are of its one run, as long as no form comes twice: else each is a run of its own."""
    anchored = {file.prefix for file in files if file.ending}
    loose = [file for file in files if not file.ending and file.prefix not in anchored]
    forms = [file.form_name for file in files if file not in loose or file.prefix not in anchored]
    unique = all(forms.count(file.form_name) == 1 for file in loose)
    if len(anchored) > 1 or not unique:
        return list(files)
    prefix = next(iter(anchored), "")
    return [replace(file, prefix=prefix) if file in loose else file for file in files]


def chosen(folder: Path, runs: Sequence[Run], wish: str) -> Run:
    """The only run, or the one that is wished for by its name, its prefix, or how one of these begins.

    Raises ProfileError where that is none or several.
    """
    if not runs:
        raise ProfileError(f"{folder} holds no file of a profiler; looked for, below it too: {wanted()}")
    names = {run.name: run for run in runs}
    if not wish and len(runs) == 1:
        return runs[0]
    if not wish:
        raise ProfileError(
            f"{folder} holds {len(runs)} runs, which are not one profile: {_listed(runs)}; choose one with "
            f"--run PREFIX, as in --run {runs[0].name}"
        )
    if wish in names:
        return names[wish]
    for matches in (
        [run for run in runs if run.name.rpartition("/")[2] == wish],
        [run for run in runs if run.name.startswith(wish) or run.name.rpartition("/")[2].startswith(wish)],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise ProfileError(f"{folder}: --run {wish} fits {len(matches)} runs: {_listed(matches)}; name one of them")
    raise ProfileError(f"{folder} holds no run {wish!r}; there are: {_listed(runs)}")


def _listed(runs: Sequence[Run]) -> str:
    more = [f"and {len(runs) - LISTED} more"] if len(runs) > LISTED else []
    return ", ".join([*(str(run) for run in runs[:LISTED]), *more])
