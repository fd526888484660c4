from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.environments.components import REST, list_components
from pytest_attnperf.workers.environments.installed import InstalledPackage, PythonEnvironment, list_packages
from pytest_attnperf.workers.environments.mixing import (
    Mixer,
    is_same_interpreter,
    link_package,
    parse_library,
    read_imported,
)
from pytest_attnperf.workers.launch import IMPORTED
from tests.made_packages import make_bare_python, make_package


def _list_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def mixer(tmp_path: Path) -> Mixer:
    """Two environments of one interpreter with added folders: `fast` and `slow` differ, `same` does not, and `only` is
    in the new one."""
    python, sides = make_bare_python(tmp_path / "env"), []
    for side, version in (("old", "1.0"), ("new", "2.0")):
        folder = tmp_path / side
        for name in ("fast", "slow"):
            make_package(folder, name, version)
        make_package(folder, "same", "1.0")
        if side == "new":
            make_package(folder, "only", version)
        sides.append(list_packages(PythonEnvironment(side, python, (folder,)), tmp_path))
    mixed = Mixer(sides[0], sides[1], list_components(*sides), tmp_path / "scratch", tmp_path)
    mixed.scratch.mkdir()
    mixed.parts = ("fast", "slow", REST)
    return mixed


def _ask_versions(mixer: Mixer, mixture: Sequence[str]) -> dict[str, str]:
    """Versions of all packages of the fixture, asked of the interpreter that a worker would run in; '' if missing."""
    command = shlex.split(mixer.worker_command(frozenset(mixture)))
    code = (
        "import importlib\nfor name in 'fast slow same only'.split():\n"
        "    try: print(name, importlib.import_module(name).version)\n    except ImportError: print(name)"
    )
    asked = [*command[: command.index("-m")], "-c", code]
    printed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return {name: version for name, _, version in (line.partition(" ") for line in printed.splitlines())}


def test_environments_are_put_together(mixer: Mixer, tmp_path: Path) -> None:
    """Each mixture has the new versions that it names and the old ones of all else; REST has what is not swapped by
    itself. Neither environment is changed."""
    before = _list_files(tmp_path / "old"), _list_files(tmp_path / "new")
    for mixture, versions in {
        (): ("1.0", "1.0", "1.0", ""),
        ("fast",): ("2.0", "1.0", "1.0", ""),
        ("slow", REST): ("1.0", "2.0", "1.0", "2.0"),
        ("fast", "slow", REST): ("2.0", "2.0", "1.0", "2.0"),
    }.items():
        assert _ask_versions(mixer, mixture) == dict(zip(("fast", "slow", "same", "only"), versions, strict=True))
    assert (_list_files(tmp_path / "old"), _list_files(tmp_path / "new")) == before


def test_an_environment_that_starts(mixer: Mixer) -> None:
    """Its imports succeed, and what was linked is what is found."""
    assert mixer.find_start_problem(frozenset(("fast",)), ["fast", "slow"]) == ""
    assert mixer.find_start_problem(frozenset(("slow", REST)), ["fast", "only"]) == ""


def test_environments_that_do_not_start(mixer: Mixer, tmp_path: Path) -> None:
    """The first import that fails is named with its error, as is an interpreter that dies of it."""
    package = tmp_path / "new" / "fast" / "__init__.py"
    package.write_text("import nowhere")
    problem = mixer.find_start_problem(frozenset(("fast",)), ["slow", "fast"])
    assert problem == "import fast: ModuleNotFoundError: No module named 'nowhere'"
    package.write_text("import os, sys; sys.stderr.write('undefined symbol\\n'); sys.stderr.flush(); os._exit(9)")
    assert mixer.find_start_problem(frozenset(("fast",)), ["fast"]) == "its imports ended with 9: undefined symbol"


def test_a_swap_without_effect_is_found(mixer: Mixer, tmp_path: Path) -> None:
    """A package that comes from elsewhere than from its link is a problem: the swap would be measured as harmless."""
    (tmp_path / "new" / "fast" / "__init__.py").write_text(
        f"import sys; sys.path.insert(0, {str(tmp_path / 'old')!r}); import importlib; importlib.invalidate_caches()\n"
        "sys.modules.pop('slow', None)"
    )
    problem = mixer.find_start_problem(frozenset(("fast", REST)), ["fast", "slow"])
    assert problem.startswith("slow is found in ")
    assert problem.endswith(f"not in {mixer.scratch}/mixed-0/site-packages")


def test_the_command_of_a_worker(mixer: Mixer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness is first on the path, nothing is compiled into either environment, what kernels build is kept apart,
    and libraries and the folder for imports are variables."""
    (tmp_path / "lib1").mkdir()
    (tmp_path / "lib2").mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", "/inherited")
    mixer.libraries = (parse_library("rccl=lib1:lib2", tmp_path),)
    mixer.parts = (*mixer.parts, "rccl")
    words = shlex.split(mixer.worker_command(frozenset(("rccl",)), tmp_path / "imported"))
    environ = dict(word.split("=", 1) for word in words[1 : words.index(str(tmp_path / "env" / "bin" / "python"))])
    assert environ["PYTHONPATH"].split(os.pathsep)[0] == str(mixer.scratch / "harness")
    assert (mixer.scratch / "harness" / "pytest_attnperf" / "plugin").is_dir()
    assert environ["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environ["TORCH_EXTENSIONS_DIR"] == str(mixer.scratch / "mixed-0" / "builds" / "torch_extensions")
    assert environ["LD_LIBRARY_PATH"] == f"{tmp_path / 'lib2'}:/inherited"
    assert environ[IMPORTED] == str(tmp_path / "imported")
    assert words[-4:] == ["-m", "pytest_attnperf.cli", "worker", f"--rootdir={tmp_path}"]
    other = shlex.split(mixer.worker_command(frozenset(("fast",))))
    assert f"LD_LIBRARY_PATH={tmp_path / 'lib1'}:/inherited" in other


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rccl", "--library=rccl must be NAME=OLD:NEW, e.g. rccl=/opt/old/lib:/opt/new/lib"),
        ("rccl=/a", "must be NAME=OLD:NEW"),
        ("a b=/a:/b", "must be NAME=OLD:NEW"),
        ("rccl=nowhere:.", "nowhere is no folder; both hold the library's files"),
    ],
)
def test_what_is_no_library(tmp_path: Path, text: str, message: str) -> None:
    """Another form and a folder that is not there are usage errors."""
    with pytest.raises(UsageError, match=message):
        parse_library(text, tmp_path)


def test_links_of_a_namespace(mixer: Mixer, tmp_path: Path) -> None:
    """Two distributions of one namespace are linked part by part; what is linked already stays."""
    for name in ("cudnn", "nccl"):
        make_package(tmp_path / "libs", f"nvidia_{name}", "1.0", {f"nvidia/{name}/__init__.py": ""})
    listed = list_packages(PythonEnvironment("libs", mixer.old.environment.python, (tmp_path / "libs",)), tmp_path)
    folder = tmp_path / "linked"
    for name in ("nvidia-cudnn", "nvidia-nccl", "nvidia-nccl"):
        link_package(listed.packages[name], folder)
    assert (folder / "nvidia" / "cudnn").is_symlink()
    assert (folder / "nvidia" / "nccl").is_symlink()
    assert not (folder / "nvidia").is_symlink()


def test_nothing_is_written_behind_a_link(tmp_path: Path) -> None:
    """Where one distribution has a whole package and another a part below its name, no link lands in the package."""
    for name in ("one", "other"):
        (tmp_path / name / "nvidia" / name).mkdir(parents=True)
    whole = InstalledPackage("whole", "1", tmp_path / "one", entries=("nvidia",))
    part = InstalledPackage("part", "1", tmp_path / "other", entries=("nvidia/other",))
    for package in (whole, part):
        link_package(package, tmp_path / "linked")
    assert _list_files(tmp_path / "one") == ["nvidia", "nvidia/one"]


def test_one_interpreter(mixer: Mixer) -> None:
    """Environments that differ in added folders only have one interpreter."""
    assert is_same_interpreter(mixer.old, mixer.new)


def test_imports_of_several_workers(tmp_path: Path) -> None:
    """The names of all files are joined; without a folder there are none."""
    assert read_imported(tmp_path / "nowhere") == frozenset()
    (tmp_path / "1.txt").write_text("torch\ntorch.cuda")
    (tmp_path / "2.txt").write_text("triton")
    assert read_imported(tmp_path) == {"torch", "torch.cuda", "triton"}
