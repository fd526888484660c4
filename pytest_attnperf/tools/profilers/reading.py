"""Reads profilers' output, a file or a folder, into one profile. A file's content decides its kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.records.profiles import Problem
from pytest_attnperf.records.regular_file import propose_path
from pytest_attnperf.tools.profilers.csv_table import CsvTable, read_columns, read_head
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.file_forms import (
    AGENTS,
    COPY_TRACE,
    COUNTERS,
    FORMS,
    KERNEL_TRACE,
    UNUSED,
    V1_RESULTS,
    V2_RESULTS,
    CsvForm,
    FilePart,
    describe_wanted_files,
    find_form,
    split_stem,
)
from pytest_attnperf.tools.profilers.profile import Profile, RunParts

ROCPD = "rocpd"
CHROME = "torch.profiler"
LISTED = 20
"""Most runs that an error names; it counts the others."""


@dataclass(frozen=True)
class _ProfileFile:
    """A readable file. `folder` is relative to the searched one, '' for itself; `ending` is '' if not known."""

    path: Path
    form: CsvForm | str
    folder: str = ""
    prefix: str = ""
    ending: str = ""

    @property
    def form_name(self) -> str:
        """Name of the file's kind, e.g. 'rocprofv3 kernel_trace'."""
        return self.form if isinstance(self.form, str) else self.form.name


@dataclass(frozen=True)
class ProfileRun:
    """Files with one prefix in one folder."""

    name: str
    files: tuple[_ProfileFile, ...]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(sorted({file.form_name for file in self.files}))})"


@dataclass(frozen=True)
class FoundFiles:
    """Content of a folder. `broken` are files that are named like a profiler's but cannot be read, and why."""

    files: tuple[_ProfileFile, ...]
    broken: tuple[tuple[Path, str], ...] = ()
    ignored: int = 0


def find_files(folder: Path) -> FoundFiles:
    """Returns the profiler files in a folder and below it, unreadable ones, and the number of ignored ones."""
    files, broken, ignored = [], [], 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or not path.name.lower().endswith((".csv", ".db", ".json", ".json.gz")):
            continue
        try:
            form = _find_file_form(path)
        except ProfileError as error:
            if split_stem(path.stem)[1]:
                broken.append((path, str(error)))
            else:
                ignored += 1
            continue
        prefix, ending = split_stem(path.name.partition(".json")[0] if form == CHROME else path.stem)
        if form is None or ending in UNUSED:
            ignored += 1
            continue
        below = path.parent.relative_to(folder).as_posix()
        files.append(_ProfileFile(path, form, "" if below == "." else below, prefix, ending))
    return FoundFiles(tuple(files), tuple(broken), ignored)


def _find_file_form(path: Path) -> CsvForm | str | None:
    """Returns a file's kind: a CsvForm, ROCPD, CHROME or None (not known). Raises ProfileError if it is no text."""
    from pytest_attnperf.tools.profilers.rocpd.rocpd_schema import is_sqlite

    if is_sqlite(path):
        return ROCPD
    head = read_head(path)
    if path.name.lower().endswith(".json.gz") or (head.lstrip()[:1] in (b"{", b"[") and b'"traceEvents"' in head):
        return CHROME
    return None if head.lstrip()[:1] in (b"{", b"[") else find_form(read_columns(path), path.stem)


def group_runs(files: Iterable[_ProfileFile]) -> tuple[ProfileRun, ...]:
    """Groups files by folder and by the prefix of their names into runs, without those that only describe devices."""
    by_folder: dict[str, list[_ProfileFile]] = {}
    for file in files:
        by_folder.setdefault(file.folder, []).append(file)
    runs = []
    for folder, inside in sorted(by_folder.items()):
        by_prefix: dict[str, list[_ProfileFile]] = {}
        for file in _unify_prefixes(inside):
            by_prefix.setdefault(file.prefix, []).append(file)
        for prefix, together in sorted(by_prefix.items()):
            runs.append(ProfileRun("/".join(part for part in (folder, prefix) if part) or ".", tuple(together)))
    return tuple(run for run in runs if any(file.form is not AGENTS for file in run.files))


def _unify_prefixes(files: Sequence[_ProfileFile]) -> list[_ProfileFile]:
    """Returns one folder's files; those without a known name ending get the prefix of the folder's only run. All stay
    as they are if the folder has several runs, or if such a file has the same kind as another file."""
    anchored = {file.prefix for file in files if file.ending}
    loose = [file for file in files if not file.ending and file.prefix not in anchored]
    forms = [file.form_name for file in files if file not in loose or file.prefix not in anchored]
    unique = all(forms.count(file.form_name) == 1 for file in loose)
    if len(anchored) > 1 or not unique:
        return list(files)
    prefix = next(iter(anchored), "")
    return [replace(file, prefix=prefix) if file in loose else file for file in files]


def choose_run(folder: Path, runs: Sequence[ProfileRun], wish: str) -> ProfileRun:
    """Returns the run whose name or prefix equals or begins with `wish`; the only run if `wish` is ''.

    Raises ProfileError if none or several match."""
    if not runs:
        raise ProfileError(f"{folder} holds no file of a profiler; looked for, below it too: {describe_wanted_files()}")
    names = {run.name: run for run in runs}
    if not wish and len(runs) == 1:
        return runs[0]
    if not wish:
        raise ProfileError(
            f"{folder} holds {len(runs)} runs, which are not one profile: {_join_runs(runs)}; choose one with "
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
            raise ProfileError(
                f"{folder}: --run {wish} fits {len(matches)} runs: {_join_runs(matches)}; name one of them"
            )
    raise ProfileError(f"{folder} holds no run {wish!r}; there are: {_join_runs(runs)}")


def _join_runs(runs: Sequence[ProfileRun]) -> str:
    more = [f"and {len(runs) - LISTED} more"] if len(runs) > LISTED else []
    return ", ".join([*(str(run) for run in runs[:LISTED]), *more])


TRACES = (KERNEL_TRACE, V1_RESULTS, V2_RESULTS)


def read_profile(path: Path, *, run: str = "") -> Profile:
    """Reads a profile of rocprofv3, rocprof, rocpd or torch.profiler. `run` says which run of a folder with several.

    Raises ProfileError if nothing can be used. Parts that cannot be used are in the profile's problems."""
    if path.is_dir():
        return _read_folder(path, run)
    if not path.exists():
        raise ProfileError(
            f"{path} does not exist{propose_path(path)}; give a file that a profiler wrote, or its folder"
        )
    return _read_single(path)


def list_runs(path: Path) -> list[str]:
    """Returns the names of the profiles in a folder; none for a file."""
    return [run.name for run in group_runs(find_files(path).files)] if path.is_dir() else []


def is_profile(path: Path) -> bool:
    """Returns whether a path is a profiler's file with times or counters, or a folder that holds one."""
    try:
        if path.is_dir():
            return bool(list_runs(path))
        form = _find_file_form(path) if path.is_file() else None
    except (ProfileError, OSError):
        return False
    return form is not None and form is not AGENTS


def _read_single(path: Path) -> Profile:
    head = read_head(path)
    if path.suffix == ".json" and b'"rocprofiler-sdk-tool"' in head:
        raise ProfileError(f"{path} is rocprofv3's JSON, which is not read; run it with --output-format csv or rocpd")
    is_json = path.suffix == ".json" and head.lstrip()[:1] in (b"{", b"[")
    form = CHROME if is_json else _find_file_form(path)
    if isinstance(form, str):
        return _read_other(path, form)
    if form is None:
        raise ProfileError(
            f"{path} is no file of a known profiler; it has the columns: "
            f"{', '.join(read_columns(path))[:500] or 'none'}; needed are {_describe_forms()}"
        )
    if form is AGENTS:
        raise ProfileError(f"{path} describes devices only and has no times; give the folder, or its kernel_trace")
    return _read_csv([(path, form), *_find_devices_file(path)], path.name)


def _read_folder(folder: Path, wish: str) -> Profile:
    found = find_files(folder)
    runs = group_runs(found.files)
    if not runs and found.broken:
        raise ProfileError(f"{folder}: no file can be used: " + "; ".join(why for _, why in found.broken))
    run = choose_run(folder, runs, wish)
    files = [(file.path, file.form) for file in run.files if isinstance(file.form, CsvForm)]
    others = [file for file in run.files if isinstance(file.form, str)]
    label = folder.name or folder.resolve().name
    name = label if run.name == "." or len(runs) == 1 else f"{label}: {run.name}"
    if others and not any(form in TRACES for _, form in files):
        if len(others) > 1:
            listed = ", ".join(str(file.path) for file in others)
            raise ProfileError(f"{folder}: {listed} are several profiles; give one of them")
        return _read_other(others[0].path, others[0].form_name)
    notes = [f"{file.path} was not read: the CSV trace of the same run was" for file in others]
    broken = [
        (path, why) for path, why in found.broken if split_stem(path.stem)[0] in {file.prefix for file in run.files}
    ]
    return _read_csv(files, name, broken, notes)


def _read_other(path: Path, form: str) -> Profile:
    if form == ROCPD:
        from pytest_attnperf.tools.profilers.rocpd.reader import read_rocpd

        return read_rocpd(path)
    from pytest_attnperf.tools.profilers.torch_events import read_chrome_trace

    return read_chrome_trace(path)


def _read_csv(
    files: Sequence[tuple[Path, CsvForm]], name: str, broken: Sequence[tuple[Path, str]] = (), notes: Sequence[str] = ()
) -> Profile:
    """Reads the CSV files of one run into a profile. A file that cannot be used becomes a problem of the profile;
    raises ProfileError if none can be used or two are kernel traces."""
    traces = [str(path) for path, form in files if form in TRACES]
    if len(traces) > 1:
        listed = ", ".join(traces)
        raise ProfileError(f"{listed} are kernel traces of one run, and would count twice; give one of them")
    parts = RunParts(name, notes=list(notes))
    parts.problems += [Problem(str(path), _remove_path(path, why)) for path, why in broken]
    builders = {COUNTERS: parts.counted, COPY_TRACE: parts.copies}
    for path, form in sorted(files, key=lambda file: FORMS.index(file[1]), reverse=True):
        part = _read_part(path, form, builders.get(form, parts.traced))
        if isinstance(part, Problem):
            parts.problems.append(part)
        else:
            parts.add(part)
    return parts.build_profile()


def _read_part(path: Path, form: CsvForm, builder: DispatchesBuilder) -> FilePart | Problem:
    try:
        return read_csv(path, form, builder)
    except ProfileError as error:
        return Problem(str(path), _remove_path(path, str(error)))


def _remove_path(path: Path, text: str) -> str:
    """Returns an error's text without the path, which a problem has already."""
    return text.removeprefix(f"{path}").removeprefix(":").strip()


def read_csv(path: Path, form: CsvForm, builder: DispatchesBuilder) -> FilePart:
    """Returns a CSV file's content, its dispatches added to `builder`. Raises ProfileError if columns are missing."""
    with CsvTable(path) as table:
        table.check_columns(f"{form.name} CSV", form.needed)
        return form.read_table(table, builder)


def _find_devices_file(path: Path) -> list[tuple[Path, CsvForm]]:
    """Returns the agent_info file of the same run, which has the architecture; empty if there is none."""
    prefix, ending = split_stem(path.stem)
    beside = path.with_name(f"{prefix}_agent_info.csv" if prefix else "agent_info.csv")
    return [(beside, AGENTS)] if ending and beside.is_file() else []


def _describe_forms() -> str:
    return "; ".join(f"{form.name}: {', '.join(form.needed)}" for form in FORMS)
