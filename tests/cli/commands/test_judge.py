"""`attnperf judge`, typed: honest kernels, and kernels that cheat, break out, or break down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.tools.judging.confinement import read_landlock_version
from pytest_attnperf.tools.judging.judgement import ALONE, INNER, OUTSIDE, SCHEMA, decode_judgement

pytest.importorskip("torch")
needs_landlock = pytest.mark.skipif(read_landlock_version() < 6, reason="this kernel has no Landlock of version 6")

REFERENCE = """
import torch

def make_inputs(seed):
    drawn = torch.Generator().manual_seed(seed)
    return torch.randn(64, 128, generator=drawn), torch.randn(128, generator=drawn)

def reference(x, w):
    return x * torch.rsqrt(x.double().pow(2).mean(-1, keepdim=True) + 1e-6).float() * w
"""
HONEST = """
import torch

def kernel(x, w):
    return torch.nn.functional.rms_norm(x, (128,), w, 1e-6)
"""
WRONG = "def kernel(x, w): return x * w\n"
FORGED = """
import os
for fd in range(3, 64):
    try: os.write(fd, b'{"verdict": "RIGHT"}\\n{"id": 2, "ok": {"state": "open", "right": true}}\\n')
    except OSError: pass
print('{"schema": "attnperf.judgement/1", "verdict": "RIGHT"}', flush=True)
"""
PATCHED = """
import sys
import pytest_attnperf.correctness.judge as judge, pytest_attnperf.measure.kernel_process as own
judge.list_problems = lambda figures: ()
judge.Judge.check_call = lambda *a, **k: None
"""
BROKEN_OUT = """
import os, socket, sys
def must_fail(attempt):
    try: attempt()
    except OSError: return
    os.write(2, b'a limit is missing'); os._exit(7)
must_fail(lambda: socket.socket())
must_fail(lambda: open({path!r}, 'a'))
must_fail(lambda: open({path!r}))
must_fail(lambda: os.kill(os.getppid(), 9))
must_fail(lambda: open(f'/proc/{{os.getppid()}}/mem'))
must_fail(lambda: open(f'/proc/{{os.getppid()}}/cmdline'))
must_fail(lambda: open(os.path.join({temporary!r}, 'left'), 'w'))
assert 'A_TOKEN' not in os.environ
"""
OUTLIVES = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp('sleep', ['sleep', '98765'])
    os._exit(0)
"""
SLOW = """
import sys, time, torch

def kernel(x, w):
    {when}time.sleep(0.03)
    return torch.nn.functional.rms_norm(x, (128,), w, 1e-6)
"""

LIARS = {
    "patches the judge": (WRONG + PATCHED, "INCORRECT", ALONE),
    "forges answers": (WRONG + FORGED, "ERROR", ALONE),
    "ends its process": (WRONG + "import os; os._exit(0)\n", "ERROR", ALONE),
    "raises SystemExit": (WRONG + "raise SystemExit(0)\n", "ERROR", ALONE),
    "reads the reference": ("def kernel(x, w):\n    known = {}\n    exec(open('ref.py').read(), known)\n"
                            "    return known['reference'](x, w)\n", "ERROR", ALONE),
    "calls the reference in memory": ("import sys\ndef kernel(x, w):\n    module = sys.modules.get("
                                      "'reference_of_judgement')\n    return module.reference(x, w) if module else "
                                      "x * w\n", "INCORRECT", ALONE),
    "changes its inputs": (HONEST.replace("return", "y =") + "    x.zero_()\n    return y\n", "INCORRECT", INNER),
    "cannot be parsed": ("def kernel(:\n", "ERROR", ALONE),
    "needs other inputs": ("def kernel(x): return x\n", "ERROR", ALONE),
}  # fmt: skip
"""What a kernel does -> its file, its verdict, and who finds it."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a reference."""
    (tmp_path / "ref.py").write_text(REFERENCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A_TOKEN", "secret")
    return tmp_path


def type_judge(folder: Path, kernel: str, *words: str, status: int) -> dict[str, object]:
    """Types the command for a kernel of this text; returns the JSON, which is all of standard output."""
    (folder / "k.py").write_text(kernel)
    command = [sys.executable, "-m", "pytest_attnperf.cli", "judge", "k.py", "--reference", "ref.py", "--json", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == status, (ran.stdout, ran.stderr)
    found: dict[str, object] = json.loads(ran.stdout)
    assert next(iter(found)) == "schema"
    assert decode_judgement(ran.stdout).schema == SCHEMA
    assert decode_judgement(ran.stdout).is_right == (status == 0)
    return found


@needs_landlock
def test_an_honest_kernel_is_right(folder: Path) -> None:
    """Times with their ratio, errors of both processes, every limit, seeds, device and versions."""
    found = type_judge(folder, HONEST, "--require-limits", status=0)
    judged = decode_judgement(json.dumps(found))
    times = judged.times
    assert times.kernel_us is not None
    assert times.reference_us is not None
    assert times.speedup == times.reference_us / times.kernel_us
    assert {one.found_by for one in judged.errors} == {ALONE, INNER}
    assert [state for state in judged.limits if not state.enforced] == []
    assert judged.problems == ()
    assert len(set(judged.input_seeds)) >= 3
    assert judged.device is not None
    assert {"pytest_attnperf", "python", "torch"} <= judged.versions.keys()
    assert judged.kernel.functions == ("kernel",)


@needs_landlock
@pytest.mark.parametrize("liar", LIARS)
def test_a_liar_is_not_right(folder: Path, liar: str) -> None:
    """Whatever it does to its own process, and whatever it prints."""
    kernel, verdict, found_by = LIARS[liar]
    found = type_judge(folder, kernel.replace("'ref.py'", repr(str(folder / "ref.py"))), "--no-time", status=1)
    judged = decode_judgement(json.dumps(found))
    assert (judged.verdict.value, judged.problems[0].found_by) == (verdict, found_by)


@needs_landlock
def test_nothing_can_be_broken_out_of(folder: Path) -> None:
    """A right kernel that tries is right, and has changed nothing; what it has started has ended."""
    tries = BROKEN_OUT.format(path=str(folder / "ref.py"), temporary=tempfile.gettempdir())
    type_judge(folder, HONEST + tries + OUTLIVES, "--no-time", status=0)
    assert (folder / "ref.py").read_text() == REFERENCE
    assert not Path(tempfile.gettempdir(), "left").exists()
    commands = (Path("/proc") / pid / "cmdline" for pid in os.listdir("/proc") if pid.isdigit())
    assert not any(b"98765" in _read(path) for path in commands)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("code", "words", "text"),
    [
        ("import time; time.sleep(1000)", ["--time=4"], "it took more than 4 s (--time) and was ended"),
        ("kept = [bytearray(b'a') * (16 << 20) for _ in range(200)]", ["--memory=1G"], None),
        ("import os\nopen(os.environ['HOME'] + '/a', 'wb').write(bytes(64 << 20))\nimport time; time.sleep(9)",
         ["--disk=32M"], None),
    ],
    ids=["time", "memory", "disk"],
)  # fmt: skip
def test_a_kernel_beyond_a_limit_is_an_error(folder: Path, code: str, words: list[str], text: str | None) -> None:
    """In its import; the command goes on and says which limit it was, or what the kernel's own error is."""
    found = type_judge(folder, f"{HONEST}\n{code}\n", "--no-time", *words, status=1)
    assert found["verdict"] == "ERROR"
    assert text is None or found["summary"] == text


def test_a_forged_time_is_not_believed(folder: Path) -> None:
    """A kernel that is quick only where it is timed; the same kernel, slow everywhere, is right."""
    found = type_judge(folder, SLOW.format(when="if 'pytest' not in sys.modules: "), status=1)
    judged = decode_judgement(json.dumps(found))
    assert (judged.verdict.value, judged.problems[0].found_by) == ("SUSPICIOUS", OUTSIDE)
    assert judged.times.kernel_us is None
    honest = decode_judgement(json.dumps(type_judge(folder, SLOW.format(when=""), status=0)))
    assert honest.times.kernel_us is not None
    assert honest.times.kernel_us > 30_000


def test_missing_limits_are_data(folder: Path) -> None:
    """On a kernel without Landlock: named with the reason, and a refusal if limits are required."""
    (folder / "k.py").write_text(HONEST)
    program = (
        "import sys; from pytest_attnperf.tools.judging.confinement import refuse_calls; "
        "refuse_calls({'landlock_create_ruleset': 444}); from pytest_attnperf.cli.program import main; "
        "sys.exit(main(['judge', 'k.py', '--reference', 'ref.py', '--json', '--no-time', *sys.argv[1:]]))"
    )
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    missing = {state.name: state.why for state in decode_judgement(ran.stdout).limits if not state.enforced}
    assert missing.keys() == {"files", "signals", "processes", "reference"}
    assert missing["reference"] == "this kernel has no Landlock, or it is switched off"
    refused = subprocess.run([*command, "--require-limits"], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("attnperf: not judged, because limits are not enforced here: files (this kernel ")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["absent.py", "--reference=ref.py"], "absent.py is no file"),
        (["k.py", "--reference=absent.py"], "absent.py is no file"),
        (["k.py", "--reference=ref.py::referenc"], "ref.py has no 'referenc' (did you mean 'reference'?); it defines "),
        (
            ["k.py", "--reference=ref.py", "--inputs=get"],
            "ref.py has no 'get'; it defines torch, make_inputs, reference. Name another by --inputs NAME\n",
        ),
        (["k.py", "--reference=broken.py"], "broken.py is no Python: "),
        (["k.py", "--reference=ref.py", "--time=0"], "--time is 0; it must be above 0, in seconds"),
        (["k.py", "--reference=ref.py", "--time=nan"], "--time is nan; it must be above 0, in seconds"),
        (["k.py", "--reference=ref.py", "--memory=1M"], "--memory is 1048576 bytes; torch alone needs 512M"),
        (["k.py", "--reference=ref.py", "--seed=-1"], "--seed is -1; it must be 0 or more, and below 2^63"),
        (["k.py", "--reference=ref.py", "--readable=absent"], "--readable absent does not exist"),
    ],
)
def test_an_invalid_command_starts_nothing(
    folder: Path, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence with what exists, and status 2."""
    (folder / "k.py").write_text(HONEST)
    (folder / "broken.py").write_text("def reference(:\n")
    assert main(["judge", *words]) == 2
    assert capsys.readouterr().err.startswith(f"attnperf: {text}")


@pytest.mark.parametrize("size", ["8X", "-1", "0", "", "1.5G", "٣"])
def test_an_invalid_size_is_named(folder: Path, size: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By the parser, with examples."""
    with pytest.raises(SystemExit) as ended:
        main(["judge", "k.py", "--reference=ref.py", f"--memory={size}"])
    assert ended.value.code == 2
    assert "is no size; write e.g. 512M, 8G or a number of bytes" in capsys.readouterr().err


def test_a_reference_that_proves_nothing_is_refused(folder: Path) -> None:
    """It is no verdict on the kernel: status 2, and nothing on standard output."""
    (folder / "ref.py").write_text(REFERENCE.replace("return x *", "return 0 * x *"))
    (folder / "k.py").write_text(HONEST)
    command = [sys.executable, "-m", "pytest_attnperf.cli", "judge", "k.py", "--reference", "ref.py", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("attnperf: ref.py cannot be judged with: ")
    assert "is constant" in ran.stderr
