"""Where `attnperf occupancy` gets compiled kernels from: a file, or the registered kernels of a project.

Only a pytest session knows a project's kernels, so the second kind is compiled by one, as the code-object suite does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from pytest_attnperf.errors import CodeObjectError, UsageError
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.records.regular_file import read_regular

SUITE = "suites/test_code_objects.py"
LIMIT_SECONDS = 1800
OUTPUT_LINES = 15


def add_to(parser: argparse.ArgumentParser) -> None:
    """Declare what names a compiled kernel."""
    parser.add_argument(
        "what",
        nargs="?",
        metavar="FILE|KERNEL",
        help="a code object (.hsaco, .co, .o, a bundle), or a registered kernel or the beginning of its id: then the "
        "suite compiles it",
    )
    parser.add_argument("--kernel", default="", metavar="NAME", help="of a FILE with several kernels")
    parser.add_argument("--dynamic-lds", type=int, default=0, metavar="BYTES", help="of a FILE: LDS the launch adds")
    parser.add_argument("--set", default="", metavar="K=V,...", help="of a KERNEL: other settings, e.g. BLOCK_M=128")
    parser.add_argument("--suite", default=SUITE, metavar="PATH", help=f"of a KERNEL: its test file (default {SUITE})")


def kernels_of(options: argparse.Namespace) -> list[KernelCode]:
    """The kernels that were asked for. Raises CodeObjectError and UsageError, naming what exists."""
    path = Path(options.what)
    if path.is_file():
        if options.set:
            raise UsageError(f"--set with {path}: it is compiled already; --set is for a KERNEL of a suite")
        return _of_file(path, options)
    if path.suffix in (".hsaco", ".co", ".o", ".cubin"):
        raise UsageError(f"{path} does not exist")
    return _of_suite(options)


def _of_file(path: Path, options: argparse.Namespace) -> list[KernelCode]:
    from pytest_attnperf.codeobject.bundles import MOST_BYTES
    from pytest_attnperf.codeobject.objects import read_object, select_kernel

    try:
        contents = read_object(read_regular(path, MOST_BYTES, CodeObjectError), str(path), arch=options.arch or "")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from error
    found = contents.kernels if not options.kernel else (select_kernel(contents, options.kernel, str(path)),)
    threads = options.threads or 0
    return [replace(one.code, threads=threads, lds_dynamic_bytes=options.dynamic_lds) for one in found]


def _of_suite(options: argparse.Namespace) -> list[KernelCode]:
    """Compile through the project's own suite; names of the results are the ids of its items."""
    from pytest_attnperf.reports.files import json_results

    if not Path(options.suite).exists():
        raise UsageError(
            f"{options.what} is no file, and there is no {options.suite} whose kernels could be meant; "
            "run this in the project's folder, or name the test file with --suite"
        )
    with tempfile.TemporaryDirectory(prefix="attnperf-occupancy-") as folder:
        results = Path(folder) / "results.json"
        done = subprocess.run(
            _command(options, results),
            env=os.environ | {"PYTEST_ADDOPTS": ""},
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
        )
        if not results.exists():
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-OUTPUT_LINES:])
            raise CodeObjectError(f"{options.suite} compiled nothing for {options.what!r}; pytest said:\n{tail}")
        run = json_results.read(results)
    broken = [f"{result.key}: {result.summary}" for result in run.code if result.code is None]
    found = [
        replace(result.code, name=f"{result.key.backend}-{result.key.workload}") for result in run.code if result.code
    ]
    if not found:
        raise CodeObjectError(f"nothing named {options.what!r} was compiled; {'; '.join(broken) or 'no item matched'}")
    return found


def _command(options: argparse.Namespace, results: Path) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--attnperf", "--no-attnperf-strict", "-q", "-p", "no:cacheprovider"]
    command += [f"--attnperf-results={results}", "-m", "attnperf_code", "-k", options.what]
    command += [f"--attnperf-arch={options.arch}"] if options.arch else []
    command += [f"--attnperf-code-set={options.set}"] if options.set else []
    return [*command, options.suite]
