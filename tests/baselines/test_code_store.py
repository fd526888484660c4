from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import filelock
import pytest

from pytest_attnperf.baselines import code_store, writing
from pytest_attnperf.baselines.code_schema import decode_code_file
from pytest_attnperf.baselines.code_store import CodeStore, NewKernel, code_path
from pytest_attnperf.baselines.schema import content_id
from pytest_attnperf.baselines.store import read_content
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records.code import KernelCode, SourceLine

POLICY: dict[str, Any] = {"fail_on": ["occupancy"], "growth_percent": 1.0}


def new_kernel(vgprs: int = 96, arch: str = "gfx942", **changes: Any) -> NewKernel:
    """A compiled kernel with so many VGPRs, ready to be stored."""
    code = KernelCode(
        "k", arch, vgprs, 0, vgprs, 40, 0, 0, 0, 0, 8192, 56, 256, 256, 64, None, False, 9000, "a1b2",
        {"matrix": 64}, {"matrix": 64}, lines=(SourceLine("a.py", 87, "x = f()", {"matrix": 64}),),
    )  # fmt: skip
    plain = NewKernel(code, {"BLOCK_M": "64"}, "triton 3.9.0", True, POLICY, "2026-01-02", "0.1.0", "c1")
    return dataclasses.replace(plain, **changes)


def test_what_was_merged_is_found(tmp_path: Path) -> None:
    """A merged kernel comes back with everything but its line numbers, under `<arch>/code_objects.json`."""
    store = CodeStore(tmp_path)
    path = store.merge(tmp_path, "gfx942", {"k/a": new_kernel(accepted="tuned for speed")})
    found = store.find("gfx942", "k/a")
    assert path == tmp_path / "gfx942" / "code_objects.json"
    assert found is not None
    assert (found.policy, found.path) == (POLICY, path)
    kernel = found.kernel
    assert kernel.code == dataclasses.replace(
        new_kernel().code, lines=(SourceLine("a.py", 0, "x = f()", {"matrix": 64}),)
    )
    assert (kernel.config, kernel.compiler, kernel.matrix) == ({"BLOCK_M": "64"}, "triton 3.9.0", True)
    assert (kernel.recorded, kernel.commit, kernel.harness_version) == ("2026-01-02", "c1", "0.1.0")
    assert kernel.accepted == "tuned for speed"


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    """No file and no entry are both None: the gate's NO_BASELINE, not an error."""
    store = CodeStore(tmp_path)
    assert store.find("gfx942", "k/a") is None
    store.merge(tmp_path, "gfx942", {"k/a": new_kernel()})
    assert store.find("gfx942", "k/b") is None
    assert store.find("gfx950", "k/a") is None
    assert store.load("gfx950") == {}


def test_a_merge_never_drops_others(tmp_path: Path) -> None:
    """A partial run replaces its own entries; the others keep their code and policy, and unused policies go."""
    store = CodeStore(tmp_path)
    looser = {**POLICY, "growth_percent": 5.0}
    store.merge(tmp_path, "gfx942", {"k/a": new_kernel(80), "k/b": new_kernel(88)})
    path = store.merge(tmp_path, "gfx942", {"k/b": new_kernel(104, policy=looser)})
    found = store.load("gfx942")
    assert {key: one.kernel.code.vgprs for key, one in found.items()} == {"k/a": 80, "k/b": 104}
    assert (found["k/a"].policy, found["k/b"].policy) == (POLICY, looser)
    store.merge(tmp_path, "gfx942", {"k/a": new_kernel(80, policy=looser)})
    assert list(decode_code_file(path.read_bytes(), "x").policies) == [content_id(looser)]


def test_an_edit_above_a_line_changes_no_byte(tmp_path: Path) -> None:
    """The same code from lines that moved is the same text, with nothing left beside it but the lock."""
    store = CodeStore(tmp_path)
    path = store.merge(tmp_path, "gfx942", {"k/a": new_kernel(), "k/b": new_kernel(88)})
    before = path.read_bytes()
    again = new_kernel(88)
    moved = tuple(dataclasses.replace(line, line=line.line + 5) for line in again.code.lines)
    store.merge(
        tmp_path, "gfx942", {"k/b": dataclasses.replace(again, code=dataclasses.replace(again.code, lines=moved))}
    )
    assert path.read_bytes() == before
    assert sorted(p.name for p in path.parent.iterdir() if p.suffix != ".lock") == ["code_objects.json"]


def test_recording_the_same_again_changes_no_byte(tmp_path: Path) -> None:
    """Another day and commit alone are no change; a register more, or another reason, is, with its own date."""
    store = CodeStore(tmp_path)
    path = store.merge(tmp_path, "gfx942", {"k/a": new_kernel(), "k/b": new_kernel()})
    before = path.read_bytes()
    later: dict[str, Any] = {"recorded": "2026-02-03", "commit": "c2", "harness_version": "0.2.0"}
    store.merge(tmp_path, "gfx942", {"k/a": new_kernel(**later), "k/b": new_kernel(**later)})
    assert path.read_bytes() == before
    store.merge(tmp_path, "gfx942", {"k/a": new_kernel(97, **later), "k/b": new_kernel(accepted="wanted", **later)})
    assert {one.kernel.commit for one in store.load("gfx942").values()} == {"c2"}


def test_earlier_roots_come_first(tmp_path: Path) -> None:
    """An entry of the first root hides that of the second; what only the second has is still found."""
    first, second = tmp_path / "first", tmp_path / "second"
    store = CodeStore(first, second)
    store.merge(second, "gfx942", {"k/a": new_kernel(80), "k/b": new_kernel(88)})
    store.merge(first, "gfx942", {"k/a": new_kernel(96)})
    found = store.find("gfx942", "k/a")
    assert found is not None
    assert found.kernel.code.vgprs == 96
    assert {key: one.path.parents[1] for key, one in store.load("gfx942").items()} == {"k/a": first, "k/b": second}


def test_a_file_is_read_again_only_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding reads the file once; a new version on disk is seen."""
    path = CodeStore(tmp_path).merge(tmp_path, "gfx942", {"k/a": new_kernel()})
    reader, reads = CodeStore(tmp_path), list[str]()

    def counted(path: Path) -> bytes:
        reads.append(path.name)
        return read_content(path)

    monkeypatch.setattr(code_store, "read_content", counted)
    for _ in range(3):
        assert reader.find("gfx942", "k/a") is not None
    assert reads == ["code_objects.json"]
    path.write_bytes(path.read_bytes().replace(b'"code_bytes": 9000', b'"code_bytes": 10000'))
    found = reader.find("gfx942", "k/a")
    assert found is not None
    assert found.kernel.code.code_bytes == 10000


@pytest.mark.parametrize("damage", ["truncated", "newer", "other arch", "unknown field", "directory"])
def test_nothing_is_written_over_a_file_that_is_not_understood(tmp_path: Path, damage: str) -> None:
    """A merge refuses an unsound, newer, copied or richer file, names it, and leaves every byte."""
    store = CodeStore(tmp_path)
    path = store.merge(tmp_path, "gfx942", {"k/a": new_kernel()})
    text = path.read_text()
    damaged, expected = {
        "truncated": (text[:-40], "is not readable as JSON"),
        "newer": (text.replace('"schema": 1', '"schema": 2'), "field `schema` is 2; this version reads 1"),
        "other arch": (text.replace("gfx942", "gfx950"), "field `arch` is 'gfx950', but its path says 'gfx942'"),
        "unknown field": (text.replace('"accepted"', '"agreed"'), r"does not know \$\.entries\.k/a\.agreed"),
        "directory": ("", "is a folder; give a regular file"),
    }[damage]
    path.write_text(damaged)
    if damage == "directory":
        path.unlink()
        path.mkdir()
    with pytest.raises(BaselineError, match=expected) as caught:
        store.merge(tmp_path, "gfx942", {"k/b": new_kernel()})
    assert str(path) in str(caught.value)
    assert path.is_dir() or path.read_text() == damaged


@pytest.mark.parametrize("arch", ["..", ".", "", "a/b", "a\\b", "/etc", "a\0", ".hidden", "a b", "-x"])
def test_data_never_chooses_a_path(tmp_path: Path, arch: str) -> None:
    """An architecture that is no plain name is refused before any path is made of it."""
    store = CodeStore(tmp_path / "root")
    for act in (lambda: store.find(arch, "k/a"), lambda: store.merge(tmp_path / "root", arch, {"k/a": new_kernel()})):
        with pytest.raises(BaselineError, match="cannot be part of a baseline's path: use letters, digits"):
            act()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "kernel", "expected"),
    [
        ("k/a", new_kernel(arch="gfx950"), "entry 'k/a': field `code.arch` is 'gfx950', but the file's `arch` is"),
        ("k", new_kernel(), "entry 'k': the key is not '<kernel>/<config>'"),
        ("k/a", new_kernel(-1), "entry 'k/a': field `code.vgprs` is -1"),
    ],
)
def test_what_cannot_be_read_back_is_not_written(tmp_path: Path, key: str, kernel: NewKernel, expected: str) -> None:
    """The new text is read before it replaces the old one, so an unsound entry never reaches the store."""
    with pytest.raises(BaselineError, match=f"the new text of .*code_objects.json: {expected}"):
        CodeStore(tmp_path).merge(tmp_path, "gfx942", {key: kernel})
    assert not code_path(tmp_path, "gfx942").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full the old file is whole and no temporary one is left."""
    store = CodeStore(tmp_path)
    path = store.merge(tmp_path, "gfx942", {"k/a": new_kernel()})
    before = path.read_bytes()

    def disk_full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="No space left"):
        store.merge(tmp_path, "gfx942", {"k/b": new_kernel()})
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.tmp"))


def test_a_lock_held_elsewhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that waits too long says which lock it waited for and that nothing was written."""
    monkeypatch.setattr(writing, "LOCK_TIMEOUT_S", 0.01)
    folder = tmp_path / "gfx942"
    folder.mkdir()
    expected = r"\.code_objects\.json\.lock for 0\.01 s; nothing was written"
    with filelock.FileLock(folder / ".code_objects.json.lock"), pytest.raises(BaselineError, match=expected):
        CodeStore(tmp_path).merge(tmp_path, "gfx942", {"k/a": new_kernel()})
    assert not (folder / "code_objects.json").exists()


WRITER = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_code_store import CodeStore, new_kernel
root, name = Path(sys.argv[1]), sys.argv[2]
for index in range(10):
    CodeStore(root).merge(root, "gfx942", {{f"{{name}}/{{index}}": new_kernel(index)}})
"""


def test_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    """Two processes that each merge ten entries into one file leave all twenty."""
    script = WRITER.format(tests=str(Path(__file__).parent))
    root = Path(__file__).parents[2]
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), name], cwd=root, stderr=subprocess.PIPE)
        for name in "ab"
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors.decode()
    assert sorted(CodeStore(tmp_path).load("gfx942")) == sorted(
        f"{name}/{index}" for name in "ab" for index in range(10)
    )


def test_a_store_needs_a_root() -> None:
    """A store without a folder is a mistake of the caller."""
    with pytest.raises(ValueError, match="at least one root"):
        CodeStore()
