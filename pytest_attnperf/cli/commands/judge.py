"""`attnperf judge`: a verdict on one kernel file that nobody trusts, for agents and contests."""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pytest_attnperf.cli.output import count_columns
from pytest_attnperf.errors import UsageError, propose_name
from pytest_attnperf.records.regular_file import propose_path, read_regular

GROUP = "every day"
ORDER = 45
SUMMARY = "a verdict on one untrusted kernel file, in processes with limits"
DESCRIPTION = """Judges one kernel file that nobody trusts: is it right, and how fast is it? For agents, contests and
submissions. Nothing is compared with a baseline."""
USAGE = "attnperf judge KERNEL.py --reference REF.py [options]"

FILE_BYTES_MOST = 10_000_000
WIDTH = 100
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

EPILOG = """REF.py defines reference(*inputs) in plain torch, and make_inputs(seed), which returns a tensor or a tuple
of them on the device; make_inputs(seed, planted) also plants elements that show lost work. KERNEL.py defines
kernel(*inputs), and returns what the reference returns. docs/judge.md says how it is judged.

The kernel runs in two processes, one after the other, with limits of memory, time, files and network. The first holds
no reference and no seed, and cannot read REF.py: what it returns is compared elsewhere, on inputs that are drawn after
KERNEL.py was imported. The second holds the whole judge, and times the call: a kernel may forge what that says, so it
can only add a failure. A time is not believed if calls take far longer seen from outside. KERNEL.py is copied; it
cannot import or read what is beside it, unless --readable names it. A limit that this machine cannot enforce is named.

KERNEL.py that cannot be imported, raises, ends its process, or breaks a limit is ERROR. Verdicts: RIGHT, INCORRECT,
SUSPICIOUS, UNSUPPORTED, ERROR (docs/verdicts.md). --json prints one object: "schema" is attnperf.judgement/1, sizes are
in bytes, times in microseconds, "limits" says of each whether it was "enforced", and if not "why".

examples:
  attnperf judge kernel.py --reference ref.py
  attnperf judge kernel.py --reference problems/softmax.py::plain_softmax --function softmax --json
  attnperf judge kernel.py --reference ref.py --time 30 --memory 4G --require-limits --no-time

exit status: 0 RIGHT; 1 any other verdict; 2 the command or REF.py is invalid, or a limit of --require-limits is missing
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf judge` to its parser."""
    parser.add_argument("kernel", type=Path, metavar="KERNEL.py", help="the file to judge")
    parser.add_argument(
        "--reference", required=True, metavar="REF.py[::NAME]", help="file of the reference, and its function ("
        "default: reference)")  # fmt: skip
    parser.add_argument("--function", default="kernel", metavar="NAME", help="function of KERNEL.py (default: kernel)")
    parser.add_argument(
        "--inputs", default="make_inputs", metavar="NAME", help="function of REF.py that makes inputs (default: "
        "make_inputs)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    parser.add_argument("--no-time", action="store_true", help="only prove it right, time nothing")
    parser.add_argument("--host-sync", action="store_true", help="a call may wait for the device (.item())")
    parser.add_argument(
        "--bytes-min", type=_parse_size, metavar="BYTES", help="unique bytes that a call must move: no time below what "
        "the device needs for them is believed")  # fmt: skip
    parser.add_argument(
        "--seed", type=int, metavar="N", help="repeat the inputs of an earlier judgement (default: new ones)"
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--time", type=float, default=60.0, metavar="SECONDS", help="of each of the kernel's processes (default: 60)"
    )
    limits.add_argument(
        "--memory", type=_parse_size, default=8 << 30, metavar="BYTES", help="of all the kernel's processes, not on "
        "the device; 512M, 8G (default: 8G)")  # fmt: skip
    limits.add_argument(
        "--disk", type=_parse_size, default=1 << 30, metavar="BYTES", help="of all files that it writes (default: 1G)"
    )
    limits.add_argument(
        "--readable", action="append", default=[], metavar="PATH", help="a further file or folder that it may read; "
        "may be repeated")  # fmt: skip
    limits.add_argument("--require-limits", action="store_true", help="refuse to judge where a limit is not enforced")


def run(options: argparse.Namespace) -> int:
    """Judges the file and prints the judgement. Returns 0 if it is RIGHT, else 1. Raises UsageError for invalid options
    and for a reference that cannot be judged with."""
    from pytest_attnperf.tools.judging.judgement import encode_judgement, render_judgement
    from pytest_attnperf.tools.judging.judging import judge_kernel
    from pytest_attnperf.tools.judging.kernel_workers import JudgeRequest

    file, _, name = options.reference.partition("::")
    request = JudgeRequest(
        kernel=options.kernel,
        reference=Path(file),
        function=options.function,
        reference_name=name or "reference",
        inputs_name=options.inputs,
        seconds=options.time,
        memory_bytes=options.memory,
        disk_bytes=options.disk,
        timed=not options.no_time,
        seed=options.seed,
        host_sync=options.host_sync,
        bytes_min=options.bytes_min,
        more=tuple(options.readable),
        require_limits=options.require_limits,
    )
    _check_request(options)
    _require_functions(request.reference, (request.reference_name, request.inputs_name))
    judged = judge_kernel(request)
    if options.json:
        sys.stdout.write(f"{encode_judgement(judged)}\n")
    else:
        sys.stdout.write(render_judgement(judged, count_columns(WIDTH)))
    return 0 if judged.is_right else 1


def _parse_size(text: str) -> int:
    """Returns a number of bytes: '512M', '8G', '1000'. Raises ArgumentTypeError for anything else, and for less than
    1."""
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in UNITS else (text, "")
    with contextlib.suppress(ValueError):
        if number.isascii() and (size := int(number) * UNITS.get(unit, 1)) > 0:
            return size
    raise argparse.ArgumentTypeError(f"{text!r} is no size; write e.g. 512M, 8G or a number of bytes")


def _check_request(options: argparse.Namespace) -> None:
    if not 0 < options.time < 1e6:
        raise UsageError(f"--time is {options.time:g}; it must be above 0, in seconds")
    if options.seed is not None and not 0 <= options.seed < 1 << 63:
        raise UsageError(f"--seed is {options.seed}; it must be 0 or more, and below 2^63")
    if options.memory < 1 << 29:
        raise UsageError(f"--memory is {options.memory} bytes; torch alone needs 512M")
    for path in options.readable:
        if not os.path.exists(path):
            raise UsageError(f"--readable {path} does not exist")
    if not options.kernel.is_file():
        raise UsageError(f"{options.kernel} is no file{propose_path(options.kernel)}; name the kernel's Python file")
    if options.kernel.stat().st_size > FILE_BYTES_MOST:
        raise UsageError(f"{options.kernel} has more than {FILE_BYTES_MOST} bytes")


def _require_functions(path: Path, names: tuple[str, ...]) -> None:
    """Raises UsageError if the reference's file does not exist, cannot be parsed, or defines no such function."""
    if not path.is_file():
        raise UsageError(f"{path} is no file{propose_path(path)}; --reference takes a Python file")
    try:
        tree = ast.parse(read_regular(path, FILE_BYTES_MOST))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path} is no Python: {error}") from error
    known = list(dict.fromkeys(_list_names(tree)))
    for name in names:
        if name not in known and "*" not in known:
            has = ", ".join(one for one in known if not one.startswith("_")) or "nothing"
            option = "--inputs NAME" if name == names[-1] else f"--reference {path}::NAME"
            raise UsageError(
                f"{path} has no {name!r}{propose_name(name, known)}; it defines {has}. Name another by {option}"
            )


def _list_names(node: ast.AST) -> Iterator[str]:
    """Yields the names that a module defines outside functions and classes; '*' for an import of all."""
    for below in ast.iter_child_nodes(node):
        if isinstance(below, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield below.name
            continue
        if isinstance(below, ast.alias):
            yield (below.asname or below.name).partition(".")[0]
        elif isinstance(below, ast.Name) and isinstance(below.ctx, ast.Store):
            yield below.id
        yield from _list_names(below)
