"""Findings about results files as a whole: whether they are of the right commits, and which stored entries they lack.

Commit and base side are statements of the file, as its samples are. These findings catch a file of another commit that
was submitted again, and a measuring job that compared with another base. A case that was gated before cannot disappear
from a results file without a finding.

Also reads the baselines of another revision through git, without checking out or running anything of the revision. Only
regular files under the baselines folder are read, by the ids of their blobs, into a new temporary folder. A symbolic
link or a submodule anywhere in it is refused: its target was not reviewed.
"""

from __future__ import annotations

import contextlib
import functools
import re
import string
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_attnperf.baselines.code_store import CodeStore
from pytest_attnperf.baselines.store import BaselineStore, require_plain_name
from pytest_attnperf.errors import BaselineError, UsageError
from pytest_attnperf.gate.policy import CPU, NIGHTLY
from pytest_attnperf.records.code import CODE_SUITE
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.results import RunResult
from pytest_attnperf.session.rejudge.compiled_kernels import find_missing_code
from pytest_attnperf.workers.revisions import Repository
from pytest_attnperf.workers.source_tree import Revisions

ALL_ARCHS = "all"
ANY_DEVICE = "any"


def find_missing_cases(
    runs: Sequence[RunResult],
    store: BaselineStore,
    suites: Sequence[str] = (),
    archs: Sequence[str] = (),
    tier: str = "",
) -> list[str]:
    """Returns a finding for each stored entry without a case in any of the runs.

    Checks every suite that is stored for a device of the runs, or only `suites`, each of which must have a case
    somewhere.

    archs   architectures whose stored kernels must all be present, 'all' for every stored one; empty for those that
            the runs compiled for
    tier    'nightly' where the runs had to include nightly cases: by the stored policies, not by what the runs state
    """
    found: list[str] = []
    judged: dict[tuple[str, str], dict[str, set[str]]] = {}
    for run in runs:
        if run.device is not None:
            by_suite = judged.setdefault((run.device.arch, run.device.product), {})
            for case in run.cases:
                by_suite.setdefault(case.key.suite, set()).add(case.key.entry)
    for (arch, product), by_suite in judged.items():
        found += _find_missing_on_device(store, arch, product, by_suite, suites, tier)
    seen = {suite for by_suite in judged.values() for suite in by_suite}
    found += [
        f"suite {suite}: no results file has a case of it" for suite in suites if suite not in {*seen, CODE_SUITE}
    ]
    if archs or not suites or CODE_SUITE in suites:
        wanted = sorted({*archs, *list_stored_archs(store)} - {ALL_ARCHS}) if ALL_ARCHS in archs else archs
        asked_for = bool(archs) or CODE_SUITE in suites
        found += find_missing_code(runs, CodeStore(*store.roots), asked_for=asked_for, archs=wanted)
    return found


def find_unmeasured_devices(runs: Sequence[RunResult], devices: Sequence[str]) -> list[str]:
    """Returns a finding for each of these devices ('sm_90/h200', or 'any') that no run has a case of."""
    there = {f"{run.device.arch}/{run.device.product}" for run in runs if run.device is not None and run.cases}
    of = f"; measured on {', '.join(sorted(there))}" if there else "; nothing was measured"
    return [
        f"no case was measured on {'any device' if device == ANY_DEVICE else device}{of}"
        for device in devices
        if device not in there and not (device == ANY_DEVICE and there)
    ]


def list_stored_archs(store: BaselineStore) -> list[str]:
    """Returns the architectures for which compiled kernels are stored, sorted."""
    return sorted({path.parent.name for root in store.roots for path in root.glob(f"[!.]*/{CODE_SUITE}.json")})


def _find_missing_on_device(
    store: BaselineStore,
    arch: str,
    product: str,
    judged: Mapping[str, set[str]],
    suites: Sequence[str],
    tier: str,
) -> list[str]:
    found: list[str] = []
    try:
        stored = list_stored_suites(store, arch, product)
        if judged and not stored:
            found.append(f"no baseline is stored for {arch}/{product}: missing cases cannot be detected there")
        for suite in suites or stored:
            found += _list_without_case(store, (arch, product, suite), judged.get(suite, set()), tier)
    except BaselineError as error:
        found.append(str(error))
    return found


def list_stored_suites(store: BaselineStore, arch: str, product: str) -> list[str]:
    """Returns suites that have a baseline on a device. Raises BaselineError for a device that is no plain file name."""
    folders = (root / require_plain_name("arch", arch) / require_plain_name("product", product) for root in store.roots)
    try:
        return sorted({path.stem for folder in folders for path in folder.glob("[!.]*.json")})
    except OSError as error:
        raise BaselineError(f"the results' device name cannot be a folder's name: {error.strerror}") from None


def _list_without_case(store: BaselineStore, where: tuple[str, str, str], judged: set[str], tier: str) -> list[str]:
    arch, product, suite = where
    if suite == CODE_SUITE:
        return []
    gone = [
        entry
        for entry, found in store.load(arch, product, suite).items()
        if entry not in judged and not can_be_left_out(found.policy, tier, arch)
    ]
    if gone and not judged:
        return [f"{suite}: {len(gone)} baselines for {arch}/{product} but no case: the suite was removed or deselected"]
    return [f"{suite}/{entry} has a baseline but no case: it was removed, renamed or deselected" for entry in gone]


def can_be_left_out(stored_policy: Mapping[str, Any], tier: str, arch: str) -> bool:
    """Returns whether a run of this tier may lack a case that is stored with this policy for `arch`."""
    lacks = (NIGHTLY,) if arch.startswith("cpu-") else (CPU, NIGHTLY)
    return tier != NIGHTLY and stored_policy.get("tier") in lacks


OTHER_BASE = "measured against another base:"
SHOWN_CHARACTERS = 80

_FULL = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ABBREVIATED = re.compile(r"[0-9a-f]{12,64}")
_LABEL = re.compile(r".*\((?P<commit>[0-9a-f]{7,64})\)", re.DOTALL)


def require_full(commits: Sequence[str]) -> None:
    """Raises UsageError for an incomplete commit id: a name or a short id may mean another commit later."""
    for commit in commits:
        if not _FULL.fullmatch(commit):
            raise UsageError(
                f"--commit {commit[:SHOWN_CHARACTERS]!r} is not a full commit id of 40 hexadecimal digits; "
                "`git rev-parse HEAD` prints one"
            )


def find_other_commit(run: RunResult, commits: Sequence[str]) -> list[str]:
    """Returns a finding if the run is of none of these commits; [] if it is, or none is given.

    A run without git history, or of a modified tree, matches none: it is unknown what it measured.
    """
    if not commits or (_ABBREVIATED.fullmatch(run.commit) and any(full.startswith(run.commit) for full in commits)):
        return []
    known = " or ".join(full[:12] for full in commits)
    said = f"of another commit: the results are of {run.commit[:SHOWN_CHARACTERS]!r}, expected {known}"
    return [Note(NoteKind.OTHER_COMMIT, said)]


def find_other_base(run: RunResult, base_has: Callable[[str], bool] | None) -> list[str]:
    """Returns a finding for each base side that pairs were measured against but that is not in the base's history.

    base_has   returns whether a commit is in that history; None where the base is no revision
    """
    if base_has is None:
        return []
    found = []
    for label in dict.fromkeys(case.against for case in run.cases if case.pairs):
        named = _LABEL.fullmatch(label)
        if named is None or not base_has(named["commit"]):
            found.append(f"{OTHER_BASE} {label[:SHOWN_CHARACTERS]!r} is not a commit in the history of the base, "
                         "or this clone does not reach so far back")  # fmt: skip
    return found


BYTES_MAX = 200_000_000
"""Largest size of all baselines of a revision together: a thousand cases take about two million bytes."""

FILES_MAX = 10_000
REV, DIR = "rev:", "dir:"
BASELINE_DEPTH = 3
"""Depth of `<arch>/<product>/<suite>.json`; deeper files are no baselines of cases."""

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_LISTED = re.compile(r"(?P<mode>[0-7]+) (?P<kind>\w+) (?P<blob>[0-9a-f]+) +(?P<size>\d+|-)\t(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True)
class Base:
    """Where baselines are read from: their folder, and a name for people.

    has         returns whether a commit is in the history of the revision; None for a folder
    revisions   with that revision; None for a folder
    """

    folder: Path
    label: str
    has: Callable[[str], bool] | None = None
    revisions: Revisions | None = None


@contextlib.contextmanager
def open_base(text: str, baselines: str, cwd: Path) -> Iterator[Base]:
    """Yields the baselines of a revision or a folder; `baselines` is the folder's name in a tree.

    Text that begins with '.', '/' or 'dir:' is a folder. Anything else is a revision if git knows it, so that no folder
    of a change can take a revision's place. '' is the working tree. Raises UsageError if there is no such revision or
    folder.
    """
    if not text:
        yield Base(_find_baselines_folder(cwd, baselines, "."), "the working tree")
        return
    plain = text.removeprefix(DIR)
    as_folder = text.startswith((DIR, ".", "/"))
    repository = None if as_folder else Repository.find_around(cwd)
    if not as_folder and not text.startswith(REV) and (repository is None or not _knows_revision(repository, text)):
        as_folder = (cwd / plain).is_dir()
    if as_folder:
        yield Base(_find_baselines_folder(cwd / plain, baselines, plain), plain)
        return
    if repository is None:
        raise UsageError(
            f"--against {text!r} is no folder, and {cwd} is not in a git repository; name a baselines folder"
        )
    revision = text.removeprefix(REV)
    commit = repository.commit_of(revision)
    with tempfile.TemporaryDirectory(prefix="attnperf-base-") as folder:
        write_baselines(repository, commit, _git_prefix(repository, cwd, baselines), Path(folder))
        label, has = f"{revision} ({commit[:12]})", functools.partial(is_in_history, repository, commit)
        yield Base(Path(folder), label, has, Revisions(repository, cwd, commit))


def write_baselines(repository: Repository, commit: str, prefix: str, folder: Path) -> None:
    """Writes the baseline files of a commit under `prefix` into `folder`. Raises UsageError if git cannot list them,
    there are none or too many, or one is no regular file."""
    listed = repository.run("ls-tree", "-r", "-z", "-l", "--full-tree", commit, "--", prefix)
    if listed.returncode != 0:
        raise UsageError(f"git cannot list {prefix} of {commit[:12]}: {listed.stderr.strip()}")
    lines = [line for line in listed.stdout.split("\0") if line]
    if not lines:
        raise UsageError(f"commit {commit[:12]} has no folder {prefix}; name it with --baselines")
    if len(lines) > FILES_MAX:
        raise UsageError(
            f"{prefix} of {commit[:12]} holds {len(lines)} files; at most {FILES_MAX} are read: remove other files"
        )
    left = BYTES_MAX
    for line in lines:
        found = _LISTED.fullmatch(line)
        if found is None or found["kind"] != "blob" or found["mode"] not in ("100644", "100755"):
            raise UsageError(f"{prefix} of {commit[:12]} holds other than regular files: {line!r}; replace them")
        parts = found["path"].removeprefix(f"{prefix}/").split("/")
        left -= int(found["size"])
        if left < 0:
            raise UsageError(f"{prefix} of {commit[:12]} is larger than {BYTES_MAX} bytes; remove other files")
        if len(parts) <= BASELINE_DEPTH and parts[-1].endswith(".json") and all(map(_PART.fullmatch, parts)):
            _write_blob(repository, found["blob"], folder.joinpath(*parts))


def is_in_history(repository: Repository, commit: str, text: str) -> bool:
    """Returns whether `text` is the id, which may be abbreviated, of `commit` or of one of its ancestors; False for
    names such as HEAD."""
    if not text or set(text) - set(string.hexdigits):
        return False  # a name could mean any revision, or an option
    known = repository.run("rev-parse", "--verify", "--quiet", f"{text}^{{commit}}").stdout.strip()
    return known.startswith(text) and repository.run("merge-base", "--is-ancestor", known, commit).returncode == 0


def _write_blob(repository: Repository, blob: str, path: Path) -> None:
    answer = repository.run("cat-file", "blob", blob)
    if answer.returncode != 0:
        raise UsageError(f"git cannot read {path.name}, blob {blob[:12]}: {answer.stderr.strip()}; check with git fsck")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(answer.stdout.encode("utf-8", "surrogateescape"))


def _knows_revision(repository: Repository, text: str) -> bool:
    if "..." not in text:
        return repository.has_commit(text)
    return all(repository.has_commit(side or "HEAD") for side in text.split("...", 1))


def _git_prefix(repository: Repository, cwd: Path, baselines: str) -> str:
    """Returns the path of the folder `baselines` of `cwd` in the repository. Raises UsageError if outside."""
    folder = Path(cwd.resolve() / baselines)
    parts = folder.relative_to(repository.top).parts if folder.is_relative_to(repository.top) else ()
    if not parts or ".." in parts:
        raise UsageError(f"--baselines {baselines!r} is no folder in the repository {repository.top}; name one there")
    return "/".join(parts)


def _find_baselines_folder(tree: Path, baselines: str, text: str) -> Path:
    """Returns the tree's folder `baselines`, or the tree if it holds baselines. Raises UsageError for neither."""
    if (tree / baselines).is_dir():
        return tree / baselines
    if tree.is_dir() and (any(tree.glob("*/*/*.json")) or any(tree.glob("*/*.json"))):
        return tree
    raise UsageError(
        f"--against {text!r} holds no baselines: neither {tree / baselines} nor <arch>/<product>/*.json there"
    )
