"""`attnperf init`: writes into a repository what is needed to gate a first kernel, and says what to type next."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.tools.starter.files import StarterFile, StarterKernel

GROUP = "first hour"
ORDER = 5
SUMMARY = "write a first gated test, lines for git and a CI workflow"
DESCRIPTION = "Writes into a repository what is needed to gate a first kernel, and says what to type next."

SYSTEMS = ("github", "gitlab", "none")
NEXT = (
    ("pytest perf/", "right? times nothing"),
    ("pytest --update-baselines perf/", "measures in 7 processes; commit baselines/"),
    ("pytest --attnperf perf/", "exit status 1 if it is wrong or slower"),
)
"""Commands to type next, and what each does."""

CPU_OPTIONS = "--attnperf-threshold=100 --no-attnperf-strict"

EPILOG = """Writes perf/test_NAME.py; perf/conftest.py if MODULE cannot be imported without it; and lines in
.gitattributes and .gitignore. The module of --kernel is read, never imported. A file that exists is left, and named;
.gitattributes and .gitignore get the lines that they lack. A CI workflow needs the address of your copy of this
package: ATTNPERF_FROM, at its top. docs/ci.md says who is trusted with what.

examples:
  attnperf init
  attnperf init --kernel my_package.norms:rms_norm --ci github
  attnperf init path/to/repository --ci gitlab

exit status: 0 everything is there, 2 the command is invalid, or a file cannot be written
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf init` to its parser."""
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path("."), metavar="DIR", help="the repository (default: this folder)"
    )
    parser.add_argument(
        "--kernel", default="", metavar="MODULE:FUNCTION", help="gate this function (default: an example that passes)"
    )
    parser.add_argument("--ci", choices=SYSTEMS, default="none", help="also write a CI workflow (default: none)")
    parser.add_argument("--force", action="store_true", help="write files that exist anew")


def run(options: argparse.Namespace) -> int:
    """Writes the files that are missing, and prints them and what to type next. Returns 0. Raises UsageError for a
    folder that does not exist or is no place for a workflow, and as `find_kernel`."""
    from pytest_attnperf.tools.starter.files import find_kernel, plan_files

    root: Path = options.folder
    _require_repository(root, options.ci)
    kernel = find_kernel(options.kernel, root) if options.kernel else None
    files = plan_files(root, kernel, options.ci)
    done = [_write_file(root, file, force=options.force) for file in files]
    sys.stdout.writelines(f"{told}\n" for told in [*done, "", *_list_next(root, files[0], kernel)])
    return 0


def _require_repository(root: Path, ci: str) -> None:
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder; make it with git init {root}, or name another")
    above = next((folder for folder in root.resolve().parents if (folder / ".git").exists()), None)
    if ci != SYSTEMS[-1] and above is not None and not (root / ".git").exists():
        raise UsageError(f"{root} lies in the repository {above}, and CI reads workflows there; name it, or drop --ci")


def _write_file(root: Path, file: StarterFile, *, force: bool) -> str:
    """Writes a file, or adds its line, unless that is there already; returns a line that says what was done."""
    from pytest_attnperf.records.atomic_file import write_atomically

    path, shown = root / file.path, file.path.as_posix()
    before, wanted = path.read_bytes() if path.exists() else None, file.text.encode()
    if file.is_line:
        if before is not None and wanted in before.splitlines():
            return f"left      {shown}: has {file.text}"
        gap = b"\n" if before and not before.endswith(b"\n") else b""
        write_atomically(path, b"%b%b%b\n" % (before or b"", gap, wanted))
        return f"written   {shown}: {file.text}"
    if before == wanted:
        return f"left      {shown}: as it would be"
    if before is not None and not force:
        return f"left      {shown}: exists; --force writes it anew"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, wanted)
    return f"written   {shown}"


def _list_next(root: Path, test: StarterFile, kernel: StarterKernel | None) -> list[str]:
    from pytest_attnperf.environment.gpu_tokens import has_gpu

    place = "" if root.resolve() == Path.cwd() else f"cd {root}, and "
    edit = f"write plain_{kernel.function} and make_inputs in {test.path}, then " if kernel else ""
    lines = [f"{place}{edit}type:", *(f"  {command:<32} {told}" for command, told in NEXT)]
    if importlib.util.find_spec("torch") is None:
        lines += ["torch is not installed, and the test imports it; this names the build:", "  attnperf doctor --quick"]
    found, _ = has_gpu(os.environ)
    if not found:
        lines += ["no GPU is used here, and times of a CPU vary; let only a doubling fail:"]
        lines += [f'  export PYTEST_ADDOPTS="{CPU_OPTIONS}"']
    return [*lines, "once in each clone, so that git merges baselines:", "  attnperf baselines merge --install"]
