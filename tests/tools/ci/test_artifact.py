from __future__ import annotations

import io
import stat
import zipfile

import pytest

from pytest_attnperf.tools.ci.artifact import MOST_MEMBERS, ArtifactError, member


def archive(*files: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive of these files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as opened:
        for name, data in files:
            opened.writestr(name, data)
    return out.getvalue()


def test_named_file_is_given() -> None:
    """What else is in the archive is left there."""
    assert member(archive(("other", b"x"), ("results.json", b"{}"))) == b"{}"


@pytest.mark.parametrize(
    "name", ["../results.json", "/results.json", "a/results.json", "results.json/", "RESULTS.JSON", "results.json\x1b"]
)
def test_file_of_another_path_is_none(name: str) -> None:
    """Only that name, at the top; the error is safe to print."""
    with pytest.raises(ArtifactError, match=r"must hold results\.json once, at its top, and holds 0") as caught:
        member(archive((name, b"{}")))
    assert str(caught.value).isprintable()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_file_that_is_there_twice_is_refused() -> None:
    """One reader could take the first and another the last."""
    with pytest.raises(ArtifactError, match="holds 2 of it"):
        member(archive(("results.json", b"{}"), ("results.json", b"[]")))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO])
def test_what_is_no_regular_file_is_refused(kind: int) -> None:
    """A link would lead somewhere else on this machine if it were unpacked as one."""
    entry = zipfile.ZipInfo("results.json")
    entry.external_attr = (kind | 0o777) << 16
    with pytest.raises(ArtifactError, match="is no regular file"):
        member(archive((entry, b"/etc/passwd")))


def test_bomb_is_not_unpacked() -> None:
    """Ten megabytes of zeros take ten kilobytes; unpacking ends at the limit."""
    packed = archive(("results.json", bytes(10_000_000)))
    assert len(packed) < 20_000
    with pytest.raises(ArtifactError, match="longer than 1,000,000 bytes"):
        member(packed, limit=1_000_000)
    assert len(member(packed, limit=10_000_000)) == 10_000_000


def test_claimed_size_is_not_believed() -> None:
    """An archive that says that its file is small is caught by what comes out of it."""
    packed = bytearray(archive(("results.json", bytes(3_000_000))))
    for position in (packed.find(b"PK\x03\x04") + 22, packed.find(b"PK\x01\x02") + 24):
        packed[position : position + 4] = (100).to_bytes(4, "little")
    with pytest.raises(ArtifactError):
        member(bytes(packed), limit=1_000_000)


def test_archive_of_very_many_files_is_refused() -> None:
    """We upload one."""
    with pytest.raises(ArtifactError, match=r"holds 1,001 files; results\.json alone is expected"):
        member(archive(*((str(number), b"") for number in range(MOST_MEMBERS + 1))))


@pytest.mark.parametrize(
    "data",
    [b"", b"no zip", b"PK\x05\x06" + bytes(10), archive(("results.json", b"x" * 99))[:-30]],
    ids=["empty", "text", "end-only", "truncated"],
)
def test_what_is_no_archive_is_an_error(data: bytes) -> None:
    """Empty, foreign or cut off."""
    with pytest.raises(ArtifactError, match="artifact x is no readable zip archive"):
        member(data, where="artifact x")


def test_broken_content_is_an_error() -> None:
    """A checksum that does not fit."""
    packed = bytearray(archive(("results.json", b"x" * 1000)))
    position = packed.find(b"PK\x01\x02") + 16
    packed[position] ^= 0xFF
    with pytest.raises(ArtifactError, match=r"no readable zip archive: .*CRC"):
        member(bytes(packed))


def test_encrypted_file_is_an_error() -> None:
    """There is no password."""
    packed = bytearray(archive(("results.json", b"x")))
    for position in (packed.find(b"PK\x03\x04") + 6, packed.find(b"PK\x01\x02") + 8):
        packed[position] |= 1
    with pytest.raises(ArtifactError, match="encrypted"):
        member(bytes(packed))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_of_packing_are_refused(method: int) -> None:
    """Damaged ones fail by errors of their own, and a whole one may ask for gigabytes of memory."""
    packed = bytearray(archive(("results.json", b"x" * 1000), method=method))
    with pytest.raises(ArtifactError, match=rf"packed by method {method}; 0 and 8"):
        member(bytes(packed))
    packed[60:70] = bytes(10)
    with pytest.raises(ArtifactError):
        member(bytes(packed))
