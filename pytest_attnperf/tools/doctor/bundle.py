"""Writes the report and other material for a bug report into one archive, without private names and folders.

Private on this machine are names of people and of the machine, their folders, and values of secrets.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import pwd
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_attnperf.environment.system import ProbeError
from pytest_attnperf.errors import AttnperfError, UsageError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.regular_file import read_regular
from pytest_attnperf.tools.doctor.engine import DoctorReport, report_json
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Surroundings
from pytest_attnperf.tools.doctor.redaction import SECRET, Private, is_secret_name, redact_text, redact_tree
from pytest_attnperf.tools.doctor.variables import list_relevant_variables

SUFFIX = ".zip"

RESULTS = Path(".attnperf") / "results.json"
LOGS = Path(".attnperf") / "logs"
TAIL_BYTES = 64 * 1024
MOST_LOGS = 8
MOST_RESULT_BYTES = 20 * 2**20

Show = Callable[[DoctorReport], str]

_DATE = (1980, 1, 1, 0, 0, 0)
"""Date of every member, to hide when somebody worked: the oldest that a zip file can hold."""

USER_VARIABLES = (
    *("USER", "LOGNAME", "USERNAME", "SUDO_USER", "JUPYTERHUB_USER", "GITHUB_ACTOR", "GITLAB_USER_LOGIN"),
    *("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GITLAB_USER_NAME"),
)
HOST_VARIABLES = (
    *("HOSTNAME", "HOST", "COMPUTERNAME", "CONTAINER_NAME", "POD_NAME", "NODE_NAME", "KUBERNETES_NODE_NAME"),
    *("SLURMD_NODENAME", "SLURM_SUBMIT_HOST", "RUNNER_NAME"),
)
FOLDER_VARIABLES = ("SCRATCH", "WORK", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")

_LONGEST_COMMON_PART = 3


def check_bundle_name(path: Path) -> None:
    """Raises UsageError if the archive's path does not end in .zip, is a folder, or lies in no existing folder."""
    if path.suffix != SUFFIX:
        raise UsageError(f"--bundle {path}: the archive is a zip file, which bug trackers take; name it FILE{SUFFIX}")
    if path.is_dir():
        raise UsageError(f"--bundle {path}: this is a folder; name a file")
    if not path.parent.is_dir():
        raise UsageError(f"--bundle {path}: there is no folder {path.parent}; make it, or name another")


def write_bundle(
    path: Path, report: DoctorReport, show: Show, here: Surroundings, private: Private | None = None
) -> list[str]:
    """Writes the archive and returns each member as 'name (size in KiB)'. `show` renders a report in full.

    `private` is what must not be in it; default: this user's and this machine's. Raises UsageError for an invalid name,
    OSError if it cannot be written.
    """
    check_bundle_name(path)
    private = collect_private(here) if private is None else private
    stream = io.BytesIO()
    said = []
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in list_members(report, show, here, private):
            # A variable or a result may hold a lone surrogate, which UTF-8 cannot encode.
            data = content.encode("utf-8", "backslashreplace")
            archive.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
            said.append(f"{name} ({max(1, len(data) // 1024)} KiB)")
    write_atomically(path, stream.getvalue())
    return said


def list_members(report: DoctorReport, show: Show, here: Surroundings, private: Private) -> Iterator[tuple[str, str]]:
    """Yields (name, content) of each file of the archive: report, packages, environment, results, logs; all redacted.
    The report is redacted before rendering, which breaks long names into lines."""
    yield "doctor.json", _format_json(redact_tree(report_json(report), private))
    yield "doctor.txt", redact_text(show(_redact_report(report, private)), private)
    yield "packages.txt", redact_text(_render_packages(), private)
    yield "environment.txt", _render_environment(here, private)
    results = _render_results(here.root / RESULTS, private)
    if results:
        yield "results.json", results
    for number, log in enumerate(_newest_logs(here.root / LOGS)):
        yield (
            f"logs/{number:02d}-{_make_file_name(redact_text(log.stem, private))}.txt",
            redact_text(_read_tail(log), private),
        )


def _redact_report(report: DoctorReport, private: Private) -> DoctorReport:
    def redact_finding(finding: DoctorFinding) -> DoctorFinding:
        name, value, meaning, fix = (
            redact_text(text, private) for text in (finding.name, finding.value, finding.meaning, finding.fix)
        )
        details = tuple(redact_text(line, private) for line in finding.details)
        return DoctorFinding(name, finding.status, value, meaning, fix, details)

    examined = tuple(replace(each, findings=tuple(map(redact_finding, each.findings))) for each in report.examined)
    return replace(report, examined=examined)


def _render_packages() -> str:
    """Returns name==version of every installed distribution, without its origin."""
    found = {
        f"{distribution.metadata['Name']}=={distribution.version}"
        for distribution in importlib.metadata.distributions()
    }
    return "".join(f"{line}\n" for line in sorted(found, key=str.lower))


def _render_environment(here: Surroundings, private: Private) -> str:
    """Returns lines NAME=value of the variables that can change measurements, with private parts redacted."""
    shown = {
        redact_text(name, private): SECRET if is_secret_name(name) else redact_text(value, private)
        for name, value in list_relevant_variables(here.environ).items()
    }
    return "".join(f"{name}={value}\n" for name, value in shown.items())


def _render_results(path: Path, private: Private) -> str:
    """Returns a results file as redacted JSON with short node ids; '' if it is missing or not a JSON object."""
    try:
        found = json.loads(read_regular(path, MOST_RESULT_BYTES))
        return _format_json(redact_tree(_strip_folders(found), private)) if isinstance(found, dict) else ""
    except (AttnperfError, OSError, ValueError, RecursionError):
        return ""


def _strip_folders(value: Any) -> Any:
    """Returns a JSON value with shorter node ids: 'suites/client/test_a.py::test_b' -> 'test_a.py::test_b'."""
    if isinstance(value, dict):
        return {key: _shorten_id(item) if key == "nodeid" else _strip_folders(item) for key, item in value.items()}
    return [_strip_folders(item) for item in value] if isinstance(value, list) else value


def _shorten_id(nodeid: Any) -> Any:
    if not isinstance(nodeid, str):
        return _strip_folders(nodeid)
    file, separator, test = nodeid.partition("::")
    return f"{file.rpartition('/')[2]}{separator}{test}"


def _newest_logs(folder: Path) -> list[Path]:
    """Returns the worker logs of the newest run below `folder`, latest first, at most MOST_LOGS; else an empty list."""
    try:
        runs = [path for path in folder.iterdir() if path.is_dir()]
        newest = max(runs, key=lambda path: path.name, default=None)
        if newest is None:
            return []
        logs = [path for path in newest.glob("*.log") if path.is_file() and not path.is_symlink()]
        return sorted(logs, key=lambda path: path.stat().st_mtime, reverse=True)[:MOST_LOGS]
    except OSError:
        return []


def _read_tail(path: Path) -> str:
    """Returns the last TAIL_BYTES of a log, from the start of a line: redaction would miss a name that is cut in two.
    If the log cannot be read, the text says so."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - TAIL_BYTES))
            data = stream.read(TAIL_BYTES)
    except OSError as error:
        return f"could not be read: {error.strerror}\n"
    if size > TAIL_BYTES:
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "replace")


def _make_file_name(name: str) -> str:
    """Returns the first 60 characters of `name`, with '-' for each that some file system may refuse."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[:60]


def _format_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def collect_private(here: Surroundings) -> Private:
    """Returns the private names, folders and secrets to redact. Reads local sources only, no network."""
    names = [name for name in _list_users(here) if name]
    hosts = [name for name in _list_hosts(here) if name]
    hosts += [name.partition(".")[0] for name in hosts]
    return Private(
        users=tuple(dict.fromkeys(name for name in names if len(name) > 1)),
        hosts=tuple(dict.fromkeys(name for name in hosts if len(name) > 1)),
        homes=tuple(dict.fromkeys(_list_folders(here))),
        roots=tuple(_list_roots(here)),
        secrets=tuple(value for name, value in here.environ.items() if is_secret_name(name)),
    )


def _list_users(here: Surroundings) -> Iterator[str]:
    """Yields what may name the user: account and home folder names, the full name, that with its spaces removed or
    replaced by '.', '_' or '-', and its longer words."""
    yield from (here.environ.get(name, "") for name in USER_VARIABLES)
    yield from (os.path.basename(home.rstrip("/")) for home in _list_homes(here))
    account = _find_account()
    if account is not None:
        yield account.pw_name
        full = account.pw_gecos.partition(",")[0].strip()
        yield from (full, *(between.join(full.split()) for between in ("", ".", "_", "-")))
        yield from (part for part in re.split(r"[\s.]+", full) if len(part) > _LONGEST_COMMON_PART)


def _list_folders(here: Surroundings) -> Iterator[str]:
    """Yields the home folders and those that FOLDER_VARIABLES name, each also with links resolved."""
    for folder in (*_list_homes(here), *(here.environ.get(name, "") for name in FOLDER_VARIABLES)):
        if len(folder) > 1:
            yield folder
            yield os.path.realpath(folder)


def _list_homes(here: Surroundings) -> tuple[str, str]:
    """Returns the home folder that HOME names and that of the system's account; '' for an unknown one."""
    account = _find_account()
    return here.environ.get("HOME", ""), account.pw_dir if account is not None else ""


def _list_roots(here: Surroundings) -> Iterator[str]:
    """Yields the project's folder with links resolved and, if different, as the shell names it."""
    yield str(here.root)
    shell = here.environ.get("PWD", "")
    if shell and os.path.realpath(shell) == os.path.realpath(here.root):
        yield shell


def _list_hosts(here: Surroundings) -> Iterator[str]:
    yield from (here.environ.get(name, "") for name in HOST_VARIABLES)
    yield os.uname().nodename
    try:
        yield here.system.read("etc/hostname")
    except ProbeError:
        return


def _find_account() -> pwd.struct_passwd | None:
    """Returns the user's entry in the system's accounts; None in a container whose user has no entry."""
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        return None
