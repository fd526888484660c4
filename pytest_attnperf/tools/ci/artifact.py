"""Takes one named file out of a zip archive that an untrusted job made. Nothing of the archive chooses a path."""

from __future__ import annotations

import io
import stat
import zipfile
import zlib

import msgspec

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.reports.text.figures import one_line

MEMBER = "results.json"
MEMBER_LIMIT = 200_000_000
ARCHIVE_LIMIT = 100_000_000
MOST_MEMBERS = 1_000
PACKED_BY = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What an upload is packed by. Other methods may ask for gigabytes to unpack a byte, and fail in ways of their own."""
_CHUNK = 1 << 20


class ArtifactError(AttnperfError):
    """An archive of results cannot be used; the message says what was found in it and what is expected."""


def member(archive: bytes, name: str = MEMBER, *, limit: int = MEMBER_LIMIT, where: str = "the artifact") -> bytes:
    """The bytes of the regular file `name`, which must be there exactly once, at the top.

    The size that the archive claims is not believed: unpacking stops at `limit`. Raises ArtifactError.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            entry = _entry(opened, name, where)
            return _unpacked(opened, entry, limit, where)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise ArtifactError(f"{where} is no readable zip archive: {one_line(str(error))}") from None


class _Commit(msgspec.Struct):
    commit: str = ""


def commit_in(results: bytes) -> str:
    """The commit that a results file says it is of; '' where it says none or is no results file."""
    try:
        return msgspec.json.decode(results, type=_Commit).commit
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""


def _entry(opened: zipfile.ZipFile, name: str, where: str) -> zipfile.ZipInfo:
    entries = opened.infolist()
    if len(entries) > MOST_MEMBERS:
        raise ArtifactError(f"{where} holds {len(entries):,} files; {name} alone is expected")
    named = [entry for entry in entries if entry.filename == name]
    if len(named) != 1:
        inside = ", ".join(one_line(entry.filename, 60) for entry in entries[:10]) or "nothing"
        raise ArtifactError(f"{where} must hold {name} once, at its top, and holds {len(named)} of it; in it: {inside}")
    (entry,) = named
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if entry.is_dir() or kind not in (0, stat.S_IFREG):
        raise ArtifactError(f"{name} in {where} is no regular file")
    if entry.compress_type not in PACKED_BY:
        raise ArtifactError(f"{name} in {where} is packed by method {entry.compress_type}; 0 and 8 (deflate) are known")
    return entry


def _unpacked(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, limit: int, where: str) -> bytes:
    parts, size = [], 0
    with opened.open(entry) as stream:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > limit:
                raise ArtifactError(f"{entry.filename} in {where} is longer than {limit:,} bytes")
            parts.append(chunk)
    return b"".join(parts)
