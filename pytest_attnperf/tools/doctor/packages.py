"""Checks Python, pytest, this plugin and plugins that disturb it. Reads package metadata and text; imports nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_attnperf import __version__
from pytest_attnperf.environment.software import version_of
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

OURS = "pytest_attnperf.plugin.main"
NEEDED = ("pytest", "msgspec", "filelock")
OLDEST_PYTEST = 8

DISTURBING = {
    "pytest-rerunfailures": "--reruns with --attnperf is refused: it would repeat a slow case until it passes",
    "pytest-randomly": "--attnperf restores the order of cases, because a case heats the GPU for the next one",
    "pytest-xdist": "-n with --attnperf takes at most one worker per visible GPU",
    "pytest-timeout": "its limit counts in the controller, too: keep it above --attnperf-case-limit (300 s)",
}
"""Plugin -> its effect on a run that measures."""

CONFIG_FILES = ("pytest.ini", ".pytest.ini", "pytest.toml", "pyproject.toml", "tox.ini", "setup.cfg")
SKIPPED_FOLDERS = {"node_modules", "site-packages", "build", "dist", "__pycache__", "venv", "env"}
MOST_FILES = 3000
MOST_BYTES = 200_000
SCAN_LIMIT_S = 1.0

_MARK = re.compile(r"mark\.attnperf\b|\bgpu_timer\b|\battnperf\.gate\(")
_REGISTERS = re.compile(r"\bpytest_attnperf_register_(?:backends|kernels)\b")
_RERUNS = re.compile(r"^[^#\n]*--reruns\b", re.MULTILINE)


def probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """Returns four findings: Python, this plugin, its dependencies, and pytest plugins that disturb measurements."""
    return (_probe_python(here), _probe_plugin(), _probe_dependencies(here), _probe_other_plugins(here))


def project_probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """Returns 'suites', whether the project's test files have cases, and 'backends', whether conftest.py registers
    any."""
    return (_probe_cases(here), _probe_backends(here))


def _probe_python(here: Surroundings) -> DoctorFinding:
    value = f"{platform.python_version()} ({platform.python_implementation()}, {platform.machine()})"
    return DoctorFinding("python", Status.OK, value, details=(f"interpreter: {here.python}",))


def _probe_plugin() -> DoctorFinding:
    """Returns the finding whether pytest would load this plugin, by its entry point, because an importable folder is
    not enough. A warning if two versions are on the path."""
    points = importlib.metadata.entry_points(group="pytest11")
    installed = version_of("pytest-attnperf")
    if any(point.value == OURS for point in points):
        if installed and installed != __version__:
            return DoctorFinding(
                "pytest-attnperf",
                Status.WARNING,
                f"{__version__} is imported, {installed} is installed",
                "a checkout is newer than its installation, or the path has two copies; results name the imported one",
                "pip install --no-deps -e . (in the checkout), or pip uninstall pytest-attnperf and install one copy",
            )
        return DoctorFinding("pytest-attnperf", Status.OK, f"{__version__}, known to pytest")
    return DoctorFinding(
        "pytest-attnperf",
        Status.PROBLEM,
        f"{__version__} can be imported, but is not installed for this interpreter",
        "pytest does not know --attnperf",
        "pip install pytest-attnperf (in a checkout: pip install -e .)",
    )


def _probe_dependencies(here: Surroundings) -> DoctorFinding:
    found = {name: version_of(name) for name in NEEDED}
    missing = [name for name, version in found.items() if not version]
    value = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    if missing:
        return DoctorFinding(
            "dependencies",
            Status.PROBLEM,
            f"missing: {', '.join(missing)}",
            "runs that measure, baselines and reports do not work without them",
            f"{here.python} -m pip install {' '.join(missing)}",
        )
    major = found["pytest"].partition(".")[0]
    if major.isdigit() and int(major) < OLDEST_PYTEST:
        fix = f"{here.python} -m pip install 'pytest>={OLDEST_PYTEST}'"
        return DoctorFinding("dependencies", Status.PROBLEM, value, f"pytest {found['pytest']} is too old", fix)
    return DoctorFinding("dependencies", Status.OK, value)


def _probe_other_plugins(here: Surroundings) -> DoctorFinding:
    found = {name: version for name in DISTURBING if (version := version_of(name))}
    value = ", ".join(f"{name} {version}" for name, version in found.items()) or "none that disturbs"
    details = tuple(f"{name}: {DISTURBING[name]}" for name in found)
    where = [name for name in CONFIG_FILES if _RERUNS.search(_read_text(here.root / name))]
    where += ["PYTEST_ADDOPTS"] if "--reruns" in here.environ.get("PYTEST_ADDOPTS", "") else []
    if where and "pytest-rerunfailures" in found:
        return DoctorFinding(
            "pytest plugins",
            Status.WARNING,
            f"--reruns is set in {', '.join(where)}",
            DISTURBING["pytest-rerunfailures"],
            "pytest --attnperf -p no:rerunfailures -o addopts= suites/, or remove --reruns there",
            details,
        )
    return DoctorFinding("pytest plugins", Status.OK, value, details=details)


def _probe_cases(here: Surroundings) -> DoctorFinding:
    files, is_whole = _find_case_files(here)
    if files:
        tops = ", ".join(dict.fromkeys(file.partition("/")[0] for file in files))
        shown = f"{len(files)} file{'s' if len(files) != 1 else ''} with cases: {tops}"
        return DoctorFinding("suites", Status.OK, shown, details=tuple(files))
    reach = "" if is_whole else f" (of the first {MOST_FILES} files; the search ended there)"
    return DoctorFinding(
        "suites",
        Status.NOTE,
        f"no test file in this folder has cases{reach}",
        "pytest --attnperf has nothing to measure here",
        "change to the folder of your project, or mark a test with @pytest.mark.attnperf(family=..., workloads=[...])",
    )


def _probe_backends(here: Surroundings) -> DoctorFinding:
    """Returns the finding whether conftest.py registers backends or kernels. Plugins may register some, too, which only
    pytest knows."""
    if _REGISTERS.search(_read_text(here.root / "conftest.py")):
        return DoctorFinding("backends", Status.OK, "conftest.py registers backends or kernels of this project")
    return DoctorFinding(
        "backends",
        Status.NOTE,
        "conftest.py of this folder registers none",
        "tests run over backends of plugins only; attnperf.gate and gpu_timer need none",
        "define pytest_attnperf_register_backends(registry) in conftest.py",
    )


def _find_case_files(here: Surroundings) -> tuple[list[str], bool]:
    """Returns the test files with cases, relative to the project, and whether the search got through all files."""
    found: list[str] = []
    ends_s = here.clock() + SCAN_LIMIT_S
    for number, path in enumerate(_test_files(here.root)):
        if number >= MOST_FILES or here.clock() > ends_s:
            return found, False
        if _MARK.search(_read_text(path)):
            found.append(path.relative_to(here.root).as_posix())
    return found, True


def _test_files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if name.startswith("test_") and name.endswith(".py"))


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
