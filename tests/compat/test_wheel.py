"""The wheel and the source distribution: the same files, metadata that is whole, types that a user's checker sees."""

from __future__ import annotations

import email
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from pytest_attnperf import __version__
from tests.elsewhere import ROOT, built_wheel, environment_of

CORE = ("pytest", "msgspec", "filelock")
WHEEL_BYTES_MOST = 4_000_000

USERS_FILE = """
from collections.abc import Sequence

import pytest

from pytest_attnperf import Backend, CaseHandle, Registry, TimerFunction, TimerResult


def double(x: float) -> float:
    return 2 * x


def inputs() -> Sequence[float]:
    return (1.0,)


def test_gate(attnperf: CaseHandle) -> None:
    attnperf.gate("double", double, reference=double, inputs=inputs)


def test_time(gpu_timer: TimerFunction) -> None:
    timed: TimerResult = gpu_timer(double, 1.0)
    reveal_type(timed)


def names(registry: Registry, mine: Backend) -> str:
    registry.add(mine)
    return mine.name


def test_wrong(attnperf: CaseHandle) -> None:
    attnperf.gate(3, double)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This package, built once."""
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def target(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked, as an installer would into site-packages."""
    folder = tmp_path_factory.mktemp("target")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def metadata(target: Path) -> Message:
    """METADATA."""
    (file,) = target.glob("*.dist-info/METADATA")
    return email.message_from_string(file.read_text())


def test_the_wheel_holds_the_plugin_only(wheel: Path, target: Path) -> None:
    """Every file of the package that git has, licence and metadata; no other package, whose name may be another
    distribution's. Few enough bytes for a download in CI."""
    meta = f"pytest_attnperf-{__version__}.dist-info"
    assert {path.name for path in target.iterdir()} == {"pytest_attnperf", meta}
    assert (target / meta / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    listed = subprocess.run(
        ["git", "ls-files", "pytest_attnperf"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("git lists no files here")
    held = {str(path.relative_to(target)) for path in (target / "pytest_attnperf").rglob("*") if path.is_file()}
    assert {"pytest_attnperf/py.typed", "pytest_attnperf/tools/starter/github.yml"} <= held
    assert held >= {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert wheel.stat().st_size < WHEEL_BYTES_MOST


def test_metadata_says_what_it_is(metadata: Message, target: Path) -> None:
    """Version, licence, Pythons, types, entry points of pytest and of the command; every requirement has no upper
    pin."""
    assert (metadata["Version"], metadata["License-Expression"]) == (__version__, "MIT")
    assert metadata["Requires-Python"] == ">=3.10"
    classifiers = metadata.get_all("Classifier", [])
    assert {"Framework :: Pytest", "Typing :: Typed", "Programming Language :: Python :: 3.13"} <= set(classifiers)
    assert not [one for one in metadata.get_all("Requires-Dist", []) if "<" in one or "==" in one.partition(";")[0]]
    (points,) = target.glob("*.dist-info/entry_points.txt")
    assert points.read_text().split("\n") == [
        "[console_scripts]",
        "attnperf = pytest_attnperf.cli:main",
        "",
        "[pytest11]",
        "attnperf = pytest_attnperf.plugin.main",
        "",
    ]


def test_loading_the_plugin_imports_only_what_it_declares(target: Path) -> None:
    """What pytest loads from the wheel, on its own, is standard library, pytest and what these bring."""
    program = (
        "import sys, pytest; before = set(sys.modules); sys.path.insert(0, sys.argv[1]); "
        "import pytest_attnperf.plugin.main as main; assert main.__file__.startswith(sys.argv[1]), main.__file__; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    command = [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", program, str(target)]
    ran = subprocess.run(command, cwd=target, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("['pytest_attnperf']\n", "")


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Unpacked alone, without git and without this checkout, it gives a wheel of the same files, byte for byte."""
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path)]
    subprocess.run([*build, "--target", "sdist"], cwd=ROOT, capture_output=True, check=True)
    (made,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(made) as archive:
        archive.extractall(tmp_path)
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert not {"tests", "kernels", "suites", "baselines"} & {path.name for path in source.iterdir()}
    subprocess.run([*build, "--target", "wheel"], cwd=source, capture_output=True, check=True)
    (again,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert {one.filename: one.CRC for one in first.infolist()} == {
            one.filename: one.CRC for one in second.infolist()
        }


@pytest.mark.soak
def test_a_users_checker_sees_our_types(target: Path, tmp_path: Path) -> None:
    """mypy --strict accepts a file that uses the fixtures, the gate and a backend, and rejects the one wrong call."""
    pytest.importorskip("mypy")
    (tmp_path / "test_mine.py").write_text(USERS_FILE)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "test_mine.py"]
    ran = subprocess.run(
        command, cwd=tmp_path, env={"MYPYPATH": str(target), "PATH": ""}, capture_output=True, text=True, check=False
    )
    errors = [line for line in ran.stdout.splitlines() if ": error:" in line]
    wrong = USERS_FILE[: USERS_FILE.index("attnperf.gate(3")].count("\n") + 1
    assert errors, ran.stdout + ran.stderr
    assert {line.split(":")[1] for line in errors} == {str(wrong)}
    assert 'Revealed type is "pytest_attnperf.measure.gpu_timer.TimerResult"' in ran.stdout


@pytest.mark.soak
def test_a_strangers_first_project(wheel: Path, tmp_path: Path) -> None:
    """`.ci/smoke.py` passes in an environment that has the wheel, what it declares, and nothing else."""
    environment = environment_of(tmp_path / "venv", wheel, CORE)
    command = [str(tmp_path / "venv" / "bin" / "python"), str(ROOT / ".ci" / "smoke.py"), str(tmp_path / "project")]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
