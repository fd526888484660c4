"""A place that has this package from its wheel, and does not have this checkout: a folder and an environment."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata as installed
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOREIGN = ("ATTNPERF_", "GITHUB_", "PYTEST_", "PYTHON", "TRITON_", "VIRTUAL_ENV")
"""What the environment of these tests may hold that a user's would not."""
NO_GPU = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "")


def built_wheel(folder: Path) -> Path:
    """This package, built as it would be published, by what is installed here: no index is asked."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("a wheel is built by hatchling, which is not installed")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (made,) = folder.glob("*.whl")
    return made


def closure(names: Sequence[str]) -> dict[str, installed.Distribution]:
    """These distributions and all that they need, by name; skips where one of `names` is not installed."""
    found: dict[str, installed.Distribution] = {}
    pending = list(names)
    while pending:
        name = re.sub(r"[-_.]+", "-", pending.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = installed.distribution(name)
        except installed.PackageNotFoundError:
            if name in names:
                pytest.skip(f"the example needs {name}, which is not installed")
            continue  # of another platform
        needed = [one for one in found[name].requires or () if "extra ==" not in one]
        pending += [re.split(r"[^A-Za-z0-9_.-]", one)[0] for one in needed]
    return found


def top_level(distribution: installed.Distribution) -> Iterator[Path]:
    """What an installer put into site-packages for it, its metadata among them."""
    for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        path = Path(str(distribution.locate_file(name)))
        if path.exists():
            yield path


def environment_of(home: Path, wheel: Path, names: Sequence[str]) -> dict[str, str]:
    """Variables of a shell in a new virtual environment with the wheel, these distributions, and nothing else.

    The distributions are borrowed from here by links; this checkout, which is installed here, too, is not among them.
    """
    venv.create(home, symlinks=True)
    python, bin_folder = home / "bin" / "python", home / "bin"
    (site,) = home.glob("lib/python*/site-packages")
    for path in {path for one in closure(names).values() for path in top_level(one)}:
        if not (site / path.name).exists():
            (site / path.name).symlink_to(path)
    install = ["--python", str(python), "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([sys.executable, "-m", "pip", *install, str(wheel)], check=True)
    script = bin_folder / "pytest"
    script.write_text(f"#!{python}\nimport sys\n\nimport pytest\n\nsys.exit(pytest.main())\n")
    script.chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith(FOREIGN)}
    searched = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    return {**kept, **NO_GPU, "PATH": searched, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Elsewhere:
    """A folder, and an environment that has the wheel and does not have this checkout."""

    project: Path
    environment: dict[str, str]

    def shell(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Type a line, or several; both streams in `stdout`."""
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.project,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=900,
        )

    def commit(self) -> None:
        """Make the folder a repository, as the page does."""
        name = "git init -q && git config user.name A && git config user.email a@example.com"
        committed = self.shell(f"{name} && git add -A && git commit -qm 'A kernel'")
        assert committed.returncode == 0, committed.stdout
