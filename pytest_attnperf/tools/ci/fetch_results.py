"""`python -m pytest_attnperf.tools.ci.fetch_results`: fetches the results of a finished, untrusted workflow run as
data.

For the judging workflow. It finds the pull request of the measured commit and the newest commit of its base branch. It
takes one named file, results.json, out of each zip archive that the run uploaded. Nothing that the run wrote chooses a
pull request, a base or a path.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import stat
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_attnperf.errors import AttnperfError, UsageError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.ci import pulls
from pytest_attnperf.tools.ci.github import (
    GitHub,
    expect_documented_form,
    make_client,
    parse_full_sha,
    parse_repository,
)

EPILOG = """Every --artifact must be there for the run to count as measured. Each is written to INTO/NAME/results.json.
In the file of $GITHUB_OUTPUT:
  skip      true if there is nothing to judge: no open pull request has this commit as its head any more
  pull      its number; empty for a push
  base-ref  its base branch; empty for a push
  base-sha  the newest commit of that branch; empty for a push
  state     measured, unmeasured (an artifact is missing) or broken (an artifact cannot be used)
  commits   the commits that results may belong to: HEAD_SHA, and its merge if a file names one and GitHub confirms it

exit status: 0 done, whatever was found; 1 GitHub refused or did not answer; 2 the command line is invalid
"""
MOST_SHOWN = 300
PULL_EVENTS = ("pull_request", "push", "workflow_dispatch")

MEMBER = "results.json"
MEMBER_LIMIT = 200_000_000
ARCHIVE_LIMIT = 100_000_000
MOST_MEMBERS = 1_000
PACKED_BY = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Accepted compression methods. Others may need gigabytes to unpack a byte, and raise other errors."""
_CHUNK = 1 << 20


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Fetches the results, prints name=value lines and appends them to the file --output. Returns the exit status: 0
    done, 1 GitHub refused or did not answer, 2 an invalid option."""
    options = _build_parser().parse_args(arguments)
    try:
        _check_artifact_names(options.artifact)
        repo, sha = parse_repository(options.repo), parse_full_sha(options.head_sha, "--head-sha")
        github = make_client(environ)
    except UsageError as error:
        return _print_error(error, 2)
    try:
        outputs = _find_pull(github, repo, sha, options)
        if outputs["skip"] == "false":
            outputs["state"], commits = _fetch_artifacts(github, repo, sha, options)
            outputs["commits"] = " ".join(commits)
    except AttnperfError as error:
        return _print_error(error, 1)
    lines = "".join(f"{name}={value}\n" for name, value in outputs.items())
    if options.output:
        with Path(options.output).open("a") as stream:
            stream.write(lines)
    sys.stdout.write(lines)
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_attnperf.tools.ci.fetch_results",
        description="Fetches the results of a finished workflow run, as data.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repo", required=True, metavar="OWNER/NAME", help="repository of the workflow run")
    parser.add_argument("--run-id", required=True, type=int, metavar="N", help="the finished run")
    parser.add_argument("--event", required=True, choices=PULL_EVENTS, help="event that started the run")
    parser.add_argument("--head-sha", required=True, metavar="SHA", help="commit that was measured")
    parser.add_argument("--head-repo", default="", metavar="OWNER/NAME", help="repository of that commit; default: any")
    parser.add_argument("--artifact", required=True, action="append", metavar="NAME", help="artifact; repeatable")
    parser.add_argument("--into", required=True, type=Path, metavar="DIR", help="folder that files are written to")
    parser.add_argument(
        "--max-bytes",
        type=int,
        default=MEMBER_LIMIT,
        metavar="N",
        help="most bytes of a file; default: %(default)s",
    )
    parser.add_argument(
        "--output", default=os.environ.get("GITHUB_OUTPUT", ""), metavar="FILE", help="file; default: $GITHUB_OUTPUT"
    )
    return parser


def _find_pull(github: GitHub, repo: str, sha: str, options: argparse.Namespace) -> dict[str, str]:
    """Returns name -> text of the outputs skip, pull (number), base-ref and base-sha (the base branch's newest commit).

    Of the open pull request with head `sha`; without one, skip is 'true' and the others are ''. For a run that no pull
    request started, skip is 'false' and the others are ''."""
    if options.event != "pull_request":
        return {"skip": "false", "pull": "", "base-ref": "", "base-sha": ""}
    pull = pulls.find_open_pull(github, repo, sha, options.head_repo)
    if pull is None:
        sys.stderr.write(f"no open pull request has {sha[:12]} as its newest commit: closed, or a newer one came\n")
        return {"skip": "true", "pull": "", "base-ref": "", "base-sha": ""}
    tip = pulls.fetch_branch_tip(github, repo, pull.base_ref)
    return {"skip": "false", "pull": str(pull.number), "base-ref": pull.base_ref, "base-sha": tip}


def _fetch_artifacts(github: GitHub, repo: str, sha: str, options: argparse.Namespace) -> tuple[str, list[str]]:
    """Downloads each --artifact's results to INTO/NAME/results.json. Returns a state ('measured'; 'unmeasured' if the
    run lacks an artifact; 'broken' if one cannot be used) and the commits that results may name: `sha`, and a merge of
    `sha` that results name and GitHub confirms. Raises GitHubError if GitHub refuses or does not answer."""
    there = _list_newest_artifacts(github, repo, options.run_id)
    state, commits = "measured", [sha]
    for name in options.artifact:
        found = there.get(name)
        if found is None:
            has = one_line(", ".join(there), MOST_SHOWN) or "none"
            sys.stderr.write(f"run {options.run_id} has no artifact {name!r}; it has: {has}\n")
            state = "unmeasured" if state == "measured" else state
            continue
        try:
            data = _download_results(github, repo, found, name, options.max_bytes)
        except ArtifactError as error:
            sys.stderr.write(f"{error}\n")
            state = "broken"
            continue
        write_atomically(options.into / name / MEMBER, data)
        claimed = read_commit(data)
        if not any(known.startswith(claimed) for known in commits):
            merge = pulls.find_merge(github, repo, claimed, sha)
            commits += [merge] if merge else []
    return state, commits


@expect_documented_form()
def _list_newest_artifacts(github: GitHub, repo: str, run_id: int) -> dict[str, dict[str, Any]]:
    """Returns name -> GitHub's JSON of the newest artifact of a run with that name that has not expired;
    every attempt of a run adds artifacts of its own."""
    listed = github.list_items(f"repos/{repo}/actions/runs/{run_id}/artifacts")
    kept = sorted((each for each in listed if not each.get("expired")), key=lambda each: int(each["id"]))
    return {str(each.get("name", "")): each for each in kept}


@expect_documented_form()
def _download_results(github: GitHub, repo: str, found: dict[str, Any], name: str, limit: int) -> bytes:
    """Returns the bytes of results.json in the artifact `found` (GitHub's JSON). Raises GitHubError, and ArtifactError
    if the archive cannot be used or the file is longer than `limit` bytes."""
    size = int(found.get("size_in_bytes") or 0)
    if size > ARCHIVE_LIMIT:
        most = f"{ARCHIVE_LIMIT:,}"
        raise ArtifactError(f"artifact {name} has {size:,} bytes, more than {most}; upload results.json alone")
    archive = github.download(f"repos/{repo}/actions/artifacts/{int(found['id'])}/zip", ARCHIVE_LIMIT)
    return extract_member(archive, limit=limit, where=f"artifact {name}")


def _check_artifact_names(names: Sequence[str]) -> None:
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
            raise UsageError(
                f"--artifact {one_line(name)!r} must be at most 100 characters of A-Z, a-z, 0-9 and . _ -, the first "
                "a letter or digit: it becomes a folder's name"
            )


def _print_error(error: AttnperfError, status: int) -> int:
    sys.stderr.write(f"attnperf: {error}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())


class ArtifactError(AttnperfError):
    """An archive of results cannot be used. The message says what it holds and what is expected."""


def extract_member(archive: bytes, *, limit: int = MEMBER_LIMIT, where: str = "the artifact") -> bytes:
    """Returns the bytes of the regular file MEMBER, which must be in the archive exactly once, at the top.

    Unpacking stops at `limit` bytes, because the size that the archive claims may be wrong. Raises ArtifactError if the
    archive or the file cannot be used, or the file is longer."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            entry = _find_entry(opened, MEMBER, where)
            return _unpack_entry(opened, entry, limit, where)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise ArtifactError(f"{where} is no readable zip archive: {one_line(str(error))}") from None


class _Commit(msgspec.Struct):
    commit: str = ""


def read_commit(results: bytes) -> str:
    """Returns the commit that a results file names; '' if it names none or is no results file."""
    try:
        return msgspec.json.decode(results, type=_Commit).commit
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""


def _find_entry(opened: zipfile.ZipFile, name: str, where: str) -> zipfile.ZipInfo:
    entries = opened.infolist()
    if len(entries) > MOST_MEMBERS:
        raise ArtifactError(f"{where} holds {len(entries):,} files; upload {name} alone")
    named = [entry for entry in entries if entry.filename == name]
    if len(named) != 1:
        inside = ", ".join(one_line(entry.filename, 60) for entry in entries[:10]) or "nothing"
        raise ArtifactError(f"{where} must hold {name} once, at its top, and holds {len(named)} of it; in it: {inside}")
    (entry,) = named
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if entry.is_dir() or kind not in (0, stat.S_IFREG):
        raise ArtifactError(f"{name} in {where} is no regular file; upload the file itself, not a link or folder")
    if entry.compress_type not in PACKED_BY:
        raise ArtifactError(f"{name} in {where} is packed by method {entry.compress_type}; 0 and 8 (deflate) are known")
    return entry


def _unpack_entry(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, limit: int, where: str) -> bytes:
    parts, size = [], 0
    with opened.open(entry) as stream:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > limit:
                raise ArtifactError(f"{entry.filename} in {where} is longer than {limit:,} bytes; raise --max-bytes")
            parts.append(chunk)
    return b"".join(parts)
