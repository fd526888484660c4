"""Inputs of reports: results files, stored baselines, ceilings of devices, and histories.

Also publishes a finished run: it writes the folder of `--attnperf-report` and appends to `--attnperf-history`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.baselines.case_seconds import CASE_SECONDS
from pytest_attnperf.errors import AttnperfError, BaselineError, UsageError
from pytest_attnperf.plugin.config import RunConfig
from pytest_attnperf.plugin.features.feature import Feature
from pytest_attnperf.records import CaseKey, CheckReport, DeviceInfo, ErrorFigures, Verdict, WorkloadFigures
from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.records.regular_file import propose_path, read_regular
from pytest_attnperf.records.rooflines import Ceiling, DeviceCeilings
from pytest_attnperf.reports.files import journal, json_results
from pytest_attnperf.reports.files.form_list import list_forms
from pytest_attnperf.reports.run.joined import Joined, join_runs
from pytest_attnperf.reports.run.overview import STORED, rank_verdict
from pytest_attnperf.reports.run.terminal import TEXT_LIMIT
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session.looking import UNTIMED

if TYPE_CHECKING:
    from pytest_attnperf.plugin.ending import Ended
    from pytest_attnperf.plugin.features.on import FeatureContext

HISTORIES_MAX = 1000
CODE_OBJECTS, NO_RUNS = "code_objects.json", ("ceilings", "published")
"""File of compiled kernels, and folders of figures that are no runs, among stored baselines."""

NO_TIMES = (CODE_OBJECTS, CASE_SECONDS)
"""Files among stored baselines that hold no times of calls."""
"""Most histories in a report: looking for changes takes about 3 ms per case."""


def read_runs(paths: Sequence[Path]) -> Joined:
    """Reads results files, files of stored baselines, and folders of these, and joins their runs into one. Raises
    UsageError for a folder without .json files, and the errors of `read_named`."""
    return join_runs([named for path in paths for file in _list_files(path) for named in read_named(file)])


def read_named(path: Path) -> list[tuple[str, RunResult]]:
    """Returns [(name, run)] of one file; what `attnperf report --out` wrote for several devices holds several runs.
    Raises as `read_run`."""
    from pytest_attnperf.reports.files.merged import decode_merged

    if not path.exists():
        raise UsageError(
            f"there is no {path}{propose_path(path)}; a run writes .attnperf/results.json: pytest --attnperf"
        )
    if path.suffix == ".jsonl":
        return [(str(path), journal.read_journal(path))]
    data = read_regular(path, json_results.BYTES_MAX)
    merged = decode_merged(data, str(path))
    return [(str(path), _decode_run(path, data))] if merged is None else merged


def read_run(path: Path) -> RunResult:
    """Reads one results file, or one file of stored baselines as a run whose cases are RECORDED.

    Raises UsageError for a file that is not regular or too large, and ResultsFileError or BaselineError for one that
    cannot be decoded.
    """
    if path.suffix == ".jsonl":
        return journal.read_journal(path)
    return _decode_run(path, read_regular(path, json_results.BYTES_MAX))


def _decode_run(path: Path, data: bytes) -> RunResult:
    return _make_stored_run(path, data) if _is_baseline_file(data) else json_results.decode(data, str(path))


def _list_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    for pattern in ("*.json", "*/*.json", "*/*/*.json"):  # a product's folder, an architecture's, all baselines
        found = (file for file in sorted(path.glob(pattern)) if file.parent.name not in NO_RUNS)
        if files := [file for file in found if file.name not in NO_TIMES]:
            return files
    compiled = " but compiled kernels, which attnperf occupancy shows" if (path / CODE_OBJECTS).exists() else ""
    raise UsageError(f"{path} holds no results and no stored times{compiled}; name a results file, or a folder of them")


def _is_baseline_file(data: bytes) -> bool:
    """Returns whether `data` has the fields of a baseline file; the reader of results reports other wrong files."""
    import msgspec

    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return {"suite", "entries", "environments"} <= set(fields)


def _make_stored_run(path: Path, data: bytes) -> RunResult:
    from pytest_attnperf.baselines import schema
    from pytest_attnperf.environment.device_specs import all_specs

    file = schema.decode_baseline(data, str(path))
    units = {spec.compute_units for spec in all_specs() if spec.arch == file.arch and file.product in spec.products}
    device = DeviceInfo("", file.arch, file.product, compute_units=units.pop() if len(units) == 1 else 0)
    entries = file.entries.values()
    newest = max((entry.recorded for entry in entries), default="")
    commits = sorted({entry.commit for entry in entries if entry.commit})
    environments = [file.environments[entry.environment] for entry in entries]
    return RunResult(
        schema=RESULTS_SCHEMA,
        version=max((entry.harness_version for entry in entries), default=""),
        mode=STORED,
        started=newest,
        command="",
        commit=commits[0] if len(commits) == 1 else "",
        device=device,
        fingerprint=environments[0] if environments else None,
        cases=tuple(_make_stored_case(file, key, entry, path) for key, entry in file.entries.items()),
        selected=len(file.entries),
        notes=("stored baselines: nothing was measured for this report",),
    )


def _make_stored_case(file: Any, key: str, entry: Any, path: Path) -> CaseResult:
    backend, _, rest = key.partition("/")
    workload, _, label = rest.partition("/")
    check = entry.check
    figures = ErrorFigures("stored", "worst", check.max_error_over_budget, 1.0, check.rms_error_over_budget, 1.0)
    return CaseResult(
        key=CaseKey(file.suite, backend, workload, label),
        nodeid=f"{path.name}::{key}",
        verdict=Verdict.RECORDED,
        summary=f"stored on {entry.recorded}, of {len(entry.processes)} processes",
        median_us=statistics.median(process.median_us for process in entry.processes),
        first=entry.processes,
        checks=(CheckReport((figures,), tolerance=check.tolerance),),
        figures=_figures_of(workload, entry.workload),
        floor_bound=entry.bound,
        peak_memory_bytes=entry.peak_memory_bytes,
        policy=file.policies[entry.policy],
        fingerprint=file.environments[entry.environment],
        config=entry.config,
        launches=entry.launches,
        notes=(entry.note,) if entry.note else (),
    )


def _figures_of(workload: str, definition: Mapping[str, Any]) -> WorkloadFigures | None:
    """Returns FLOPs and bytes of a stored workload; None if its id is unknown now, or means another problem."""
    from pytest_attnperf.baselines.schema import to_plain
    from pytest_attnperf.workloads.families import parse_workload

    try:
        known = parse_workload(workload)
    except UsageError:
        return None
    if to_plain(known.definition()) != to_plain(definition):
        return None
    return WorkloadFigures(known.flops, known.bytes_min, known.dtype, known.cache_state, known.definition())


def ceilings_of(joined: Joined, roots: Sequence[Path]) -> dict[str, tuple[Ceiling, ...]]:
    """Returns the ceilings of each device: those measured by a calibration under `roots`, and the datasheet's peaks."""
    from pytest_attnperf.environment.device_specs import spec_for
    from pytest_attnperf.roofline.points import roofs_of

    found: dict[str, dict[Ceiling, None]] = {}
    calibrated: dict[DeviceInfo, DeviceCeilings | None] = {}
    for shown in joined.cases:
        device, figures = shown.run.device, shown.case.figures
        if device is None or figures is None or shown.case.median_us is None:
            continue
        if device not in calibrated:
            calibrated[device] = _find_calibrated(device, roots)
        ceilings = found.setdefault(shown.device, {})
        ceilings.update(dict.fromkeys(roofs_of(figures, spec_for(device), calibrated[device]).every))
    return {device: tuple(ceilings) for device, ceilings in found.items() if ceilings}


def _find_calibrated(device: DeviceInfo, roots: Sequence[Path]) -> DeviceCeilings | None:
    """Returns the ceilings stored for a device by a calibration; None if there are none or they cannot be read."""
    from pytest_attnperf.baselines.ceilings_store import CeilingsStore

    try:
        stored = CeilingsStore(*roots).find(device) if roots else None
    except BaselineError:
        return None
    return None if stored is None else stored.ceilings


def histories_of(joined: Joined, url: str, points: int) -> list[CaseHistory]:
    """Returns the newest `points` points of the HISTORIES_MAX worst cases that the store at `url` knows, with their
    change points. Cases are looked up by their exact name: the store also matches parts of names."""
    from pytest_attnperf.tools.history.change_points import with_changes
    from pytest_attnperf.tools.history.history_store import open_store

    wanted = dict.fromkeys(
        (str(shown.case.key), shown.run.device.arch, shown.run.device.product)
        for shown in sorted(joined.cases, key=lambda shown: (not shown.case.fails, rank_verdict(shown.case.verdict)))
        if shown.case.median_us and shown.run.device is not None
    )
    found = []
    with open_store(url, read_only=True) as store:
        known = {(one.case, one.arch, one.product) for one in store.list_cases() if one.points > 1}
        for case, arch, product in [key for key in wanted if key in known][:HISTORIES_MAX]:
            found += store.load_history(case, arch=arch, product=product, limit=points)
    return [with_changes(history) for history in found if len(history.points) > 1]


SHOWN_POINTS = 200
"""Most points of a case's history in a report."""


def make_feature(given: FeatureContext) -> Publishing | None:
    """Returns the feature that publishes a run that measures (history, reports); None for other runs. Raises UsageError
    for a mistake in the list of report forms, before anything is measured."""
    if given.asked.report:
        list_forms()
    return None if given.mode in UNTIMED else Publishing(given.asked)


class Publishing(Feature):
    """Appends the run to --attnperf-history, then writes --attnperf-report, which shows it. Errors are printed."""

    def __init__(self, asked: RunConfig) -> None:
        self._results = asked.results
        self._history = history_url(asked)
        self._folder = report_folder(asked)
        self._lines: list[str] = []
        self._appended = False

    def after_run(self, ended: Ended) -> None:
        """Appends the run to the history and writes the reports, each only if its option is given."""
        if self._history:
            self._try_publishing("history", lambda: self._append_history(ended.run))
        if self._folder is not None:
            self._try_publishing("report", lambda: self._write_report(ended))

    def print_at_end(self, reporter: Any) -> None:
        """Prints what was written and where, and what could not be written."""
        for line in self._lines:
            reporter.write_line(one_line(line, TEXT_LIMIT))

    def _try_publishing(self, what: str, work: Any) -> None:
        try:
            self._lines += work()
        except (AttnperfError, OSError) as error:
            self._lines.append(f"{what}: not written: {error}")
        except Exception as error:  # raised by a library: tables and exit status of the run must survive it
            self._lines.append(f"{what}: not written: {type(error).__name__}: {error}")

    def _append_history(self, run: RunResult) -> list[str]:
        from pytest_attnperf.tools.history.history_store import open_store

        with open_store(self._history) as store:
            appended = store.append(run)
        self._appended = True
        return [f"history: {appended.rows} case{'s' * (appended.rows != 1)} appended to {store.address}"]

    def _write_report(self, ended: Ended) -> list[str]:
        from pytest_attnperf.reports.files.folder import write_reports
        from pytest_attnperf.reports.run.joined import join_single

        assert self._folder is not None
        joined = replace(join_single(ended.run, self._results), failed_by=ended.failed_by)
        # Folders of baselines hold the ceilings that a roofline takes.
        return write_reports(
            self._folder, joined, histories=self._read_histories(joined), ceilings=ceilings_of(joined, ended.roots)
        )

    def _read_histories(self, joined: Joined) -> Sequence[CaseHistory]:
        """Returns the histories of the run's cases; none if the store could not be appended to or read."""
        try:
            return histories_of(joined, self._history, SHOWN_POINTS) if self._appended else ()
        except AttnperfError as error:
            self._lines.append(f"report: written without histories: {error}")
            return ()


def history_url(asked: RunConfig) -> str:
    """Returns --attnperf-history as a URL or the path of a file; '' for none. Paths start in `_start_folder`."""
    text = asked.history
    return text if not text or "://" in text else str(_start_folder(asked, "history") / text)


def report_folder(asked: RunConfig) -> Path | None:
    """Returns the folder of `--attnperf-report`, or None without it."""
    return _start_folder(asked, "report") / asked.report if asked.report else None


def _start_folder(asked: RunConfig, name: str) -> Path:
    """Returns the folder to which the path in option `name` is relative: the current one if typed, else rootdir."""
    return asked.typed_in if name in asked.typed else asked.root
