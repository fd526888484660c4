"""The journal of a run: it stores every result on disk at once, and a resumed run reuses results of an older journal.

A run holds a lock on its journal while its process is alive; a journal without a lock is of an unfinished run.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.baselines.store import BaselineStore, StoredEntry
from pytest_attnperf.errors import AttnperfError, BaselineError, UsageError, WorkerError
from pytest_attnperf.plugin.config import is_xdist_worker, run_config
from pytest_attnperf.plugin.features.feature import Feature
from pytest_attnperf.plugin.features.journal.journal_header import (
    EVERYWHERE,
    FOLDER,
    compare_headers,
    describe_differences,
    describe_nothing_to_resume,
    describe_run,
    file_digest,
    folder_digest,
    format_resume_command,
    list_selected,
    make_header,
    refuse_resume,
)
from pytest_attnperf.plugin.keys import PLANNED, case_key
from pytest_attnperf.records import CaseKey, Fingerprint
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.reports.files.journal import (
    JournalContent,
    JournalEntry,
    JournalError,
    JournalHeader,
    case_line,
    code_line,
    header_line,
    read_content,
)
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.looking import GATE_PLACE, RECORD_PLACES, RECORDING, UNTIMED
from pytest_attnperf.session.resume import JUDGED_AGAIN, CaseConditions, reason_to_judge_again
from pytest_attnperf.session.settings import RunMode, RunSettings
from pytest_attnperf.workers.base_spec import BaseKind, parse_spec
from pytest_attnperf.workers.pool import Pool

if TYPE_CHECKING:
    from pytest_attnperf.plugin.ending import Ended
    from pytest_attnperf.plugin.features.on import FeatureContext


@dataclass(eq=False)  # hashable: pluggy keeps plugins in sets
class Journaling(Feature):
    """The journal of one run, and the results that it reuses.

    old      journal of the interrupted run that this one resumes
    header   header of this run's journal, written with the first result; None if this process writes no journal
    """

    config: pytest.Config
    settings: RunSettings
    old: JournalContent | None = None
    old_path: Path | None = None
    header: JournalHeader | None = None
    _writer: JournalWriter | None = None
    _problem: str = ""
    _seen: dict[CaseKey, bool] = field(default_factory=dict)
    _again: dict[CaseKey, str] = field(default_factory=dict)
    _kept: bool = False
    _digests: dict[str, str] = field(default_factory=dict)

    @classmethod
    def start_or_resume(cls, config: pytest.Config, settings: RunSettings, commit: str) -> Journaling:
        """Returns this run's journal; --attnperf-resume makes it read the old one, too, or raise UsageError if none."""
        journal = cls(config, settings)
        header = make_header(config, settings, commit)
        beside = is_xdist_worker(config)  # the controller reports problems and writes the journal
        if run_config(config).resume:
            journal._find_old_run(header, beside=beside)
        if not beside:
            journal.header = header
            config.pluginmanager.register(journal, "attnperf-journal")
        return journal

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Stores the number of tests in xdist's controller. Raises UsageError if the resumed run had another number."""
        assert self.header is not None
        self.header = replace(self.header, tests=len(ids))
        if self.old is not None and self.old.header.tests != len(ids):
            raise pytest.UsageError(describe_differences(self.old.header, self.header))

    def judge_case(self, _item: pytest.Item, key: CaseKey) -> CaseResult | None:
        """Returns the interrupted run's result of a case; None if there is none or it is not valid any more."""
        kept = None if self.old is None else self.old.reusable_results.get(key)
        if kept is None:
            return None
        item = self._items.get(key)
        if item is None:
            return None
        try:
            why = reason_to_judge_again(kept.result, kept.beside, self._find_standing(item, kept.result))
        except BaselineError:  # the judging that follows reports it
            why = "its stored entry cannot be read"
        if why:
            self._again[key] = why
            return None
        return replace(kept.result, nodeid=item.nodeid, resumed=True)

    def after_case(self, result: CaseResult | CodeResult) -> None:
        """Writes a result to the journal. If that fails, the run goes on without a journal."""
        if isinstance(result, CaseResult):
            self._seen[result.key] = result.resumed
        if self.header is None or self._problem:
            return
        try:
            self._append_result(result, self.header)
        except (OSError, AttnperfError) as error:
            self._problem = str(error)

    def after_run(self, ended: Ended) -> None:
        """Removes this run's journal and the one it resumed. A run that stopped early keeps its own, to be resumed."""
        writer, self._writer = self._writer, None
        stopped = not ended.run.complete and _was_stopped(self.config)
        self._kept = stopped and (writer is not None or self.old is not None)
        if writer is not None:
            writer.close(keep=stopped)
        # This run's own journal begins with the results of the old one.
        if self.header is not None and self.old_path is not None and (writer is not None or not stopped):
            with contextlib.suppress(OSError):  # read-only by now: it stays and is still valid
                self.old_path.unlink(missing_ok=True)

    def collect_notes(self, _cases: Iterable[CaseResult]) -> Sequence[str]:
        """Returns notes on reused results, and on a journal that could not be written; () if neither."""
        notes = [f"no journal is kept, and this run cannot be resumed: {self._problem}"] if self._problem else []
        if self.old is None:
            return tuple(notes)
        resumed, known = sum(self._seen.values()), self.old.reusable_results
        judged = f"{resumed} of {len(self._seen)} cases were judged by {describe_run(self.old.header)}"
        notes.append(f"resumed: {judged}, which was interrupted")
        again = [key for key, taken in self._seen.items() if not taken and key in known]
        if again:
            reasons = Counter(self._again.get(key, "") for key in again)
            said = ", ".join(f"{why} ({count})" for why, count in reasons.most_common() if why)
            notes.append(f"judged again, although judged before: {len(again)}" + (f"; {said}" if said else ""))
        return tuple(notes)

    def resume_command(self) -> str:
        """Returns the command that resumes this run; '' if it is complete or cannot be resumed."""
        return (
            ""
            if self.header is None or self.header.refused or not self._kept
            else format_resume_command(self.header.command)
        )

    @functools.cached_property
    def _items(self) -> dict[CaseKey, pytest.Item]:
        return {key: item for item in list_selected(self.config) if (key := case_key(item)) is not None}

    def _find_old_run(self, header: JournalHeader, *, beside: bool) -> None:
        """Sets `old` and `old_path` to the newest unfinished run with the same settings. Raises UsageError if there is
        none, unless `beside` is set (in a worker of xdist)."""
        folder = self.config.rootpath / FOLDER
        try:
            check_own_journals(self.config.rootpath, FOLDER)
            ended = read_journals(list_unfinished(folder))
            candidates = [(path, content) for path, content in ended if not content.header.refused]
            fitting = [(path, content) for path, content in candidates if not compare_headers(content.header, header)]
            if fitting:
                self.old_path, self.old = fitting[0]
            elif candidates:
                raise UsageError(describe_differences(candidates[0][1].header, header))
            else:
                raise UsageError(
                    describe_nothing_to_resume(
                        [content.header for _, content in (*ended, *read_journals(list_living(folder)))]
                    )
                )
        except UsageError:
            if not beside:
                raise

    def _append_result(self, result: CaseResult | CodeResult, header: JournalHeader) -> None:
        if self._writer is None:
            known = {} if self.old is None else self.old.reusable_results
            decided = [kept for kept in known.values() if kept.result.verdict not in JUDGED_AGAIN]
            first = [header_line(header), *(case_line(kept, carried=True) for kept in decided)]
            self._writer = JournalWriter(self.config.rootpath / FOLDER, first)
        if isinstance(result, CodeResult):
            self._writer.append(code_line(result))
            return
        folders = sorted(
            {
                EVERYWHERE,
                *self._list_baseline_folders(),
                *(path.split("/")[0] for path in result.sources if "/" in path),
            }
        )
        self._writer.append(case_line(JournalEntry(result, {name: self._digest_folder(name) for name in folders})))

    def _list_baseline_folders(self) -> tuple[str, ...]:
        """Returns (top-level folder of the baselines,), whose files count as inputs of every case; () if none."""
        return Path(run_config(self.config).baselines).parts[:1]

    def _digest_folder(self, folder: str) -> str:
        if folder not in self._digests:
            self._digests[folder] = folder_digest(self.config.rootpath, folder)
        return self._digests[folder]

    def _find_standing(self, item: pytest.Item, result: CaseResult) -> CaseConditions:
        """Returns what the case would be judged under now: files, policy, baseline, base side, machine."""
        assert self.old is not None
        run: Any = self.config.pluginmanager.get_plugin("attnperf-run")
        against = run.session.bench.against
        return CaseConditions(
            digest=functools.partial(file_digest, self.config.rootpath),
            beside=self._digest_folder,
            policy=item.stash[PLANNED].policy.to_record(),
            found=functools.partial(_find_stored, run.session.bench.store, result),
            base="" if against is None else against.label,
            base_fixed=_is_revision(run_config(self.config).against),
            today=datetime.now(timezone.utc).date().isoformat(),
            then=self.old.header.started[:10],
            fingerprint=functools.partial(_find_fingerprint, run.session.bench.pool, self.settings.mode),
        )


def _was_stopped(config: pytest.Config) -> bool:
    """Returns whether the session ended before its last test: interrupted, crashed, or by -x or --maxfail."""
    session: Any = config.pluginmanager.get_plugin("session")
    ended = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    return bool(session.shouldstop or session.shouldfail) or session.exitstatus not in ended


def _find_stored(store: BaselineStore, result: CaseResult) -> StoredEntry | None:
    """Returns the baseline entry of the case for the device on which it ran; None if there is none."""
    must = {} if result.fingerprint is None else result.fingerprint.must_match
    if not must.get("arch") or not must.get("product"):
        return None
    return store.find(must["arch"], must["product"], result.key.suite, result.key.entry)


def _find_fingerprint(pool: Pool, mode: RunMode) -> Fingerprint | None:
    """Returns the fingerprint of this run's workers; None if none can start, which the next case then reports."""
    try:
        return pool.wait_until_ready(RECORD_PLACES if mode in RECORDING else GATE_PLACE).fingerprint
    except WorkerError:
        return None


def _is_revision(against: str) -> bool:
    return bool(against) and parse_spec(against, Path.cwd()).kind is BaseKind.REV


KEPT_UNFINISHED = 3
SUFFIX, UNNAMED = ".jsonl", ".begun"
SYNC_EVERY_S = 1.0
"""Seconds of results that a power cut may lose; killing the process loses nothing that was written."""


def is_alive(path: Path) -> bool:
    """Returns whether the run that writes this journal is still running: it holds a lock on the file."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # A shared lock, so that two readers do not take each other for the run.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in (errno.EAGAIN, errno.EACCES)
        finally:
            os.close(descriptor)
    return False


def list_unfinished(folder: Path) -> list[Path]:
    """Returns the journals of runs that ended unfinished, newest first."""
    return [path for path in sorted(folder.glob(f"*{SUFFIX}"), reverse=True) if not is_alive(path)]


def list_living(folder: Path) -> list[Path]:
    """Returns the journals of runs that are still running."""
    return [path for path in folder.glob(f"*{SUFFIX}") if is_alive(path)]


def read_journals(paths: Iterable[Path]) -> list[tuple[Path, JournalContent]]:
    """Returns (path, content) of these journals, without those that a kill left without a complete first line. Raises
    JournalError for one that cannot be read."""
    read = ((path, _read_journal(path)) for path in paths)
    return [(path, content) for path, content in read if content is not None]


def _read_journal(path: Path) -> JournalContent | None:
    try:
        with path.open("rb") as stream:
            begun = b"\n" in stream.read(1 << 20)
        return read_content(path) if begun else None
    except FileNotFoundError:  # another run has just removed it
        return None
    except OSError as error:
        raise JournalError(f"journal {path} cannot be read ({error.strerror}); remove it, or start anew") from error


def check_own_journals(root: Path, folder: Path) -> None:
    """Raises JournalError if journals are under version control: a change under review could bring its own verdicts."""
    try:
        command = ["git", "-C", str(root), "ls-files", "--", str(folder)]
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
    if answer.returncode == 0 and answer.stdout.strip():
        raise JournalError(
            f"{folder} is under version control, so its verdicts may not be from a run of yours; take it out "
            f"(git rm -r --cached {folder}), remove the files, and start anew"
        )


class JournalWriter:
    """Appends lines to a journal, each with one write, because the process may be killed between lines."""

    def __init__(self, folder: Path, first: Iterable[bytes], now: Callable[[], float] = time.monotonic) -> None:
        """Makes and locks a journal with the lines `first`; removes the oldest unfinished ones. OSError if it fails.

        The journal gets its final name, by which a later run finds it, after these lines are written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")
        self.path = folder / f"{stamp}-{os.getpid()}{UNNAMED}"
        self._now, self._synced = now, now()
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        try:
            with contextlib.suppress(OSError):  # a file system without locks: its journals all count as unfinished
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            for line in first:
                self.append(line)
            self.path = self.path.rename(self.path.with_suffix(SUFFIX))
        except BaseException:
            self.close(keep=False)
            raise
        _remove_old_journals(folder)

    def append(self, line: bytes) -> None:
        """Appends a whole line, or raises OSError and leaves the file unchanged."""
        size = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, line)
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise
        if written != len(line):
            os.ftruncate(self._descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        if self._now() - self._synced >= SYNC_EVERY_S:
            self.sync()

    def sync(self) -> None:
        """Flushes written lines to the disk."""
        os.fsync(self._descriptor)
        self._synced = self._now()

    def close(self, *, keep: bool) -> None:
        """Closes and unlocks the journal; removes it unless `keep` is set."""
        with contextlib.suppress(OSError):
            if keep:
                self.sync()
            else:
                self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _remove_old_journals(folder: Path) -> None:
    """Removes dead runs' journals without a final name, and all but the newest KEPT_UNFINISHED unfinished ones."""
    begun = [path for path in folder.glob(f"*{UNNAMED}") if not is_alive(path)]
    for old in [*begun, *list_unfinished(folder)[KEPT_UNFINISHED:]]:
        with contextlib.suppress(OSError):
            old.unlink(missing_ok=True)


def make_feature(given: FeatureContext) -> Journaling | None:
    """Returns the journal of a run that measures, else None. Raises UsageError if the run cannot resume."""
    if given.asked.resume:
        refuse_resume(given.config, given.settings)
    if given.mode in UNTIMED:
        return None
    given.journal = Journaling.start_or_resume(given.config, given.settings, given.session.bench.commit)
    return given.journal
