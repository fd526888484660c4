"""`--attnperf-warm` in the user's pytest: makes the first call of every case, and checks what the caches keep."""

from __future__ import annotations

import getpass
import importlib.util
import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin.config import RunConfig
from pytest_attnperf.plugin.features.feature import Feature
from pytest_attnperf.plugin.keys import PLANNED, find_next_case
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.reports.text.grid import GridColumn, GridGroup, GridRow, render_grid
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_judge import Session
from pytest_attnperf.session.time_left import format_duration
from pytest_attnperf.session.warm import CaseWarmer, Reopened

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.on import FeatureContext

SLOWEST = 5
BACKENDS_SHOWN = 8
CASE_LIMIT_S = 4 * 3600.0
"""Seconds after which a case is given up, if --attnperf-case-limit is not typed: a library may compile for hours."""

COLUMNS = (GridColumn("first call"), GridColumn("fresh process"), GridColumn("proof alone"))
KEEP_CHOICES = "TRITON_CACHE_AUTOTUNING"


def refuse_warm(asked: RunConfig, *, distributed: bool) -> None:
    """Raises UsageError if cases would run in parallel, or in pytest's own process."""
    if distributed:
        raise UsageError("--attnperf-warm with -n: compilers use all cores already, and tuning needs the GPU; use -n0")
    if asked.in_process:
        raise UsageError("--attnperf-warm needs processes of its own; drop --attnperf-isolate=none")


@dataclass(eq=False)
class Warming(Feature):
    """Builds, compiles and proves every case, and measures how caches grow; prints a summary at the end."""

    config: pytest.Config
    warm: CaseWarmer
    selected: int
    folders: Sequence[CacheFolder]
    reopened: list[Reopened] = field(default_factory=list)
    _before: dict[CacheFolder, Contents] = field(default_factory=dict)
    _after: dict[CacheFolder, Contents] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _seconds: float = 0.0

    @classmethod
    def for_run(cls, config: pytest.Config, session: Session, selected: int) -> Warming:
        """Makes the feature for a run with `selected` cases, with this machine's cache folders."""
        folders = cache_folders(os.environ, config.rootpath, Path(os.path.expanduser("~")))
        return cls(config, CaseWarmer(session), selected, folders)

    def before_run(self) -> None:
        """Counts the files and bytes in each cache folder, to compare with those at the end."""
        self._before = {folder: read_contents(folder.path) for folder in self.folders}

    def judge_case(self, item: pytest.Item, _key: CaseKey) -> CaseResult:
        """Returns the result of the item's case, after its first call, which builds and compiles its kernels."""
        return self.warm.judge(replace(item.stash[PLANNED], next_key=find_next_case(item.session.items, item)))

    def before_shutdown(self, *, interrupted: bool) -> None:
        """Unless interrupted, counts the cached files again, and makes the first calls of the SLOWEST slowest cases
        again in fresh processes."""
        if not interrupted:
            self._after = {folder: read_contents(folder.path) for folder in self.folders}
            self.reopened = self.warm.reopen_slowest(SLOWEST)
        self._seconds = time.monotonic() - self._began

    def print_at_end(self, reporter: Any) -> None:
        """Prints the summary; with -q no table, with -qq or after an interrupt only one line."""
        verbosity = self.config.get_verbosity()
        results = [result for _, result in self.warm.taken]
        reporter.ensure_newline()
        lines = [total_line(results, self._seconds, self.selected)]
        if verbosity > -2 and self._after:
            lines += [*backend_lines(results), *growth_lines(self._before, self._after)]
            lines += lost_lines(self.reopened, os.environ)
        if verbosity >= 0 and self._after:
            reporter.section("attnperf: warm")
            for line in slowest_table(self.reopened, shutil.get_terminal_size().columns).splitlines():
                reporter.write_line(line)
        for line in lines:
            reporter.write_line(one_line(line, 600))


def make_feature(given: FeatureContext) -> Warming:
    """Returns the feature that builds and compiles every case ahead."""
    return Warming.for_run(given.config, given.session, len(given.cases))


def total_line(results: Sequence[CaseResult], seconds: float, selected: int) -> str:
    """Returns 'warm: 12 of 15 cases are ready, in 85 s, ...' with the number unsupported, not opened and broken."""
    right = sum(result.verdict is Verdict.RIGHT for result in results)
    unsupported = sum(result.verdict is Verdict.UNSUPPORTED for result in results)
    broken = len(results) - right - unsupported
    text = f"warm: {right} of {max(selected, len(results))} cases are ready, in {format_duration(seconds)}"
    text += f", {unsupported} unsupported here" if unsupported else ""
    text += f", {selected - len(results)} not opened" if selected > len(results) else ""
    return f"{text}, {broken} could not be made ready" if broken else text


def backend_lines(results: Sequence[CaseResult]) -> list[str]:
    """Returns a line with the seconds of first calls per backend, longest first; [] without results."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for result in results:
        seconds[result.key.backend] += result.seconds
    most = sorted(seconds.items(), key=lambda item: -item[1])
    parts = [f"{name} {format_duration(took)}" for name, took in most[:BACKENDS_SHOWN]]
    if len(most) > BACKENDS_SHOWN:
        parts.append(
            f"{len(most) - BACKENDS_SHOWN} others {format_duration(sum(took for _, took in most[BACKENDS_SHOWN:]))}"
        )
    return [f"first calls: {', '.join(parts)}"] if parts else []


def slowest_table(reopened: Sequence[Reopened], width: int) -> str:
    """Returns a table of the slowest first calls: seconds of the first call, of one in a fresh process, and of its
    proof (check of the result) alone."""
    rows = tuple(
        GridRow(
            str(one.key), (format_duration(one.first_s), format_duration(one.fresh_s), format_duration(one.proof_s))
        )
        for one in reopened
    )
    return render_grid([GridGroup("", rows)], COLUMNS, corner="slowest first calls", width=width, before=0)


def lost_lines(reopened: Sequence[Reopened], environ: Mapping[str, str]) -> list[str]:
    """Returns a line for each case that every process builds again, with advice to keep the build; [] if none does."""
    return [
        f"not kept on disk: {one.key}: a fresh process pays {format_duration(one.paid_again_s)} of "
        f"{format_duration(one.built_s)} "
        f"again; {_format_advice(one, environ)}"
        for one in reopened
        if not one.is_kept
    ]


def _format_advice(one: Reopened, environ: Mapping[str, str]) -> str:
    if not one.autotuned:
        return "check that the cache folders can be written and that nothing empties them between processes"
    pinned = "--attnperf-pin-config runs it with the configuration stored in its baseline"
    if environ.get(KEEP_CHOICES, "").lower() in ("1", "true", "on", "yes", "y"):
        return f"Triton keeps no choice of configurations with a pre_hook, even with {KEEP_CHOICES}=1; {pinned}"
    return (
        f"its autotuner keeps its choice only in the process: set {KEEP_CHOICES}=1 for this and later runs, if your "
        f"Triton supports it (3.9 does); or {pinned}"
    )


MEGABYTE = 1e6


@dataclass(frozen=True)
class CacheFolder:
    """One cache folder, and the name of the library that uses it."""

    name: str
    path: Path


@dataclass(frozen=True)
class Contents:
    """Number of files in a folder, at any depth, and their total size in bytes."""

    files: int = 0
    size_bytes: int = 0


def cache_folders(environ: Mapping[str, str], root: Path, home: Path) -> list[CacheFolder]:
    """Returns the cache folders of Triton, Inductor, torch's extensions, aiter, and this project's own under `root`.

    aiter builds its modules in its own package if it may write there, else under `home`; kernels for single shapes
    go to another folder.
    """
    triton = environ.get("TRITON_CACHE_DIR") or Path(environ.get("TRITON_HOME") or home, ".triton", "cache")
    inductor = environ.get("TORCHINDUCTOR_CACHE_DIR") or Path(tempfile.gettempdir(), f"torchinductor_{_user_name()}")
    shared = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    found = [
        CacheFolder("Triton", Path(triton)),
        CacheFolder("Inductor", Path(inductor)),
        CacheFolder("torch extensions", Path(environ.get("TORCH_EXTENSIONS_DIR") or shared / "torch_extensions")),
    ]
    named = environ.get("AITER_JIT_DIR")
    aiter = [Path(named)] if named else [*_aiter_packages(), home / ".aiter" / "jit"]
    aiter.append(Path(environ.get("AITER_ROOT_DIR") or home / ".aiter", "build"))
    found += [CacheFolder("aiter", path) for path in aiter]
    return [*found, CacheFolder("attnperf", root / ".attnperf" / "cache")]


def read_contents(folder: Path) -> Contents:
    """Returns the number and size of the files in a folder; zeros if it does not exist or cannot be read."""
    files = size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(where, name)).st_size
            except OSError:  # removed meanwhile
                continue
            files += 1
    return Contents(files, size)


def growth_lines(before: Mapping[CacheFolder, Contents], after: Mapping[CacheFolder, Contents]) -> list[str]:
    """Returns a line with the growth in files and MB for each folder that changed; a line that says so if none did."""
    lines = []
    for folder, now in after.items():
        then = before.get(folder, Contents())
        if now != then:
            files, size = now.files - then.files, (now.size_bytes - then.size_bytes) / MEGABYTE
            lines.append(f"cache of {folder.name}: {files:+d} files, {size:+.1f} MB in {folder.path}")
    return lines or [f"no cache grew: {_join_folder_names(after)} had everything, or nothing was written"]


def _join_folder_names(folders: Mapping[CacheFolder, Contents]) -> str:
    return ", ".join(dict.fromkeys(folder.name for folder in folders))


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"uid_{os.getuid()}"


def _aiter_packages() -> Sequence[Path]:
    """Returns the folders where ROCm's aiter builds modules inside its package; [] if it is not installed."""
    try:
        spec = importlib.util.find_spec("aiter")
    except ValueError:  # sys.modules has a module without a spec
        spec = None
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    return [Path(place, "jit") for place in places if Path(place, "jit").is_dir()]
