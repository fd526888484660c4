"""`attnperf baselines merge`: as git's merge driver, after a conflict, and its errors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_attnperf.baselines.code_schema import decode_code_file as decode_code
from pytest_attnperf.baselines.schema import BaselineFile, Check, Entry, content_id, decode_baseline, encode_baseline
from pytest_attnperf.cli.commands.baselines.merge import ATTRIBUTES
from pytest_attnperf.cli.program import main
from pytest_attnperf.records import Fingerprint, ProcessSummary

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
ROOT = Path(__file__).parents[4]
NAME = "baselines/sm_90/h200/prefill.json"
HERE = Fingerprint({"product": "h200"}, {})


def text_of(**times_us: float) -> bytes:
    """A baseline file of these cases, each recorded on the day that its time's last digit says."""
    entries = {
        key: Entry(
            workload={},
            environment=content_id(HERE),
            policy=content_id({}),
            processes=(ProcessSummary(us, us, us, (us,), 1, "graph"),) * 7,
            check=Check(0.1, 0.1),
            recorded=f"2026-01-0{us % 10:g}",
            harness_version="0.1.0",
        )
        for key, us in ((key, float(us)) for key, us in times_us.items())
    }
    return encode_baseline(
        BaselineFile(1, "prefill", "sm_90", "h200", {content_id(HERE): HERE}, {content_id({}): {}}, entries)
        if entries
        else BaselineFile(1, "prefill", "sm_90", "h200")
    )


def times(data: bytes) -> dict[str, float]:
    """The time of each case in a file."""
    return {key: entry.processes[0].median_us for key, entry in decode_baseline(data, "x").entries.items()}


def merge(folder: Path, base: bytes, ours: bytes, theirs: bytes, *more: str, name: str = NAME) -> tuple[int, bytes]:
    """Type the driver's command, with the path that git gives or without; its exit status and what it left."""
    paths = [folder / name for name in ("base", "ours", "theirs")]
    for path, data in zip(paths, (base, ours, theirs), strict=True):
        path.write_bytes(data)
    return main(["baselines", "merge", *map(str, paths), *([name] if name else []), *more]), paths[1].read_bytes()


def test_entries_of_both_sides_come_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each side changed, added and took away other cases: all of it is in the file, which is as if written at once."""
    base, ours = text_of(a=101, b=101, c=101, d=101), text_of(a=112, b=101, c=101, e=101)
    status, data = merge(tmp_path, base, ours, text_of(a=101, b=123, c=101, d=101, f=134))
    assert (status, capsys.readouterr().out) == (0, "")
    assert data == text_of(a=112, b=123, c=101, e=101, f=134)


def test_a_conflict_is_marked_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both sides recorded a case again: status 1, markers, both summary lines, and the command that settles it."""
    files = (text_of(a=101, b=101), text_of(a=112, b=101), text_of(a=123, b=101))
    status, data = merge(tmp_path, *files)
    said = capsys.readouterr().out.splitlines()
    assert (status, data.count(b"<<<<<<< ours\n"), data.count(b'"b": {')) == (1, 1, 1)
    assert said[0] == f"{NAME}: a was changed on both sides"
    assert said[1].startswith("  ours: 112.0 us, 7 processes within 0 %, error 0.10 of budget, recorded 2026-01-02")
    assert said[2].startswith("  theirs: 123.0 us")
    assert f"attnperf baselines merge --resolve {NAME} --prefer newer" in said[3]
    assert times(merge(tmp_path, *files, "--prefer", "newer")[1]) == {"a": 123, "b": 101}
    assert merge(tmp_path, b"", text_of(), text_of(a=123))[0] == 0
    assert merge(tmp_path, b"<<<<<<< not JSON", files[1], files[1]) == (0, files[1])


def test_what_is_unsound_is_not_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged side, one that lies and one of another suite are named with status 2; our file is left as it was."""
    good = text_of(a=101)
    lying, other = good.replace(b"101.0 us", b"99.00 us"), good.replace(b'"suite": "prefill"', b'"suite": "decode"')
    refused = {
        b"{": "is not readable as JSON",
        lying: "it was edited by hand",
        other: "these are not two versions of one file",
    }
    for theirs, text in refused.items():
        assert merge(tmp_path, good, good, theirs, name="") == (2, good)
        assert text in capsys.readouterr().err


@needs_git
def test_git_gets_the_lines_of_a_side_that_is_unsound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Called as by git, the status is that of a conflict and their lines are in our file: nobody adds it without."""
    good = text_of(a=101, b=101)
    lying = good.replace(b"101.0 us", b"99.00 us", 1)
    assert merge(tmp_path, good, good, lying) == (2, lying)
    assert f"their {NAME}: entry 'a': field `summary` is '99.00 us" in capsys.readouterr().err
    status, data = merge(tmp_path, good, text_of(a=112, b=101), lying)
    assert (status, data.count(b"<<<<<<< ")) == (2, 1)
    assert merge(tmp_path, good, good, b"\x00") == (2, good)
    assert "is not readable as JSON" in capsys.readouterr().err


@needs_git
def test_other_files_are_merged_by_lines(tmp_path: Path) -> None:
    """Ceilings have no entries: what git would do is done, with its markers where both changed a line."""
    lines = ["{", '"a": 1,', '"x": 0,', '"y": 0,', '"z": 0,', '"b": 1', "}", ""]
    base, ours, theirs = ("\n".join(lines).replace(*change).encode() for change in (("", ""), ("a", "A"), ("b", "B")))
    status, data = merge(tmp_path, base, ours, theirs)
    assert (status, list(json.loads(data))) == (0, ["A", "x", "y", "z", "B"])
    status, data = merge(tmp_path, base, ours, base.replace(b"a", b"C"))
    assert (status, b"<<<<<<<" in data) == (1, True)


def test_compiled_kernels_are_merged_too(tmp_path: Path) -> None:
    """A file of code objects, of which each side recorded another kernel, holds both."""
    base = (ROOT / "examples/own-kernel/baselines/gfx942/code_objects.json").read_bytes()
    file = json.loads(base)
    old = file["entries"]
    sides = [
        json.dumps({**file, "entries": {**old, name: next(iter(old.values()))}}).encode() for name in ("x/one", "x/two")
    ]
    status, data = merge(tmp_path, base, *sides)
    assert (status, sorted(decode_code(data, "x").entries)) == (0, sorted([*old, "x/one", "x/two"]))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["a", "b"], "2 files were given; as a merge driver it takes BASE OURS THEIRS"),
        (["--resolve"], "--resolve needs the files that are in conflict"),
        (["--rewrite"], "--rewrite needs a baseline file or a folder"),
        (["--install", "a"], "--install sets up this clone and takes no file"),
    ],
)
def test_what_is_typed_wrong_is_said(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each way to call it names what is missing, with status 2."""
    assert main(["baselines", "merge", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_rewriting_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder's files without summary lines are rewritten and named, and then none is left."""
    bare = json.loads(text_of(a=101))
    del bare["entries"]["a"]["summary"]
    (tmp_path / "prefill.json").write_text(json.dumps(bare))
    for count in (1, 0):
        assert main(["baselines", "merge", "--rewrite", str(tmp_path)]) == 0
        assert capsys.readouterr().out.endswith(f"{count} of 1 files were not in this version's form\n")
    assert (tmp_path / "prefill.json").read_bytes() == text_of(a=101)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose branches `main` and `other` both changed a baseline file."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet", "--initial-branch=main", ".")
    git("config", "user.name", "Ada")
    git("config", "user.email", "ada@example.org")
    Path(".gitattributes").write_text(f"{ATTRIBUTES}\n")
    Path(NAME).parent.mkdir(parents=True)
    for branch, data in (
        ("main", text_of(a=101, b=101)),
        ("other", text_of(a=101, b=112)),
        ("main", text_of(a=123, b=101)),
    ):
        git("checkout", "--quiet", *(["-b"] if branch == "other" else []), branch, check=branch == "other")
        Path(NAME).write_bytes(data)
        git("add", ".")
        git("commit", "--quiet", "-m", "recorded")
    return tmp_path


def git(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Type a git command."""
    return subprocess.run(["git", *arguments], check=check, capture_output=True, text=True)


@needs_git
def test_git_merges_by_entry_once_the_driver_is_installed(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """git merge asks the driver: changes of both branches come together, and a conflict is settled by --resolve."""
    assert main(["baselines", "merge", "--install"]) == 0
    said = capsys.readouterr().out
    assert f"{sys.executable} -m pytest_attnperf.cli baselines merge %O %A %B %P" in said
    assert ".gitattributes names it for baselines/**/*.json" in said
    git("merge", "--quiet", "-m", "both", "other")
    path = clone / NAME
    assert times(path.read_bytes()) == {"a": 123, "b": 112}

    git("checkout", "--quiet", "other")
    path.write_bytes(text_of(a=145, b=112))
    git("commit", "--quiet", "-am", "recorded again")
    merged = git("merge", "main", check=False)
    assert merged.returncode == 1
    assert f"{NAME}: a was changed on both sides" in merged.stdout
    assert b"<<<<<<< ours" in path.read_bytes()
    assert main(["baselines", "merge", "--resolve", NAME, "--prefer", "newer"]) == 0
    assert times(path.read_bytes()) == {"a": 145, "b": 112}
    git("add", NAME)
    assert main(["baselines", "merge", "--resolve", NAME]) == 2
    assert "has no conflict between two sides" in capsys.readouterr().err


def test_this_repository_names_the_driver() -> None:
    """Its own .gitattributes holds the line that the help and the docs name."""
    assert ATTRIBUTES in (ROOT / ".gitattributes").read_text().splitlines()
