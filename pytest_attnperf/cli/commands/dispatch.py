"""`attnperf dispatch`: which backend to use where, from measured results; writes it as a Python function, too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.cli.option_groups import RESULTS
from pytest_attnperf.cli.output import add_page, asks_page, count_columns, write_page
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.baselines.published import PublishedReport
    from pytest_attnperf.tools.dispatch.measured_points import BackendTime, LeftOut
    from pytest_attnperf.tools.dispatch.regions import DispatchTable

GROUP = "deeper"
ORDER = 190
SUMMARY = "choose the backend by shape, from measured results"
DESCRIPTION = "Prints the best backend by family, shape and size, with margin and confidence, from results."

EPILOG = """RESULTS is the results.json of a run that measured, a file or a folder of stored baselines, or one
published report. Only cases that were proven right count. All files must be from one device.

attnperf report shows in its page what --json printed.

exit status: 0 printed, 2 the command or a file is invalid

examples:
  attnperf dispatch                                             the last run
  attnperf dispatch baselines/sm_90/h200 --family prefill --out choose_backend.py
  attnperf dispatch baselines/published/mi300x_ck_triton_native.json --incumbent ck
  attnperf dispatch baselines/sm_90/h200 --open
"""


@dataclass(frozen=True)
class TimesSource:
    """The times of one file.

    arch, product   of the device; for a published report `product` is the device that it names
    device          the device in words
    told            lines about the source that the reader must see
    """

    path: str
    arch: str
    product: str
    device: str
    told: tuple[str, ...]
    timed: tuple[BackendTime, ...]
    left_out: tuple[LeftOut, ...] = ()
    published: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf dispatch` to its parser."""
    parser.add_argument("results", nargs="*", type=Path, default=[RESULTS], metavar="RESULTS", help="results, "
                        f"baselines, or a published report (default: {RESULTS})")  # fmt: skip
    parser.add_argument("--incumbent", default="", metavar="BACKEND", help="use it for ties and what is unmeasured "
                        "(default: for each family the one that is fastest most often)")  # fmt: skip
    parser.add_argument(
        "--margin", type=float, default=2.0, metavar="PERCENT", help="a smaller gain is a tie (default: %(default)g)"
    )
    parser.add_argument("--family", default="", metavar="F", help="show this family only (default: all)")
    parser.add_argument(
        "--arch", default="", metavar="ARCH[/PRODUCT]", help="use results of this device, if there are several"
    )
    parser.add_argument("--table", default="", metavar="NAME", help="use only this table of a published report "
                        "(default: for each workload, the last table that has it)")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE.py", help="write a Python module with choose_backend()")
    add_page(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print Markdown")
    form.add_argument("--json", action="store_true", help="print JSON, with every point and interval")


def run(options: argparse.Namespace) -> int:
    """Prints which backend to use where and, with --out, writes a Python module that chooses it. Returns 0. Raises
    UsageError, and what reading a file raises."""
    from pytest_attnperf.records.atomic_file import write_atomically
    from pytest_attnperf.tools.dispatch.function_source import render_module

    sources = _select_device(_read_sources(options), options.arch)
    table = _build_table(sources, options)
    told = _list_source_lines(sources)
    if options.out is not None:
        write_atomically(options.out, render_module(table, told).encode())
    if asks_page(options):
        from pytest_attnperf.tools.dispatch.dispatch_page import build_sections
        from pytest_attnperf.tools.dispatch.dispatch_record import make_record

        write_page(options, "dispatch", "Which backend to use where", build_sections(make_record(table, told)))
    sys.stdout.write(f"{_render_table(table, told, options)}\n")
    if options.out is not None:
        sys.stderr.write(f"written: {options.out}\n")
    return 0


def _build_table(sources: Sequence[TimesSource], options: argparse.Namespace) -> DispatchTable:
    from pytest_attnperf.tools.dispatch.measured_points import make_points
    from pytest_attnperf.tools.dispatch.regions import make_dispatch_table

    points, dropped = make_points(timed for source in sources for timed in source.timed)
    left_out = [*(case for source in sources for case in source.left_out), *dropped]
    family: str = options.family
    return make_dispatch_table(
        points, left_out, margin=options.margin / 100, incumbent=options.incumbent, family=family
    )


def _render_table(table: DispatchTable, told: Sequence[str], options: argparse.Namespace) -> str:
    import json

    from pytest_attnperf.reports.text.figures import printable_json
    from pytest_attnperf.tools.dispatch import dispatch_text as dispatch
    from pytest_attnperf.tools.dispatch.regions import list_never_combined

    missing = list_never_combined(table.groups)
    if options.json:
        import msgspec

        from pytest_attnperf.tools.dispatch.dispatch_record import make_record

        return printable_json(json.dumps(msgspec.to_builtins(make_record(table, told)), indent=2))
    if options.markdown:
        return dispatch.render_markdown(table, told, missing)
    return dispatch.render_table(table, told, missing, count_columns(80))


def _list_source_lines(sources: Sequence[TimesSource]) -> list[str]:
    """Returns lines for the report: device, dates, each source's files and caveats, and the number of GPUs if several
    measured."""
    lines = [sources[0].device]
    dates = sorted({timed.recorded[:10] for source in sources for timed in source.timed if timed.recorded})
    if dates:
        lines.append(f"recorded {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else ""))
    lines += dict.fromkeys(line for source in sources for line in source.told)
    cards = {process.device_id for source in sources for timed in source.timed for process in timed.processes}
    if len(cards - {""}) > 1:
        lines.append(
            f"times are of {len(cards - {''})} cards of this product, which may differ by more than an interval"
        )
    return lines


def _select_device(sources: Sequence[TimesSource], arch: str) -> list[TimesSource]:
    """Returns the sources of one device, chosen by `arch` (ARCH[/PRODUCT] or ''). Raises UsageError if several or none
    remain, and for a published report beside other files."""
    if any(source.published for source in sources) and len(sources) > 1:
        raise UsageError("a published report was measured by another method than the other files: give it alone")
    by_device: dict[tuple[str, str], list[TimesSource]] = {}
    for source in sources:
        by_device.setdefault((source.arch, source.product), []).append(source)
    wanted, _, product = arch.partition("/")
    chosen = [key for key in by_device if not arch or (key[0] == wanted and product in ("", key[1]))]
    known = ", ".join(f"{'/'.join(key)} ({', '.join(source.path for source in of)})" for key, of in by_device.items())
    if not chosen:
        raise UsageError(f"no results are from --arch {arch!r}; they are from: {known}. Name one of these")
    if len(chosen) > 1:
        raise UsageError(f"the results are from several devices: {known}. Choose one with --arch ARCH/PRODUCT")
    return by_device[chosen[0]]


def _read_sources(options: argparse.Namespace) -> list[TimesSource]:
    return [source for path in options.results for source in _read_path(path, options.table)]


def _read_path(path: Path, table: str) -> Iterable[TimesSource]:
    """Yields the times of a file, or of every baseline file in a folder; `table` is for published reports. Raises
    UsageError if the folder has no baseline file."""
    if not path.is_dir():
        yield _read_source(path, table)
        return
    found = False
    for file in sorted(path.glob("*.json")):
        if _find_kind(file) == "baselines":
            found = True
            yield _read_source(file, table)
    if not found:
        inside = ", ".join(part.name for part in sorted(path.iterdir())[:10])
        holds = f"no file of stored baselines, only {inside}" if inside else "nothing"
        raise UsageError(f"{path} holds {holds}; name baselines/<arch>/<product>")


def _find_kind(path: Path) -> str:
    """Returns 'results', 'baselines' or 'published' by the fields of a file, '' for anything else."""
    import msgspec

    try:
        fields: Any = msgspec.json.decode(_read_content(path))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is not readable as JSON ({error}); name another file") from error
    if not isinstance(fields, dict):
        return ""
    kinds = {
        "results": {"cases", "schema"},
        "baselines": {"entries", "suite", "policies"},
        "published": {"rows", "method"},
    }
    return next((kind for kind, needed in kinds.items() if needed <= fields.keys()), "")


def _read_content(path: Path) -> bytes:
    from pytest_attnperf.records.regular_file import read_regular
    from pytest_attnperf.reports.files.json_results import BYTES_MAX

    return read_regular(path, BYTES_MAX)


def _read_source(path: Path, table: str) -> TimesSource:
    kind = _find_kind(path)
    if kind == "published":
        return _read_published_source(path, table)
    if table:
        raise UsageError(f"--table is for published reports, and {path} is not one; drop it")
    if kind == "results":
        return _read_results_source(path)
    if kind == "baselines":
        return _read_baselines_source(path)
    raise UsageError(
        f"{path} has the fields of neither results of pytest --attnperf, nor stored baselines, nor a published report; "
        "name a file of one of these kinds"
    )


def _read_results_source(path: Path) -> TimesSource:
    """Reads the times of a results file. Raises UsageError if it names no device, or ran on a CPU or an interpreter."""
    from pytest_attnperf.reports.files import json_results
    from pytest_attnperf.tools.dispatch.measured_points import split_timed_cases

    run = json_results.read(path)
    device = run.device
    if device is None:
        raise UsageError(f"{path} names no device: that run measured nothing; give results of another run")
    _require_gpu(path, device.arch, interpreted=device.interpreted)
    timed, left_out = split_timed_cases(run, str(path))
    said = f"{device.name or device.product} ({device.arch})"
    named = run.fingerprint.named if run.fingerprint else {}
    told = (f"{path}: {run.started[:10]}, commit {run.commit or 'unknown'}, {_format_software(named)}",)
    return TimesSource(str(path), device.arch, device.product, said, told, tuple(timed), tuple(left_out))


def _read_baselines_source(path: Path) -> TimesSource:
    from pytest_attnperf.baselines import schema
    from pytest_attnperf.tools.dispatch.measured_points import BackendTime, compute_median

    file = schema.decode_baseline(_read_content(path), str(path))
    _require_gpu(path, file.arch)
    timed = []
    for key, entry in file.entries.items():
        backend, _, rest = key.partition("/")
        workload, _, label = rest.partition("/")
        timed.append(
            BackendTime(
                backend=f"{backend}/{label}" if label else backend,
                workload=workload,
                median_us=compute_median(entry.processes),
                source=str(path),
                recorded=entry.recorded,
                processes=entry.processes,
                conditions=file.environments[entry.environment].must_match,
                definition=entry.workload,
            )
        )
    software = dict.fromkeys(_format_software(environment.named) for environment in file.environments.values())
    told = tuple(f"stored baselines, {said}" for said in software)
    return TimesSource(str(path), file.arch, file.product, f"{file.product} ({file.arch})", told, tuple(timed))


def _read_published_source(path: Path, table: str) -> TimesSource:
    """Reads the times of a published report: of `table`, or for each workload of the last table that has it. Raises
    UsageError if there is no such table."""
    from pytest_attnperf.tools.dispatch.measured_points import BackendTime

    report = _decode_report(path)
    tables = list(dict.fromkeys(row.table for row in report.rows))
    if table and table not in tables:
        raise UsageError(f"--table: {path} has no table {table!r}; it has: {', '.join(map(repr, tables))}")
    of_workload = {row.workload: row.table for row in report.rows if table in ("", row.table)}
    rows = [row for row in report.rows if of_workload.get(row.workload) == row.table]
    timed = tuple(BackendTime(row.backend, row.workload, row.time_us, str(path), report.date) for row in rows)
    used = ", ".join(repr(name) for name in tables if name in of_workload.values())
    unused = ", ".join(repr(name) for name in tables if name not in of_workload.values())
    told = (
        f"published, not measured here: {report.source}",
        f"tables used: {used}" + (f"; not used: {unused}, choose by --table" if unused else ""),
        *(f"caveat: {caveat}" for caveat in report.caveats),
    )
    device = report.device or "a device that the report does not name"
    return TimesSource(str(path), "", report.device, device, told, timed, published=True)


def _decode_report(path: Path) -> PublishedReport:
    """Reads a published report. Raises UsageError for another file or another schema."""
    import msgspec

    from pytest_attnperf.baselines.published import PUBLISHED_SCHEMA, PublishedReport

    try:
        report = msgspec.json.decode(_read_content(path), type=PublishedReport)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: is not a published report ({error}); name another file") from error
    if report.schema != PUBLISHED_SCHEMA:
        raise UsageError(
            f"{path}: field `schema` is {report.schema}; this version reads {PUBLISHED_SCHEMA}. "
            "Use the pytest-attnperf that wrote it"
        )
    return report


def _require_gpu(path: Path, arch: str, *, interpreted: bool = False) -> None:
    if interpreted or arch.startswith("cpu"):
        how = "from an interpreter" if interpreted else "of a CPU"
        raise UsageError(f"{path}: the times are {how} ({arch}) and say nothing about a GPU; give results of a GPU")


def _format_software(named: dict[str, str]) -> str:
    shown = [f"{name} {named[name]}" for name in ("torch", "triton", "aiter", "rocm", "cuda") if named.get(name)]
    return ", ".join(part for part in shown if not part.endswith(" none")) or "software unknown"
