from __future__ import annotations

import io
import json
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.tools.ci import fetch_results
from pytest_attnperf.tools.ci.fetch_results import MOST_MEMBERS, ArtifactError, extract_member
from tests.tools.ci.fake_github import BASE, HEAD, NEWER, REPO, TOKEN, FakeGitHub, Scripted

RUN = 77


def upload(github: FakeGitHub, number: int, name: str, data: bytes = b"{}", **changes: Any) -> None:
    """An artifact of the run, holding results.json."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as opened:
        opened.writestr("results.json", data)
    listed = {"id": number, "name": name, "expired": False, "size_in_bytes": len(out.getvalue()), **changes}
    github.artifacts.setdefault(RUN, []).append(listed)
    github.archives[number] = out.getvalue()


def fetch(github: FakeGitHub, folder: Path, event: str = "pull_request") -> tuple[int, dict[str, str]]:
    """As the judging workflow calls it; the exit status and what later steps see."""
    output = folder / "output"
    arguments = ["--repo", REPO, "--run-id", str(RUN), "--event", event, "--head-sha", HEAD, "--head-repo", REPO]
    arguments += ["--artifact", "measured", "--artifact", "code", "--into", str(folder / "fetched")]
    environ = {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": github.url}
    status = fetch_results.main([*arguments, "--output", str(output)], environ)
    lines = output.read_text().splitlines() if output.exists() else []
    return status, dict(line.split("=", 1) for line in lines)


@pytest.fixture(autouse=True)
def _base(github: FakeGitHub) -> None:
    github.tips["main"] = BASE


def test_results_and_whose_they_are(github: FakeGitHub, tmp_path: Path) -> None:
    """Both files, the pull request's number, and the newest commit of its base branch."""
    github.pull(7)
    upload(github, 1, "measured", b'{"a": 1}')
    upload(github, 2, "code", b'{"b": 2}')
    status, outputs = fetch(github, tmp_path)
    expected = {"skip": "false", "pull": "7", "base-ref": "main", "base-sha": BASE, "state": "measured"}
    assert (status, outputs) == (0, {**expected, "commits": HEAD})
    assert (tmp_path / "fetched/measured/results.json").read_bytes() == b'{"a": 1}'
    assert (tmp_path / "fetched/code/results.json").read_bytes() == b'{"b": 2}'


def test_number_in_the_results_is_not_looked_at(github: FakeGitHub, tmp_path: Path) -> None:
    """Results that name another pull request and another commit change nothing."""
    github.pull(7)
    github.pull(8, sha=NEWER)
    forged = {"pull_request": "8", "commit": NEWER, "provenance": {"pull_request": "8"}}
    upload(github, 1, "measured", json.dumps(forged).encode())
    assert fetch(github, tmp_path)[1]["pull"] == "7"


def test_newest_attempt_counts(github: FakeGitHub, tmp_path: Path) -> None:
    """A repeated run adds artifacts of the same names; expired ones are none."""
    github.pull(7)
    upload(github, 3, "measured", b"newer")
    upload(github, 1, "measured", b"older")
    upload(github, 9, "measured", b"gone", expired=True)
    fetch(github, tmp_path)
    assert (tmp_path / "fetched/measured/results.json").read_bytes() == b"newer"


@pytest.mark.parametrize(("there", "gone"), [("code", "measured"), ("measured", "code")])
def test_run_without_one_of_its_artifacts_is_unmeasured(
    github: FakeGitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str], there: str, gone: str
) -> None:
    """Either: what is there is fetched, and what is missing is said; never taken for a pass."""
    github.pull(7)
    upload(github, 2, there)
    assert fetch(github, tmp_path)[1]["state"] == "unmeasured"
    assert (tmp_path / "fetched" / there / "results.json").exists()
    assert f"run 77 has no artifact {gone!r}; it has: {there}" in capsys.readouterr().err


def test_names_of_many_artifacts_are_one_safe_line(
    github: FakeGitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are the untrusted run's."""
    github.pull(7)
    for number in range(10):
        upload(github, number, f"\n::set-output name=state::measured {number}\x1b[31m" * 20)
    assert fetch(github, tmp_path)[1]["state"] == "unmeasured"
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() and len(line) < 500 for line in lines)


@pytest.mark.parametrize(
    ("parents", "accepted"), [([BASE, HEAD], True), ([HEAD, BASE], False), ([BASE, NEWER], False), ([HEAD], False)]
)
def test_merge_of_the_head_may_have_been_measured(
    github: FakeGitHub, tmp_path: Path, parents: list[str], accepted: bool
) -> None:
    """Only a commit that GitHub says is one; of what a file names beside that, nothing is believed."""
    github.pull(7)
    merge = "d" * 40
    github.commits[merge] = parents
    upload(github, 1, "measured", json.dumps({"commit": merge[:12], "cases": [{}]}).encode())
    upload(github, 2, "code", json.dumps({"commit": "e" * 12}).encode())
    assert fetch(github, tmp_path)[1]["commits"] == (f"{HEAD} {merge}" if accepted else HEAD)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"commit": 1}', b"[" * 100_000, b'{"commit": "../../user"}', b"\xff"])
def test_commit_that_is_none_is_not_asked_for(github: FakeGitHub, tmp_path: Path, data: bytes) -> None:
    """No text of a file becomes a part of an address; the gate will say what is wrong with the file."""
    github.pull(7)
    upload(github, 1, "measured", data)
    upload(github, 2, "code", data)
    status, outputs = fetch(github, tmp_path)
    assert (status, outputs["commits"]) == (0, HEAD)
    assert not [seen for seen in github.seen if "commits" in seen.path]


@pytest.mark.parametrize("changes", [{"size_in_bytes": fetch_results.ARCHIVE_LIMIT + 1}, {"broken": True}])
def test_unusable_archive_is_broken(github: FakeGitHub, tmp_path: Path, changes: dict[str, Any]) -> None:
    """Too large, or no archive at all; no file of it is written."""
    github.pull(7)
    upload(github, 1, "measured", **changes)
    if "broken" in changes:
        github.archives[1] = b"no archive"
    assert fetch(github, tmp_path)[1]["state"] == "broken"
    assert not (tmp_path / "fetched").exists()


def test_nothing_to_judge_where_the_commit_is_no_head_any_more(github: FakeGitHub, tmp_path: Path) -> None:
    """Closed, or a newer commit came: nothing is downloaded."""
    github.pull(7, sha=NEWER)
    upload(github, 1, "measured")
    assert fetch(github, tmp_path) == (0, {"skip": "true", "pull": "", "base-ref": "", "base-sha": ""})
    assert not [seen for seen in github.seen if "artifacts" in seen.path]


def test_push_has_no_pull_request(github: FakeGitHub, tmp_path: Path) -> None:
    """Nobody's comment is looked for."""
    github.pull(7)
    upload(github, 1, "measured")
    upload(github, 2, "code")
    outputs = fetch(github, tmp_path, "push")[1]
    assert outputs == {
        "skip": "false",
        "pull": "",
        "base-ref": "",
        "base-sha": "",
        "state": "measured",
        "commits": HEAD,
    }
    assert not [seen for seen in github.seen if "pulls" in seen.path]


def test_refusal_ends_with_1(github: FakeGitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With GitHub's words, without the token, and without outputs that a later step could take for an answer."""
    github.script.append(Scripted("GET", "pulls", 403, {"message": f"no {TOKEN}"}))
    assert fetch(github, tmp_path) == (1, {})
    said = capsys.readouterr().err
    assert "GitHub answered 403" in said
    assert TOKEN not in said


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--artifact", "../up", "--artifact '../up' must be at most 100 characters of"),
        ("--repo", "no", "'no' is no repository"),
        ("--head-sha", "main", "--head-sha 'main' is no full commit id"),
    ],
)
def test_bad_command_ends_with_2(capsys: pytest.CaptureFixture[str], option: str, value: str, expected: str) -> None:
    """Before anything is asked for."""
    given = {"--repo": REPO, "--run-id": "1", "--event": "push", "--head-sha": HEAD, "--artifact": "a", "--into": "x"}
    arguments = [part for pair in {**given, option: value}.items() for part in pair]
    assert fetch_results.main(arguments, {"GITHUB_TOKEN": TOKEN}) == 2
    assert expected in capsys.readouterr().err


def archive(*files: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive of these files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as opened:
        for name, data in files:
            opened.writestr(name, data)
    return out.getvalue()


def test_named_file_is_given() -> None:
    """What else is in the archive is left there."""
    assert extract_member(archive(("other", b"x"), ("results.json", b"{}"))) == b"{}"


@pytest.mark.parametrize(
    "name", ["../results.json", "/results.json", "a/results.json", "results.json/", "RESULTS.JSON", "results.json\x1b"]
)
def test_file_of_another_path_is_none(name: str) -> None:
    """Only that name, at the top; the error is safe to print."""
    with pytest.raises(ArtifactError, match=r"must hold results\.json once, at its top, and holds 0") as caught:
        extract_member(archive((name, b"{}")))
    assert str(caught.value).isprintable()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_file_that_is_there_twice_is_refused() -> None:
    """One reader could take the first and another the last."""
    with pytest.raises(ArtifactError, match="holds 2 of it"):
        extract_member(archive(("results.json", b"{}"), ("results.json", b"[]")))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO])
def test_what_is_no_regular_file_is_refused(kind: int) -> None:
    """A link would lead somewhere else on this machine if it were unpacked as one."""
    entry = zipfile.ZipInfo("results.json")
    entry.external_attr = (kind | 0o777) << 16
    with pytest.raises(ArtifactError, match="is no regular file"):
        extract_member(archive((entry, b"/etc/passwd")))


def test_bomb_is_not_unpacked() -> None:
    """Ten megabytes of zeros take ten kilobytes; unpacking ends at the limit."""
    packed = archive(("results.json", bytes(10_000_000)))
    assert len(packed) < 20_000
    with pytest.raises(ArtifactError, match="longer than 1,000,000 bytes"):
        extract_member(packed, limit=1_000_000)
    assert len(extract_member(packed, limit=10_000_000)) == 10_000_000


def test_claimed_size_is_not_believed() -> None:
    """An archive that says that its file is small is caught by what comes out of it."""
    packed = bytearray(archive(("results.json", bytes(3_000_000))))
    for position in (packed.find(b"PK\x03\x04") + 22, packed.find(b"PK\x01\x02") + 24):
        packed[position : position + 4] = (100).to_bytes(4, "little")
    with pytest.raises(ArtifactError):
        extract_member(bytes(packed), limit=1_000_000)


def test_archive_of_very_many_files_is_refused() -> None:
    """We upload one."""
    with pytest.raises(ArtifactError, match=r"holds 1,001 files; upload results\.json alone"):
        extract_member(archive(*((str(number), b"") for number in range(MOST_MEMBERS + 1))))


@pytest.mark.parametrize(
    "data",
    [b"", b"no zip", b"PK\x05\x06" + bytes(10), archive(("results.json", b"x" * 99))[:-30]],
    ids=["empty", "text", "end-only", "truncated"],
)
def test_what_is_no_archive_is_an_error(data: bytes) -> None:
    """Empty, foreign or cut off."""
    with pytest.raises(ArtifactError, match="artifact x is no readable zip archive"):
        extract_member(data, where="artifact x")


def test_broken_content_is_an_error() -> None:
    """A checksum that does not fit."""
    packed = bytearray(archive(("results.json", b"x" * 1000)))
    position = packed.find(b"PK\x01\x02") + 16
    packed[position] ^= 0xFF
    with pytest.raises(ArtifactError, match=r"no readable zip archive: .*CRC"):
        extract_member(bytes(packed))


def test_encrypted_file_is_an_error() -> None:
    """There is no password."""
    packed = bytearray(archive(("results.json", b"x")))
    for position in (packed.find(b"PK\x03\x04") + 6, packed.find(b"PK\x01\x02") + 8):
        packed[position] |= 1
    with pytest.raises(ArtifactError, match="encrypted"):
        extract_member(bytes(packed))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_of_packing_are_refused(method: int) -> None:
    """Damaged ones fail by errors of their own, and a whole one may ask for gigabytes of memory."""
    packed = bytearray(archive(("results.json", b"x" * 1000), method=method))
    with pytest.raises(ArtifactError, match=rf"packed by method {method}; 0 and 8"):
        extract_member(bytes(packed))
    packed[60:70] = bytes(10)
    with pytest.raises(ArtifactError):
        extract_member(bytes(packed))
