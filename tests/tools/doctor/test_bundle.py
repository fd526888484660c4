from __future__ import annotations

import importlib.metadata
import json
import textwrap
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.doctor import bundle
from pytest_attnperf.tools.doctor.bundle import collect_private
from pytest_attnperf.tools.doctor.engine import DoctorReport, Examined
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status

UUID = "5f2c1d3e-0a1b-4c2d-8e9f-001122334455"
TOKEN = "ghp_" + "z" * 36
SECRETS = ("annika", "Lind", "gpu-node-17", "zebra", "hunter2", "correct-horse", UUID, TOKEN, "10.20.30.40", "16502")
"""What stands in every planted text, and must not stand in any member."""


def planted(home: str, root: str) -> str:
    """A line with everything that must not be told."""
    return (
        f"annika of gpu-node-17 ran {home}/zebra/run.py and {root}/x in /mnt/zebra/y as annika@zebra.example with "
        f"https://annika:hunter2@zebra.example/p token={TOKEN} on GPU-{UUID} serial: 16502 at 10.20.30.40 "
        "for Annika Lind, correct-horse-battery"
    )


def narrow(report: DoctorReport) -> str:
    """A report in lines of 9 characters."""
    return "\n".join(part for finding in report.findings for part in textwrap.wrap(finding.value, 9))


@pytest.fixture
def here(make_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A project of one user, every source of whose bundle has the line planted, in texts, names and keys."""
    home = str(tmp_path / "annika")
    account = SimpleNamespace(pw_name="annika", pw_gecos="Annika Lind,,,", pw_dir=home)
    monkeypatch.setattr(bundle, "_find_account", lambda: account)
    monkeypatch.setattr(bundle.os, "uname", lambda: SimpleNamespace(nodename="gpu-node-17.zebra.example"))
    made = make_here()
    line = planted(home, str(made.root))
    environ = {
        "HOME": home, "USER": "annika", "HF_TOKEN": "correct-horse-battery", "TRITON_CACHE_DIR": f"{home}/zebra",
        "ATTNPERF_HISTORY": line, "HIP_annika": line, "ATTNPERF_API_KEY": "hunter2", "ORG_ZEBRA": line,
    }  # fmt: skip
    result = {"command": line, line: line, "cases": [{"nodeid": "suites/zebra/test_a.py::test_b", "summary": line}]}
    logs = made.root / ".attnperf/logs/20260101-000000-7"
    logs.mkdir(parents=True)
    (made.root / ".attnperf/results.json").write_text(json.dumps({**result, "auth": "hunter2", "serial": 16502}))
    (logs / "worker0-annika.log").write_bytes(line.encode() * 900 + b"\n" + line.encode() + b"\xff\nend of log")
    metadata = SimpleNamespace(metadata={"Name": "pkg-annika"}, version="1.0+zebra.gpu-node-17.annika")
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: [metadata])
    return replace(made, environ=environ)


def test_nothing_private_stands_in_any_member(here: Any, tmp_path: Path) -> None:
    """A name, a home, a host, a UUID, a token and a password planted in every source stand nowhere in the archive."""
    line = planted(here.environ["HOME"], str(here.root))
    finding = DoctorFinding(f"name {line}", Status.OK, line, line, line, (line,))
    report = DoctorReport((Examined("p", "T", (finding,), 0.0),), 0.0)
    path = tmp_path / "b.zip"
    # The project's own words that a reader needs, such as names of packages, stay: 'zebra' is no word of ours there.
    private = collect_private(here)
    private = replace(private, users=(*private.users, "zebra"))
    said = bundle.write_bundle(path, report, narrow, here, private)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    assert [each.partition(" ")[0] for each in said] == list(members)
    assert list(members) == [
        "doctor.json", "doctor.txt", "packages.txt", "environment.txt", "results.json", "logs/00-worker0--user-.txt"
    ]  # fmt: skip
    for name, content in members.items():
        # Also where a line ends within a name: the report is printed in lines, which may break it.
        read = f"{name} {content} {''.join(content.split())}".lower()
        assert [each for each in SECRETS if each.lower() in read] == [], name
    assert json.loads(members["results.json"])["cases"][0]["nodeid"] == "test_a.py::test_b"
    assert members["environment.txt"].splitlines()[0] == "ATTNPERF_API_KEY=<secret>"
    assert "ORG_" not in members["environment.txt"]
    assert members["logs/00-worker0--user-.txt"].endswith("end of log")
    assert b"annika" not in path.read_bytes()
    assert {info.date_time for info in zipfile.ZipFile(path).infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_project_without_results_packs_the_rest(make_here: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Without results, with broken or endlessly deep ones, or without logs, the report is packed all the same."""
    monkeypatch.setattr(importlib.metadata, "distributions", list)
    here = make_here()
    expected = ["doctor.json", "doctor.txt", "packages.txt", "environment.txt"]
    for content in (None, "{", "[1]", f'{{"a": {"[" * 700}{"]" * 700}}}'):
        if content is not None:
            (here.root / ".attnperf").mkdir(exist_ok=True)
            (here.root / ".attnperf/results.json").write_text(content)
        bundle.write_bundle(tmp_path / "b.zip", DoctorReport((), 0.0), narrow, here)
        assert zipfile.ZipFile(tmp_path / "b.zip").namelist() == expected


def test_texts_that_are_no_unicode_are_packed(make_here: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """A variable of bytes that are no UTF-8, and half a character in the results, are written as their numbers."""
    monkeypatch.setattr(importlib.metadata, "distributions", list)
    here = make_here(environ={"ATTNPERF_X": "a\udcffb"})
    (here.root / ".attnperf").mkdir()
    (here.root / ".attnperf/results.json").write_text('{"a": "\\ud800x"}')
    bundle.write_bundle(tmp_path / "b.zip", DoctorReport((), 0.0), narrow, here)
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        assert archive.read("environment.txt").decode() == "ATTNPERF_X=a\\udcffb\n"
        assert json.loads(archive.read("results.json")) == {"a": "\ud800x"}


@pytest.mark.parametrize(
    ("name", "said"),
    [("b.tar.gz", "name it FILE.zip"), ("none/b.zip", "there is no folder"), ("b", "name it FILE.zip")],
)
def test_bad_name_is_refused(tmp_path: Path, name: str, said: str) -> None:
    """Another kind of archive, and a folder that is not there, are refused with what to do."""
    with pytest.raises(UsageError, match=said):
        bundle.check_bundle_name(tmp_path / name)


def test_names_of_this_user_and_machine_are_known(make_here: Any, tmp_path: Path) -> None:
    """Names come from the environment, the account and the machine; the project's folder also by the shell's name."""
    link = tmp_path / "link"
    here = make_here()
    link.symlink_to(here.root)
    environ = {"USER": "annika", "HOME": "/" + "home/bo", "HOSTNAME": "n1.corp", "PWD": str(link), "X_TOKEN": "abc"}
    private = collect_private(replace(here, environ=environ))
    assert {"annika", "bo"} <= set(private.users)
    assert {"n1.corp", "n1"} <= set(private.hosts)
    assert private.roots == (str(here.root), str(link))
    assert private.secrets == ("abc",)
