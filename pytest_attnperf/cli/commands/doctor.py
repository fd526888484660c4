"""`attnperf doctor`: how this machine and its packages affect the numbers, and the command that fixes each problem."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_attnperf.cli.option_groups import DependentOptions, add_old_spelling, settle_all
from pytest_attnperf.cli.output import choose_ink, count_columns
from pytest_attnperf.environment import kfd
from pytest_attnperf.environment.gpu_tokens import visible_gpus
from pytest_attnperf.environment.system import System
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.text_width import wrap_text
from pytest_attnperf.tools.doctor.engine import DoctorReport, report_json, run_probes
from pytest_attnperf.tools.doctor.probes import NOISE, PROBES, DoctorFinding, Status, Surroundings

GROUP = "first hour"
ORDER = 10
SUMMARY = "check this machine, and how to fix it; measure its ceilings"
DESCRIPTION = "Checks torch, aiter, Triton, compilers, the GPU, its settings and the disk."

BASELINES = Path("baselines")
WIDTH = 80
"""Columns if no terminal tells its width."""

NARROWEST = 40
"""Least columns; a line of fewer would hold no word."""

EPILOG = """It changes nothing, including device settings. On a GPU the last part takes a minute, because it measures
which timer cases get, and how much two processes of the same code differ. Each line says what was found. A line
that is not ok also says what that means for the numbers and how to fix it. docs/doctor.md explains every line.

--calibrate instead measures what torch's own products, copies and reads reach here, each proven right before it is
timed: lower bounds of what the device can do, stored in DIR/<arch>/<product>/ceilings/ for rooflines. Nothing else may
run on the device meanwhile.

examples:
  attnperf doctor                        everything: 3 s without a GPU, 75 s with one
  attnperf doctor --quick                without the minute of measuring noise
  attnperf doctor -v                     also the details of each line: files, versions, variables
  attnperf doctor --json -               for a program
  attnperf doctor --bundle doctor.zip    for a bug report, without names of people, machines and folders
  attnperf doctor --calibrate            what this device reaches: some 20 s a process on a GPU
  attnperf doctor --calibrate --processes 7 --against baselines/sm_90/h200/ceilings/132.json --dry-run

exit status: 0 no problem found, or measured; 1 a problem found, or a measured figure is impossible and was refused;
2 the command or a file is invalid, it was stopped, or a measuring process died
"""

PROMISED_S = 72.0
"""Seconds for all probes. With writing the report, the doctor takes less than the 75 s that --help promises."""

_NVIDIA_NODE = re.compile(r"nvidia\d+")

WORST_FIRST = (Status.PROBLEM, Status.UNKNOWN, Status.WARNING, Status.NOTE, Status.OK)
STYLE_OF = {Status.PROBLEM: Verdict.ERROR, Status.WARNING: Verdict.UNDECIDED, Status.UNKNOWN: Verdict.UNDECIDED}
"""Verdicts whose colours the statuses use; the word itself is always printed."""

WORD_WIDTH = max(len(status.value) for status in Status)
NAME_WIDTH = 24
"""Most columns for names; a longer name pushes its value to the right."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf doctor` to its parser."""
    parser.add_argument("--quick", action="store_true", help="skip the noise of three cases, which takes a minute")
    parser.add_argument("--json", metavar="FILE", default="", help="write the findings as JSON; - prints them alone")
    parser.add_argument("--bundle", type=Path, metavar="FILE.zip", help="pack the report for a bug report")
    parser.add_argument("-v", "--verbose", action="store_true", help="print meaning and details of every line")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="when to use colours")
    parser.add_argument("--calibrate", action="store_true", help="measure what this device reaches, for rooflines")
    with_calibrate = DependentOptions(parser, "--calibrate", lambda options: bool(options.calibrate))
    add = with_calibrate.add
    add("--processes", type=int, default=3, metavar="N", help="processes per median (default: 3)")
    stored = add("--baselines", type=Path, default=BASELINES, metavar="DIR", help=f"folder (default: {BASELINES})")
    add_old_spelling(parser, "--out", stored)
    add("--dry-run", action="store_true", default=False, help="measure and print, but store nothing")
    add("--device", choices=("auto", "gpu", "cpu"), default="auto", help="run on it (default: a GPU if any)")
    add("--against", type=Path, metavar="FILE", help="stored ceilings to compare with")
    parser.set_defaults(dependent=[with_calibrate])


def run(options: argparse.Namespace) -> int:
    """Examines the machine, prints the report, and writes files by option. Returns 1 if it found a problem, 2 if
    interrupted, else 0. Raises UsageError for an invalid file name, OSError if writing fails. With --calibrate it
    measures the device instead."""
    settle_all(options, options.dependent)
    if options.json not in ("", "-"):
        _refuse_folder(Path(options.json))
    if options.calibrate:
        return _calibrate(options)
    try:
        return _run_doctor(options)
    except KeyboardInterrupt:
        sys.stderr.write("attnperf doctor: stopped; --quick leaves out the part that takes a minute\n")
        return 2


def _calibrate(options: argparse.Namespace) -> int:
    """Measures the device. Returns 1 if a figure is impossible, else 0. Raises UsageError for options of the checks."""
    from pytest_attnperf.tools.doctor.calibrating import calibrate_device

    given = {"--quick": options.quick, "--bundle": options.bundle, "--verbose": options.verbose}
    for flag in (flag for flag, is_given in given.items() if is_given):
        raise UsageError(f"{flag} has no effect with --calibrate, which checks nothing; drop one of the two")
    return calibrate_device(options)


def _run_doctor(options: argparse.Namespace) -> int:
    from pytest_attnperf.tools.doctor.bundle import check_bundle_name

    if options.bundle is not None:
        check_bundle_name(options.bundle)
    here = surroundings_here()
    chosen = [probe for probe in PROBES if not (options.quick and probe.name == NOISE)]
    if here.has_gpu and not options.quick:
        sys.stderr.write("measuring on the GPU takes a minute; --quick leaves it out\n")
    report = run_probes(chosen, here)
    if options.json != "-":
        ink, width = choose_ink(options.color), count_columns(WIDTH, NARROWEST)
        sys.stdout.write("\n".join(report_lines(report, width=width, ink=ink, verbose=options.verbose)) + "\n")
    _write_report_files(report, here, options)
    return 1 if report.counts["problem"] else 0


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"--json {path}: this is a folder; name a file, or - to print")
    if not path.parent.is_dir():
        raise UsageError(f"--json {path}: there is no folder {path.parent}; make it first")


def _write_report_files(report: DoctorReport, here: Surroundings, options: argparse.Namespace) -> None:
    """Writes the files of --json and --bundle, and names each on standard error; --json - prints to standard output."""
    from pytest_attnperf.records.atomic_file import write_atomically
    from pytest_attnperf.tools.doctor.bundle import write_bundle

    if options.json:
        said = json.dumps(report_json(report), indent=1) + "\n"
        if options.json == "-":
            sys.stdout.write(said)
        else:
            write_atomically(Path(options.json), said.encode())
            sys.stderr.write(f"written: {options.json}\n")
    if options.bundle is not None:

        def render_report(shown: DoctorReport) -> str:
            return "\n".join(report_lines(shown, width=WIDTH, ink=PLAIN, verbose=True)) + "\n"

        packed = write_bundle(options.bundle, report, render_report, here)
        sys.stderr.write(
            f"written: {options.bundle}\n"
            + "".join(f"  {member}\n" for member in packed)
            + "names of people and machines, folders, addresses, tokens and ids of devices were taken out by rules; "
            "check\nit before you send it: it holds names of your packages, tests and kernels\n"
        )


def surroundings_here() -> Surroundings:
    """Returns what the probes examine: this machine, environment and Python; the current folder as the project. Reads
    device nodes, but uses no device."""
    system, environ = System(), dict(os.environ)
    return Surroundings(
        system=system,
        environ=environ,
        root=Path.cwd(),
        python=sys.executable,
        clock=time.monotonic,
        has_gpu=has_gpu(system, environ),
        vendor=find_vendor(system),
        ends_s=time.monotonic() + PROMISED_S,
    )


def has_gpu(system: System, environ: Mapping[str, str]) -> bool:
    """Returns whether a GPU has a usable device node and this environment does not hide it."""
    try:
        return bool(visible_gpus(environ, system.root))
    except OSError:
        return False


def find_vendor(system: System) -> str:
    """Returns 'nvidia', 'amd' or '' by the driver that shows a GPU, even if its device node is missing.

    A container that was started without its devices still shows the driver of the machine.
    """
    dev = system.root / "dev"
    if any(_NVIDIA_NODE.fullmatch(node.name) for node in dev.glob("nvidia*")):
        return "nvidia"
    if kfd.list_architectures(system):
        return "amd"
    gpus = system.root / "proc/driver/nvidia/gpus"
    return "nvidia" if gpus.is_dir() and any(gpus.iterdir()) else ""


def report_lines(report: DoctorReport, *, width: int, ink: Ink, verbose: bool = False) -> list[str]:
    """Returns the printed report, a section per title, then unchecked points, counts and the next step. `verbose` adds
    details and the meaning of OK findings."""
    name_width = min(NAME_WIDTH, max((len(each.name) for each in report.findings), default=0))
    lines: list[str] = []
    for title, findings in group_findings(report):
        lines += [*([""] if lines else []), ink.bold(title)]
        for finding in findings:
            lines += _render_finding(finding, name_width, width, ink, verbose=verbose)
    if report.not_run:
        lines += ["", *wrap_text(f"not checked without a GPU: {', '.join(report.not_run)}", width, "  ")]
    closing = [format_summary_line(report), *(f"next: {step}" for step in next_step(report))]
    return [*lines, "", *(part for line in closing for part in wrap_text(line, width, "  "))]


def group_findings(report: DoctorReport) -> list[tuple[str, list[DoctorFinding]]]:
    """Returns (title, findings) pairs in the order of the probes; the worst findings of a title come first. Leaves out
    titles without any."""
    groups: dict[str, list[DoctorFinding]] = {}
    for each in report.examined:
        groups.setdefault(each.title, []).extend(each.findings)
    return [
        (title, sorted(found, key=lambda finding: WORST_FIRST.index(finding.status)))
        for title, found in groups.items()
        if found
    ]


def format_summary_line(report: DoctorReport) -> str:
    """Returns e.g. 'doctor: 14 ok, 1 note, 2 warnings, 1 problem, 0 unknown in 2.1 s; timer: graph'."""
    counts = report.counts
    parts = [
        f"{counts['ok']} ok",
        _format_plural(counts["note"], "note"),
        _format_plural(counts["warning"], "warning"),
        _format_plural(counts["problem"], "problem"),
        f"{counts['unknown']} unknown",
    ]
    return f"doctor: {', '.join(parts)} in {report.seconds:.1f} s; timer: {report.timer}"


def next_step(report: DoctorReport) -> Sequence[str]:
    """Returns one line on what to do next, in a tuple: fix the first problem, create cases, or start the pytest run
    that this machine can do."""
    problem = next((each for each in report.findings if each.status is Status.PROBLEM), None)
    if problem is not None:
        return (f"{problem.name}: {problem.fix or problem.meaning}",)
    suites = next((each for each in report.findings if each.name == "suites"), None)
    if suites is not None and suites.fix:
        return (suites.fix,)
    where = _find_suites_folder(suites)
    if report.not_run:
        return (f"pytest{where} (proofs; nothing is timed without a GPU)",)
    return (f"pytest --attnperf{where}",)


def _find_suites_folder(found: DoctorFinding | None) -> str:
    """Returns ' FOLDER', the argument for pytest: suites/ if it has test files with cases, else the top folder that
    has most of them; '' if no test file has any. `found` lists these files, None: none."""
    tops = Counter(file.partition("/")[0] for file in found.details) if found is not None else Counter()
    if not tops:
        return ""
    top = "suites" if "suites" in tops else tops.most_common(1)[0][0]
    return f" {shlex.quote(top if top in (found.details if found else ()) else f'{top}/')}"


def _format_plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _render_finding(finding: DoctorFinding, name_width: int, width: int, ink: Ink, *, verbose: bool) -> Iterator[str]:
    word = f"{finding.status.value:<{WORD_WIDTH}}"
    margin = " " * (2 + WORD_WIDTH + 2)
    plain = f"{finding.name:<{name_width}}  {finding.value}"
    first, *rest = wrap_text(plain, width - len(margin), " " * (name_width + 2))
    yield f"  {ink.paint_verdict(word, STYLE_OF.get(finding.status))}  {first}"
    yield from (f"{margin}{line}" for line in rest)
    if finding.status is Status.OK and not verbose:
        return
    below = [finding.meaning, f"fix: {finding.fix}" if finding.fix else "", *(finding.details if verbose else ())]
    for text in filter(None, below):
        yield from (f"{margin}  {line}" for line in wrap_text(text, width - len(margin) - 2, "  "))
