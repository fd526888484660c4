"""The journal of a run: one line per judged case, so that the results are on disk however the run ends.

The file is JSON lines. The first is the header. Each other line holds a case, a compiled kernel, or a case carried over
from an earlier journal, as a results document of that one result (`json_results`). If the process is killed, only the
last line can be incomplete, and it is dropped. Any other unreadable line is an error.

Format history: 1 = first published form.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, DeviceInfo
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.regular_file import read_regular
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import GATED, RESULTS_SCHEMA, CaseResult, RunResult

JOURNAL_SCHEMA = 1
MARK = b'{"attnperf_journal":'
"""Bytes that every journal begins with."""


class JournalError(UsageError):
    """A journal cannot be read. The message names file and line."""


@dataclass(frozen=True)
class JournalHeader:
    """The facts about a run that its verdicts depend on.

    method      version of how numbers are made (`records.METHOD_VERSION`)
    harness     digest of the plugin's own files
    settings    settings that can change a verdict, by the option's name
    tests       number of selected tests; `selected` is the number of cases and compiled kernels among them
    command     as it was typed, without credentials; `folder` where, from the root of the tree
    started     UTC, in ISO form
    refused     why the run cannot be resumed; '' if it can
    """

    attnperf_journal: int
    version: str
    method: int
    harness: str
    mode: str
    settings: dict[str, str]
    tests: int
    selected: int
    command: str
    commit: str
    started: str
    pid: int
    refused: str = ""


@dataclass(frozen=True)
class JournalEntry:
    """A result in a journal. `beside`: digests of its files' folders, of baselines, and of the tree's code."""

    result: CaseResult
    beside: dict[str, str]


@dataclass
class JournalContent:
    """The content of a journal.

    cases     judged by that run, the latest of each key
    carried   judged by earlier runs that it resumed, and not yet used by it
    """

    header: JournalHeader
    cases: dict[CaseKey, JournalEntry] = field(default_factory=dict)
    carried: dict[CaseKey, JournalEntry] = field(default_factory=dict)
    code: dict[CaseKey, CodeResult] = field(default_factory=dict)

    @property
    def reusable_results(self) -> dict[CaseKey, JournalEntry]:
        """Case key -> result that a run may reuse when it resumes this one: its own, else one it had reused itself."""
        return {**self.carried, **self.cases}


class _JournalLine(msgspec.Struct, forbid_unknown_fields=True):
    case: msgspec.Raw = msgspec.Raw()
    carried: msgspec.Raw = msgspec.Raw()
    code: msgspec.Raw = msgspec.Raw()
    beside: dict[str, str] = {}


def header_line(header: JournalHeader) -> bytes:
    """Returns the first line of a journal, as JSON with a line break."""
    return msgspec.json.encode(header) + b"\n"


def case_line(kept: JournalEntry, *, carried: bool = False) -> bytes:
    """Returns the journal's line for a case (`carried`: of an earlier run). Raises ResultsFileError for NaN or
    infinity."""
    beside = msgspec.json.encode(kept.beside)
    kind = b"carried" if carried else b"case"
    return b'{"%b": %b, "beside": %b}\n' % (kind, _encode_results(cases=(kept.result,)), beside)


def code_line(result: CodeResult) -> bytes:
    """Returns the journal's line for a compiled kernel. Raises ResultsFileError for NaN or infinity."""
    return b'{"code": %b}\n' % _encode_results(code=(result,))


def read_content(path: Path) -> JournalContent:
    """Reads a whole journal, without an incomplete last line. Raises JournalError naming the line, and OSError."""
    data = read_regular(path, json_results.BYTES_MAX, JournalError)
    lines = data.split(b"\n")[:-1]  # a kill left the text after the last line break incomplete
    if not lines or not data.startswith(MARK):
        raise JournalError(f"{path} does not begin with a journal's header; name a .jsonl file of this plugin")
    content = JournalContent(_decode_header(lines[0], f"{path}, line 1"))
    for number, line in enumerate(lines[1:], 2):
        _add_line(content, line, f"{path}, line {number}")
    return content


def read_journal(path: Path) -> RunResult:
    """Returns a journal's own results as a run with `complete` False. Raises JournalError for an invalid line, OSError
    if it cannot be read."""
    content = read_content(path)
    header, cases = content.header, tuple(kept.result for kept in content.cases.values())
    code = tuple(content.code.values())
    fingerprint = next((case.fingerprint for case in cases if case.fingerprint), None)
    must = {} if fingerprint is None else fingerprint.must_match
    verdicts = [case.verdict for case in cases] + [kernel.verdict for kernel in code]
    return RunResult(
        schema=RESULTS_SCHEMA,
        version=header.version,
        mode=header.mode,
        started=header.started,
        command=header.command,
        commit=header.commit,
        device=DeviceInfo("", must.get("arch", ""), must.get("product", "")) if must else None,
        fingerprint=fingerprint,
        cases=cases,
        gated=sum(verdict in GATED for verdict in verdicts) + sum(case.unchanged for case in cases),
        selected=max(header.selected, len(verdicts)),
        complete=False,
        against=header.settings.get("--attnperf-against", ""),
        code=code,
        run_id=uuid.uuid5(uuid.NAMESPACE_URL, f"{header.started} {header.pid} {header.command}").hex,
    )


def _encode_results(cases: Sequence[CaseResult] = (), code: Sequence[CodeResult] = ()) -> bytes:
    """Returns a results document, with only these cases and kernels, as one line of JSON."""
    run = RunResult(RESULTS_SCHEMA, "", "", "", "", "", None, None, cases=tuple(cases), code=tuple(code))
    return json_results.encode(run).replace(b"\n", b"")


def _decode_header(line: bytes, where: str) -> JournalHeader:
    try:
        header = msgspec.json.decode(line, type=JournalHeader)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(f"{where}: is not a header of this version ({one_line(str(error))})") from error
    if header.attnperf_journal != JOURNAL_SCHEMA:
        raise JournalError(f"{where}: journal format {header.attnperf_journal}; this version reads {JOURNAL_SCHEMA}")
    return header


def _add_line(content: JournalContent, text: bytes, where: str) -> None:
    try:
        line = msgspec.json.decode(text, type=_JournalLine)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(
            f"{where}: cannot be read ({one_line(str(error))}); a kill can damage only the last line of a journal, so "
            "the file was damaged in another way. Remove it and start again"
        ) from error
    try:
        document = json_results.decode(bytes(line.case or line.carried or line.code), where)
    except json_results.ResultsFileError as error:
        raise JournalError(str(error)) from error
    if line.code:
        content.code.update({result.key: result for result in document.code})
        return
    kept = content.cases if line.case else content.carried
    for result in document.cases:
        kept.pop(result.key, None)  # so that the order is that of the latest results
        kept[result.key] = JournalEntry(result, line.beside)
