"""`attnperf baselines merge`: merges baseline files as git's merge driver, and keeps their diffs readable."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import BaselineError, UsageError
from pytest_attnperf.tools.starter.files import ATTRIBUTES, DRIVER

if TYPE_CHECKING:
    from pytest_attnperf.baselines.three_way import Conflict

ORDER = 3
SUMMARY = "merge entry by entry, as git's merge driver or after a conflict"
DESCRIPTION = "Merges baseline files entry by entry, and never loses one."

STAGES = (1, 2, 3)
"""Numbers under which git's index holds a conflicted file's common ancestor, our version and theirs."""

GIT_SECONDS = 60.0
PREFERENCES = ("ours", "theirs", "newer")

EPILOG = f"""An entry that only one side changed is taken from that side. If both changed it differently, it is written
twice, between git's conflict markers; keep one and run git add, or resolve all of a file at once:
  attnperf baselines merge --resolve FILE --prefer newer && git add FILE
--resolve works on any baseline file that git left in conflict, even without the driver. If neither side's time is
valid for the merged code, measure again: pytest --update-baselines NODEID, or attnperf baselines accept.

Once per clone: attnperf baselines merge --install; .gitattributes needs the line
  {ATTRIBUTES}

examples:
  attnperf baselines merge --install
  attnperf baselines merge --resolve baselines/sm_90/h200/prefill.json --prefer theirs
  attnperf baselines merge --rewrite baselines          add summary lines to files that have none
  attnperf baselines merge BASE OURS THEIRS             three files; the result is written to OURS

exit status: 0 merged or done, 1 conflicts are left and marked, 2 the command or a file is invalid (with PATH, as
git calls it, OURS then holds the merge by lines, and git reports a CONFLICT)
"""


@dataclass(frozen=True)
class MergeSides:
    """The bytes of three versions of one file, and its name; `base` is empty if there is no common ancestor."""

    base: bytes
    ours: bytes
    theirs: bytes
    name: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf baselines merge` to its parser."""
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="BASE OURS THEIRS [PATH], git's %%O %%A "
                        "%%B %%P; with --resolve and --rewrite: baseline files")  # fmt: skip
    parser.add_argument("--prefer", choices=PREFERENCES, default="", help="resolve conflicts: take one side, or the "
                        "entry that was recorded or accepted later")  # fmt: skip
    work = parser.add_mutually_exclusive_group()
    work.add_argument("--resolve", action="store_true", help="merge files that git left in conflict")
    work.add_argument("--rewrite", action="store_true", help="rewrite files, or all of a folder, in this version's "
                      "form; only summary lines and order can change")  # fmt: skip
    work.add_argument("--install", action="store_true", help="set up the driver in this clone's git config")


def run(options: argparse.Namespace) -> int:
    """Merges, resolves or rewrites baseline files, or installs the merge driver. Returns 1 if conflicts are left, else
    0. Raises UsageError for invalid options or if git fails, and BaselineError for an invalid file."""
    if options.install:
        return _install(options.files)
    if options.rewrite:
        return _rewrite(options.files)
    if options.resolve:
        if not options.files:
            raise UsageError("--resolve needs the files that are in conflict; git status names them")
        return max([_merge(_read_staged(path), path, options.prefer) for path in options.files])
    if len(options.files) not in (3, 4):
        raise UsageError(
            f"{len(options.files)} files were given; as a merge driver it takes BASE OURS THEIRS and git's path of the "
            "file; otherwise give --resolve, --rewrite or --install"
        )
    from pytest_attnperf.baselines.store import read_content

    base, ours, theirs, *name = options.files
    sides = MergeSides(read_content(base), read_content(ours), read_content(theirs), str(name[0] if name else ours))
    try:
        return _merge(sides, ours, options.prefer)
    except BaselineError:
        if name:  # git uses OURS as the merge: without their lines in it, `git add` would lose them
            with contextlib.suppress(UsageError):
                _merge_lines(sides, ours)
        raise


def _merge(sides: MergeSides, into: Path, prefer: str) -> int:
    """Merges three versions into the file `into`, entry by entry; files without entries line by line. `prefer` ('ours',
    'theirs', 'newer' or '') decides conflicts. Prints those left, and returns 1 if there are any, else 0."""
    from pytest_attnperf.baselines.three_way import merge_three_way, render_merged
    from pytest_attnperf.records.atomic_file import write_atomically

    ours, theirs = _parse_entries(sides.ours, f"our {sides.name}"), _parse_entries(sides.theirs, f"their {sides.name}")
    if ours is None or theirs is None:
        return _merge_lines(sides, into)
    try:
        base = _parse_entries(sides.base, f"base {sides.name}") if sides.base.strip() else {}
    except BaselineError:  # the ancestor of merges may hold conflict markers: then treat it as missing
        base = {}
    try:
        merged = merge_three_way(base or {}, ours, theirs, prefer)
    except BaselineError as error:
        raise BaselineError(f"{sides.name}: {error}") from error
    data = render_merged(merged, _open_levels(ours))
    if not merged.conflicts:
        _parse_entries(data, f"the merged {sides.name}")
    write_atomically(into, data)
    sys.stdout.write("".join(f"{line}\n" for line in _describe_conflicts(sides.name, merged.conflicts)))
    return 1 if merged.conflicts else 0


def _describe_conflicts(name: str, conflicts: Sequence[Conflict]) -> list[str]:
    """Returns lines on each entry in conflict and its versions, then how to resolve them; [] without conflicts."""
    from pytest_attnperf.reports.text.figures import one_line

    lines = []
    for one in conflicts:
        lines.append(one_line(f"{name}: {one.key} was changed on both sides"))
        lines += [one_line(f"  {side}: {_format_entry(entry)}", 400) for side, entry in
                  (("ours", one.ours), ("theirs", one.theirs))]  # fmt: skip
    if conflicts:
        lines.append(
            f"keep one of each in {name}, or: attnperf baselines merge --resolve {shlex.quote(name)} --prefer newer; "
            "then git add it. If neither time is valid for the merged code: pytest --update-baselines"
        )
    return lines


def _format_entry(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "removed"
    commit = str(entry.get("commit", ""))[:12]
    recorded = f"recorded {entry.get('recorded', '?')}" + (f" from {commit}" if commit else "")
    return str(entry.get("summary") or recorded)


def _parse_entries(data: bytes, source: str) -> dict[str, Any] | None:
    """Returns a baseline file as plain JSON, checked; None for JSON without entries. Raises BaselineError naming
    `source` if it is invalid."""
    import msgspec

    from pytest_attnperf.baselines import code_schema, schema

    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BaselineError(f"{source}: is not readable as JSON ({error}); restore it") from error
    if not isinstance(plain, dict) or "entries" not in plain or "schema" not in plain:
        return None
    (schema.decode_baseline if "suite" in plain else code_schema.decode_code_file)(data, source)
    return plain


def _open_levels(file: dict[str, Any]) -> int:
    from pytest_attnperf.baselines import code_schema, schema

    return schema.OPEN_LEVELS if "suite" in file else code_schema.OPEN_LEVELS


def _merge_lines(sides: MergeSides, into: Path) -> int:
    """Merges three versions into `into` by lines, as git does without a driver. Returns 1 if conflicts are left. For
    files without entries, such as ceilings."""
    from pytest_attnperf.records.atomic_file import write_atomically

    with tempfile.TemporaryDirectory(prefix="attnperf-merge-") as folder:
        paths = [Path(folder) / name for name in ("ours", "base", "theirs")]
        for path, data in zip(paths, (sides.ours, sides.base, sides.theirs), strict=True):
            path.write_bytes(data)
        answer = _run_git("merge-file", "-p", *map(str, paths))
    if not 0 <= answer.returncode < 128:
        raise UsageError(f"git merge-file failed on {sides.name}: {answer.stderr.decode(errors='replace').strip()}")
    write_atomically(into, answer.stdout)
    return 1 if answer.returncode else 0


def _read_staged(path: Path) -> MergeSides:
    """Returns base, our and their version of a conflicted file from git's index. Raises UsageError without a
    conflict."""
    folder = path.parent if path.parent.is_dir() else Path()
    versions = [_run_git("show", f":{stage}:./{path.name}", cwd=folder) for stage in STAGES]
    if any(version.returncode for version in versions[1:]):
        raise UsageError(f"{path} has no conflict between two sides; git status names the files that have one")
    base, ours, theirs = (version.stdout if version.returncode == 0 else b"" for version in versions)
    return MergeSides(base, ours, theirs, str(path))


def _rewrite(paths: Sequence[Path]) -> int:
    """Rewrites files, and all .json files of folders, in this version's form, and prints those that changed. Returns 0.
    Raises UsageError without a file, BaselineError for one that is invalid or would lose fields."""
    from pytest_attnperf.baselines.writing import rewrite_file

    if not paths:
        raise UsageError("--rewrite needs a baseline file or a folder of them, such as: baselines")
    files = [file for path in paths for file in (sorted(path.rglob("*.json")) if path.is_dir() else [path])]
    changed = [path for path in files if rewrite_file(path)]
    sys.stdout.write("".join(f"rewritten: {path}\n" for path in changed))
    sys.stdout.write(f"{len(changed)} of {len(files)} files were not in this version's form\n")
    return 0


def _install(files: Sequence[Path]) -> int:
    """Sets the merge driver in this clone's git config, because git takes no command from a repository's own files.
    Returns 0. Raises UsageError if a file is given or git fails."""
    if files:
        raise UsageError("--install sets up this clone and takes no file; drop the file")
    command = f"{shlex.quote(sys.executable)} -m pytest_attnperf.cli baselines merge %O %A %B %P"
    settings = {
        "name": "baselines of pytest-attnperf, entry by entry",
        "driver": command,
        # The ancestor of two ancestors must not hold conflict markers.
        "recursive": "binary",
    }
    for name, value in settings.items():
        answer = _run_git("config", "--local", f"merge.{DRIVER}.{name}", value)
        if answer.returncode:
            raise UsageError(f"git config failed: {answer.stderr.decode(errors='replace').strip()}")
    sys.stdout.write(f"merge.{DRIVER}.driver is set in this clone: {command}\n")
    sys.stdout.write(f"{_attributes_line()}\n")
    return 0


def _attributes_line() -> str:
    named = _run_git("check-attr", "merge", "--", "baselines/arch/product/suite.json").stdout.decode(errors="replace")
    if named.rstrip().endswith(f": {DRIVER}"):
        return ".gitattributes names it for baselines/**/*.json"
    return f"add this line to .gitattributes and commit it, or git will not use the driver:\n  {ATTRIBUTES}"


def _run_git(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """Runs git in `cwd` and returns its status and output. Raises UsageError if it is missing or does not end."""
    try:
        return subprocess.run(["git", *arguments], capture_output=True, timeout=GIT_SECONDS, check=False, cwd=cwd)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"git {arguments[0]} could not be run: {error}; is git installed?") from error
