"""`attnperf occupancy`: computes how many waves of a kernel fit a SIMD of one architecture, why, and what raises it.

A registered kernel is compiled by a pytest session, because only that knows a project's kernels.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_attnperf.cli.option_groups import DependentOptions, add_tests, parse_count, settle_all
from pytest_attnperf.cli.output import add_page, count_columns, write_page
from pytest_attnperf.codeobject.arch import limits_of
from pytest_attnperf.codeobject.headroom import compute_staircase
from pytest_attnperf.codeobject.occupancy import (
    Resources,
    occupancy_of,
    occupancy_with,
    resources_of,
)
from pytest_attnperf.errors import CodeObjectError, UsageError
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.records.regular_file import propose_path, read_regular
from pytest_attnperf.reports.text.figures import one_line, printable_json
from pytest_attnperf.reports.text.wide_tables import WIDTH
from pytest_attnperf.tools.occupancy.cycles_text import render_estimates
from pytest_attnperf.tools.occupancy.occupancy_rows import (
    OccupancyPoint,
    find_shown_vgprs,
    limit_rows,
    make_overview_row,
    raise_lines,
    use_rows,
)
from pytest_attnperf.tools.occupancy.occupancy_text import (
    PlotInk,
    choose_ink,
    describe_occupancy,
    occupancy_json,
    render_limit_table,
    render_overview_table,
    render_staircase,
    render_use_table,
)

GROUP = "deeper"
ORDER = 160
SUMMARY = "compute how many waves of a kernel fit a SIMD, and why"
DESCRIPTION = "Computes how many waves of a kernel fit a SIMD of one architecture, why, and what would raise it."

EPILOG = """LDS includes the dynamic part that the launch asks for. Occupancy is a diagnosis, not a goal: matrix kernels
run well at 1 or 2 waves per SIMD. docs/occupancy.md says how it is computed.

exit status: 0 printed, 2 the command is invalid, a value is impossible on the architecture, or no loop can be estimated

examples:
  attnperf occupancy --arch gfx942 --vgprs 96 --agprs 0 --sgprs 40 --lds 8192 --threads 256
  attnperf occupancy kernel.hsaco --threads 256 --dynamic-lds 32768
  attnperf occupancy kernel.hsaco --threads 256 --open      the same as a page, with curves
  attnperf occupancy triton.prefill_forward-d256-f16-causal-ragged --arch gfx942
  attnperf occupancy triton.prefill_forward-d256 --arch gfx942 --set BLOCK_M=128,BLOCK_N=64
  attnperf occupancy kernel.hsaco --threads 256 --dynamic-lds 32768 --cycles --keys-per-iteration 64
"""

NUMBERS = ("vgprs", "sgprs", "lds", "wave_size")
"""Options that describe a kernel without a code object."""

SUITE = "suites/test_code_objects.py"
LIMIT_SECONDS = 1800
NO_TESTS = 5
"""Exit status of a pytest that selected nothing."""
OUTPUT_LINES = 15
TITLE_LIMIT = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf occupancy` to its parser."""
    parser.add_argument(
        "what",
        nargs="?",
        metavar="FILE|KERNEL",
        help="a code object (.hsaco, .co, .o, a bundle), or a registered kernel or the beginning of its id, which "
        "the suite then compiles",
    )
    parser.add_argument("--kernel", default="", metavar="NAME", help="kernel of a FILE that has several")
    parser.add_argument("--dynamic-lds", type=int, default=0, metavar="BYTES", help="for a FILE: LDS added at launch")
    parser.add_argument("--set", default="", metavar="K=V,...", help="for a KERNEL: change settings, e.g. BLOCK_M=128")
    add_tests(parser, SUITE, SUITE)
    parser.add_argument("--arch", metavar="ARCH", help="gfx90a, gfx942, gfx950, gfx1100, gfx1151, gfx1201 ...")
    parser.add_argument("--vgprs", type=int, metavar="N", help="architectural VGPRs per lane, without AGPRs")
    parser.add_argument("--agprs", type=int, default=0, metavar="N", help="accumulation VGPRs per lane (default: 0)")
    parser.add_argument("--sgprs", type=int, metavar="N", help="SGPRs per wave; since gfx10 they limit nothing")
    parser.add_argument("--lds", type=int, metavar="BYTES", help="LDS of a workgroup, static and dynamic")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of a workgroup")
    parser.add_argument("--wave-size", type=int, choices=(32, 64), help="lanes (default: the architecture's own)")
    parser.add_argument("--cu-mode", action="store_true", help="keep a workgroup on one CU of a WGP (RDNA)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    add_page(parser)
    parser.add_argument("--cycles", action="store_true", help="of a FILE or KERNEL: estimate its key loop's cycles")
    with_cycles = DependentOptions(parser, "--cycles", lambda options: options.cycles)
    with_cycles.add("--keys-per-iteration", type=parse_count, default=0, metavar="N", help="keys of an iteration")
    parser.set_defaults(dependent=[with_cycles])


def run(options: argparse.Namespace) -> int:
    """Prints the occupancy of the kernels as text, table or JSON. Returns 0. Raises UsageError for missing or unused
    options, CodeObjectError for invalid values, and with --cycles if no kernel can be estimated."""
    settle_all(options, options.dependent)
    if options.what is None:
        if options.cycles:
            raise UsageError("--cycles reads instructions: name a code object or a registered kernel")
        points = [point_by_numbers(options)]
    else:
        given = [name for name in NUMBERS if getattr(options, name) is not None]
        given += [name for name in ("agprs", "cu-mode") if getattr(options, name.replace("-", "_"))]
        if given:
            flag = f"--{given[0].replace('_', '-')}"
            raise UsageError(f"{flag} with {options.what}: a compiled kernel already has this value; drop one of them")
        codes = load_kernels(options)
        if options.cycles:
            text = render_estimates(codes, options.keys_per_iteration, as_json=options.json)
            _write_page(options, list_points(codes), codes)
            sys.stdout.write(f"{text}\n")
            return 0
        points = [_make_point(code) for code in codes]
    if options.json:
        found = [occupancy_json(point.arch, point.asked, point.name) for point in points]
        text = printable_json(json.dumps(found[0] if len(found) == 1 else found, indent=2))
    else:
        text = render_point(points[0], choose_ink(sys.stdout.encoding)) if len(points) == 1 else render_overview(points)
    _write_page(options, points)
    sys.stdout.write(f"{text}\n")
    return 0


def _write_page(
    options: argparse.Namespace, points: Sequence[OccupancyPoint], codes: Sequence[KernelCode] = ()
) -> None:
    """Writes the page that --html or --open ask for: the kernels' occupancy, and the key loops of `codes`."""
    if options.html is None and not options.open:
        return
    from pytest_attnperf.tools.occupancy.occupancy_page import build_cycle_sections, build_sections

    cycles = build_cycle_sections(codes, options.keys_per_iteration) if codes else []
    name = one_line(options.what or options.arch or "", TITLE_LIMIT)
    write_page(options, "occupancy", f"Occupancy of {name}", [*build_sections(points), *cycles])


def list_points(codes: Sequence[KernelCode]) -> list[OccupancyPoint]:
    """Returns the occupancy of each kernel whose occupancy can be computed."""
    points = []
    for code in codes:
        with contextlib.suppress(CodeObjectError):
            points.append(_make_point(code))
    return points


def _make_point(code: KernelCode) -> OccupancyPoint:
    """Returns a compiled kernel with its computed occupancy. Raises CodeObjectError if that cannot be computed."""
    found = occupancy_of(code)
    if found is None:
        why = "has no known workgroup size; give --threads" if not code.workgroup else "is no AMD kernel"
        raise CodeObjectError(f"{code.name} for {code.arch} {why}: its occupancy is not known")
    return OccupancyPoint(code.name, code.arch, resources_of(code), found)


def render_overview(points: Sequence[OccupancyPoint]) -> str:
    """Returns a table of several kernels, with a line for each: its resources and its occupancy."""
    rows = list(map(make_overview_row, points))
    return render_overview_table(rows, count_columns(WIDTH))


def point_by_numbers(options: argparse.Namespace) -> OccupancyPoint:
    """Returns the kernel that --arch, --vgprs, --lds, --threads ... describe, with its occupancy. Raises UsageError for
    missing options, CodeObjectError for invalid values."""
    needed = {"--arch": options.arch, "--vgprs": options.vgprs, "--lds": options.lds, "--threads": options.threads}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        raise UsageError(f"{', '.join(missing)} missing; a kernel is described by {', '.join(needed)} and --sgprs")
    limits = limits_of(options.arch)
    if options.sgprs is None and limits.sgprs_per_simd:
        raise UsageError(f"--sgprs missing; the waves of a SIMD of {limits.arch} share {limits.sgprs_per_simd}")
    if options.cu_mode and not limits.wgp:
        raise UsageError(f"--cu-mode is for RDNA; {limits.arch} has no WGPs that a workgroup could spread over")
    asked = Resources(
        vgprs=options.vgprs,
        agprs=options.agprs,
        sgprs=options.sgprs or 0,
        lds_bytes=options.lds,
        threads=options.threads,
        wave_size=options.wave_size or limits.wave_sizes[0],
        wgp_mode=not options.cu_mode,
    )
    return OccupancyPoint("", limits.arch, asked, occupancy_with(limits.arch, asked))


def render_point(point: OccupancyPoint, ink: PlotInk) -> str:
    """Returns the whole text on one kernel: occupancy, use, limits, what raises it, and plots over VGPRs and LDS."""
    title = f"{one_line(point.name)}\n" if point.name else ""
    return "\n\n".join(
        (
            title + describe_occupancy(point.arch, point.occupancy),
            render_use_table(use_rows(point)),
            render_limit_table(limit_rows(point), point.occupancy.block),
            "\n".join(raise_lines(point)),
            _render_plot(point, "vgprs", "VGPRs per lane", find_shown_vgprs(point), ink),
            _render_plot(point, "lds_bytes", "bytes of LDS", point.asked.lds_bytes, ink),
        )
    )


def _render_plot(point: OccupancyPoint, resource: str, unit: str, value: int, ink: PlotInk) -> str:
    stairs = compute_staircase(point.arch, point.asked.unreserved, resource)
    return "\n".join(render_staircase(unit, stairs, value, point.occupancy.max_waves_per_simd, ink))


def load_kernels(options: argparse.Namespace) -> list[KernelCode]:
    """Returns the compiled kernels of a FILE, or compiles a KERNEL of the suite. Raises CodeObjectError and UsageError,
    which name what exists."""
    path = Path(options.what)
    if path.is_file():
        if options.set:
            raise UsageError(f"--set with {path}: this file is already compiled; --set is for a KERNEL of a suite")
        return _read_file_kernels(path, options)
    if path.suffix in (".hsaco", ".co", ".o", ".cubin"):
        raise UsageError(f"{path} does not exist; name a code object that does, or a registered kernel")
    return _compile_suite_kernels(options)


def _read_file_kernels(path: Path, options: argparse.Namespace) -> list[KernelCode]:
    from pytest_attnperf.codeobject.analysis import Analyser
    from pytest_attnperf.codeobject.bundles import MOST_BYTES
    from pytest_attnperf.codeobject.objects import read_object, select_kernel

    try:
        data = read_regular(path, MOST_BYTES, CodeObjectError)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from error
    source, arch, threads, lds = str(path), options.arch or "", options.threads or 0, options.dynamic_lds
    contents = read_object(data, source, arch=arch)
    found = contents.kernels if not options.kernel else (select_kernel(contents, options.kernel, source),)
    if not options.cycles:
        return [replace(one.code, threads=threads, lds_dynamic_bytes=lds) for one in found]
    return [
        Analyser().analyse(data, source, arch=arch, kernel=one.code.name, threads=threads, lds_dynamic_bytes=lds)
        for one in found
    ]


def _compile_suite_kernels(options: argparse.Namespace) -> list[KernelCode]:
    """Compiles the kernels that match the argument KERNEL, or else those of the backend KERNEL, in a pytest of the
    project, and returns them with the names KERNEL-CONFIG. Raises UsageError if the suite is missing, CodeObjectError
    if nothing was compiled."""
    from pytest_attnperf.reports.files import json_results

    if not Path(options.tests).exists():
        raise UsageError(
            f"{options.what} is neither a file{propose_path(Path(options.what))} nor a known kernel, because there is "
            f"no {options.tests}; run this in the project's folder, or name the test file with --tests"
        )
    with tempfile.TemporaryDirectory(prefix="attnperf-occupancy-") as folder:
        results = Path(folder) / "results.json"
        for selection in (["-k", options.what], [f"--attnperf-backend={options.what}"]):
            done = subprocess.run(
                _build_command(options, results, selection),
                env=os.environ | {"PYTEST_ADDOPTS": ""},
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_SECONDS,
            )
            if results.exists() or done.returncode != NO_TESTS:
                break
        if not results.exists():
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-OUTPUT_LINES:])
            raise CodeObjectError(f"{options.tests} compiled nothing for {options.what!r}; pytest said:\n{tail}")
        run = json_results.read(results)
    broken = [f"{result.key}: {result.summary}" for result in run.code if result.code is None]
    found = [
        replace(result.code, name=f"{result.key.backend}-{result.key.workload}") for result in run.code if result.code
    ]
    if not found:
        raise CodeObjectError(f"nothing named {options.what!r} was compiled; {'; '.join(broken) or 'no item matched'}")
    return found


def _build_command(options: argparse.Namespace, results: Path, selection: Sequence[str]) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--attnperf", "--no-attnperf-strict", "-q", "-p", "no:cacheprovider"]
    command += [f"--attnperf-results={results}", "-m", "attnperf_code", *selection]
    command += [f"--attnperf-arch={options.arch}"] if options.arch else []
    command += [f"--attnperf-code-set={options.set}"] if options.set else []
    return [*command, options.tests]
