"""`benchmarks/fuzz_files.py`: damaged files of every kind, and that what must not happen would be found."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "fuzz_files.py"
FILES, MOST = 300, 100_000

PLANTED = """
import json, os, sys, tempfile
from pathlib import Path
sys.path[:0] = {paths!r}
from benchmarks.fuzz.guard import Guard, console
guard = Guard(Path(sys.argv[1]))
guard.install()
def loop():
    while True: pass
def elsewhere(): open(sys.argv[2], "w").write("x")
def evaluated(): eval("1 + 1")
def inside(): open(os.path.join(sys.argv[1], "fine"), "w").write("x")
def printed(): console(lambda: print("\\x1b[2J") or 0)
def refused(): open("/does/not/exist")
def moved(): os.rename(sys.argv[1] + "/fine", sys.argv[2])
def deep(): json.loads("[" * 100000)
def started(): os.system("true")
reads = [inside, refused, elsewhere, evaluated, printed, moved, deep, started, loop]
print(json.dumps({{read.__name__: guard.watch(read).kind for read in reads}}))
"""


def _fuzzed(folder: Path, files: int, limit_s: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), "--files", str(files), "--findings", str(folder), "--seed", "make-test"]
    command += ["--processes", "2" if files == MOST else "1"]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)


def test_no_damaged_file_does_more_than_be_refused(tmp_path: Path) -> None:
    """A few hundred of them, of every kind: clean errors, nothing slow, nothing written or run elsewhere."""
    done = _fuzzed(tmp_path, FILES, 120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no finding" in done.stdout
    assert re.search(rf"^all +{FILES} ", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.soak
def test_no_damaged_file_of_a_hundred_thousand_does(tmp_path: Path) -> None:
    """The same of 100,000 files."""
    done = _fuzzed(tmp_path, MOST, 3_600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_must_not_happen_is_found(tmp_path: Path) -> None:
    """Writing, renaming and running elsewhere, evaluating, printing escapes, recursion and a loop: each by its kind."""
    (tmp_path / "own").mkdir()
    text = PLANTED.format(paths=[str(PROGRAM.parents[1]), str(PROGRAM.parent)])
    command = [sys.executable, "-c", text, str(tmp_path / "own"), str(tmp_path / "elsewhere")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == {
        "inside": "accepted",
        "refused": "refused",
        "elsewhere": "forbidden",
        "evaluated": "forbidden",
        "printed": "AssertionError",
        "moved": "forbidden",
        "deep": "RecursionError",
        "started": "forbidden",
        "loop": "hang",
    }


def test_damage_is_the_same_for_the_same_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a finding can be had again; and most of what is damaged is no longer what it was."""
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    from benchmarks.fuzz import mutations

    sound = b'{"a": [1, 2.5, "text"], "b": {"c": null, "d": true}}\n'
    kinds = (mutations.damaged_json, mutations.damaged_lines, mutations.damaged_table, mutations.damaged_bytes)
    for damage in kinds:
        once = [damage(random.Random(seed), sound, sound) for seed in range(40)]
        assert once == [damage(random.Random(seed), sound, sound) for seed in range(40)]
        assert sum(one != sound for one in once) > 30
