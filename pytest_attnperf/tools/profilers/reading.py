"""Reads what profilers wrote, a file or a folder, into one profile. What a file is, its content says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.records.profiles import Problem
from pytest_attnperf.tools.profilers import rocprof_v1, rocprofv3
from pytest_attnperf.tools.profilers.csv_table import CsvTable, columns_of, head_of
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.file_part import FilePart
from pytest_attnperf.tools.profilers.forms import (
    AGENTS,
    COPY_TRACE,
    COUNTERS,
    FORMS,
    KERNEL_TRACE,
    V1_RESULTS,
    V2_RESULTS,
    Form,
    prefix_of,
)
from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.run_profile import RunParts
from pytest_attnperf.tools.profilers.runs import CHROME, ROCPD, chosen, files_below, form_of_file, runs_of

TRACES = (KERNEL_TRACE, V1_RESULTS, V2_RESULTS)


def read_profile(path: Path, *, run: str = "") -> Profile:
    """A profile of rocprofv3, rocprof, rocpd or torch.profiler. run: which one of a folder that holds several.

    Raises ProfileError where nothing can be used; what can be used in part is in the profile's problems.
    """
    if path.is_dir():
        return _read_folder(path, run)
    if not path.exists():
        raise ProfileError(f"{path} does not exist; give a file that a profiler wrote, or its folder")
    return _read_single(path)


def _read_single(path: Path) -> Profile:
    head = head_of(path)
    if path.suffix == ".json" and b'"rocprofiler-sdk-tool"' in head:
        raise ProfileError(f"{path} is rocprofv3's JSON, which is not read; run it with --output-format csv or rocpd")
    is_json = path.suffix == ".json" and head.lstrip()[:1] in (b"{", b"[")
    form = CHROME if is_json else form_of_file(path)
    if isinstance(form, str):
        return _read_other(path, form)
    if form is None:
        raise ProfileError(
            f"{path} is no file of a profiler that is known; it has the columns: "
            f"{', '.join(columns_of(path))[:500] or 'none'}; wanted are {_marks()}"
        )
    if form is AGENTS:
        raise ProfileError(f"{path} tells of devices only, not of time; give the folder, or the kernel_trace beside it")
    return _read_csv([(path, form), *_devices_beside(path)], path.name)


def _read_folder(folder: Path, wish: str) -> Profile:
    found = files_below(folder)
    runs = runs_of(found.files)
    if not runs and found.broken:
        raise ProfileError(f"{folder}: no file can be used: " + "; ".join(why for _, why in found.broken))
    run = chosen(folder, runs, wish)
    files = [(file.path, file.form) for file in run.files if isinstance(file.form, Form)]
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
        (path, why) for path, why in found.broken if prefix_of(path.stem)[0] in {file.prefix for file in run.files}
    ]
    return _read_csv(files, name, broken, notes)


def _read_other(path: Path, form: str) -> Profile:
    if form == ROCPD:
        from pytest_attnperf.tools.profilers.rocpd.reader import read_rocpd

        return read_rocpd(path)
    from pytest_attnperf.tools.profilers.torch_events import read_chrome_trace

    return read_chrome_trace(path)


def _read_csv(
    files: Sequence[tuple[Path, Form]], name: str, broken: Sequence[tuple[Path, str]] = (), notes: Sequence[str] = ()
) -> Profile:
    """One run. A file that cannot be used is a problem, as long as another one can."""
    traces = [str(path) for path, form in files if form in TRACES]
    if len(traces) > 1:
        listed = ", ".join(traces)
        raise ProfileError(f"{listed} are traces of kernels of one run, and would count twice; give one of them")
    parts = RunParts(name, notes=list(notes))
    parts.problems += [Problem(str(path), _without(path, why)) for path, why in broken]
    builders = {COUNTERS: parts.counted, COPY_TRACE: parts.copies}
    for path, form in sorted(files, key=lambda file: FORMS.index(file[1]), reverse=True):
        part = _part_or_problem(path, form, builders.get(form, parts.traced))
        if isinstance(part, Problem):
            parts.problems.append(part)
        else:
            parts.add(part)
    return parts.profile()


def _part_or_problem(path: Path, form: Form, builder: DispatchesBuilder) -> FilePart | Problem:
    try:
        return read_csv(path, form, builder)
    except ProfileError as error:
        return Problem(str(path), _without(path, str(error)))


def _without(path: Path, text: str) -> str:
    """An error's text without the path that a problem says anyway."""
    return text.removeprefix(f"{path}").removeprefix(":").strip()


def read_csv(path: Path, form: Form, builder: DispatchesBuilder) -> FilePart:
    """One CSV file; dispatches go to `builder`. Raises ProfileError where columns are missing."""
    with CsvTable(path) as table:
        table.needs(f"{form.name} CSV", form.needed)
        if form in (V1_RESULTS, V2_RESULTS):
            return rocprof_v1.read_results(table, form, builder)
        return rocprofv3.READERS[form.name](table, form, builder)


def _devices_beside(path: Path) -> list[tuple[Path, Form]]:
    """The agent_info of the same run: without it the architecture is not known."""
    prefix, ending = prefix_of(path.stem)
    beside = path.with_name(f"{prefix}_agent_info.csv" if prefix else "agent_info.csv")
    return [(beside, AGENTS)] if ending and beside.is_file() else []


def _marks() -> str:
    return "; ".join(f"{form.name}: {', '.join(form.needed)}" for form in FORMS)
