"""The wheel in every Python, pytest, torch and Triton that this machine can have: installs, smoke project, own tests.

    python .ci/matrix.py                    all cells; a table
    python .ci/matrix.py --list             what they are
    python .ci/matrix.py py3.10-oldest      some cells
    python .ci/matrix.py --smoke            the smoke project only, in environments that hold nothing but the wheel
    python .ci/matrix.py --write            also writes the table into docs/doctor.md

A cell is a virtual environment of its own with the wheel and pinned versions: 'oldest' takes the lower bounds that the
wheel's metadata names, 'newest' what the package index has. Standard library only; needs hatchling to build the wheel
(`make setup`), uv where there is one, else venv and pip. Exit status 1 when a cell failed; a cell that this machine
cannot have (no such Python, nothing to download) is named, and fails nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "doctor.md"
BEGIN, END = "<!-- cells: begin -->", "<!-- cells: end -->"
NO_TESTS = "left out"
SHOWN = ("pytest", "msgspec", "filelock", "torch", "triton")
INSTALL_LIMIT_S, SMOKE_LIMIT_S, TESTS_LIMIT_S = 1200, 300, 600

TOOLS = (
    "hypothesis",
    "jsonschema",
    "jinja2",
    "pyyaml",
    "pyelftools",
    "pytest-timeout",
    "pytest-xdist",
    "vl-convert-python",
)
"""What our tests import beside the wheel."""
WITHOUT_TORCH = (
    "stats",
    "baselines",
    "gate",
    "session",
    "reports",
    "roofline",
    "tools/dispatch",
    "tools/ci",
    "plugin/test_own_pytest.py",
    "plugin/test_settings.py",
)
LEFT_OUT = (
    *("gate/test_false_alarms.py", "gate/test_card_alarms.py", "stats/test_pair_ratios.py"),
    "reports/html/test_in_browser.py",
    *("session/bisect", "session/blame"),
)
"""Long simulations, a browser and git: nothing in them depends on a version, and every cell would pay for them."""
WITH_TORCH = (
    *("correctness/test_metrics.py", "correctness/test_judge.py", "correctness/test_references.py"),
    *("measure/test_subject.py", "measure/test_stage_timing.py", "measure/test_timing.py"),
    "tools/doctor/test_torch_package.py",
    *("kernels/native/test_rope.py", "kernels/native/test_rows.py", "kernels/native/test_gemm.py"),
)
WITH_TRITON = ("codeobject/test_compile_triton.py", "codeobject/test_triton_installation.py")
SKIPPED_IN_COPY = (".git", ".venv", ".attnperf", ".*_cache", ".hypothesis", "__pycache__", "build", "dist", ".whl")


@dataclass(frozen=True)
class Cell:
    """One environment. `oldest`: the core dependencies at the wheel's lower bounds. Requirements beside the wheel:
    pytest, torch, triton ('' for none, 'newest', or a version). `alone`: without what torch or Triton bring.
    """

    name: str
    python: str
    oldest: bool = False
    pytest: str = "newest"
    torch: str = ""
    triton: str = ""
    alone: bool = False
    tests: tuple[str, ...] = WITHOUT_TORCH


CELLS = (
    Cell("py3.10-oldest", "3.10", oldest=True),
    Cell("py3.10-newest", "3.10"),
    Cell("py3.11-pytest8", "3.11", pytest="<9"),
    Cell("py3.11-newest", "3.11"),
    Cell("py3.12-oldest", "3.12", oldest=True),
    Cell("py3.12-newest", "3.12"),
    Cell("py3.13-oldest", "3.13", oldest=True),
    Cell("py3.13-pytest8", "3.13", pytest="<9"),
    Cell("py3.13-newest", "3.13"),
    Cell("py3.10-torch2.6", "3.10", oldest=True, torch="2.6.0", tests=WITH_TORCH),
    Cell("py3.12-torch2.9", "3.12", torch="2.9.1", tests=WITH_TORCH),
    Cell("py3.13-torch", "3.13", torch="newest", tests=WITH_TORCH),
    Cell("py3.12-triton3.3", "3.12", triton="3.3.0", alone=True, tests=WITH_TRITON),
    Cell("py3.13-triton", "3.13", triton="newest", alone=True, tests=WITH_TRITON),
)


@dataclass
class Outcome:
    """What became of a cell: versions as resolved, and each step as 'passed', or why not."""

    cell: Cell
    versions: dict[str, str] = field(default_factory=dict)
    smoke: str = "not run"
    tests: str = "not run"
    absent: str = ""
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether something ran here and was wrong."""
        passed = self.smoke == "passed" and re.fullmatch(rf"\d+ passed.*|{NO_TESTS}", self.tests)
        return not self.absent and not passed


def lower_bounds(metadata: str) -> list[str]:
    """'Requires-Dist: msgspec>=0.19' -> 'msgspec==0.19', of the dependencies that are in no extra."""
    found = re.findall(r"^Requires-Dist: ([\w.-]+) ?\(?>=([\w.]+)\)?(?!.*extra ==).*$", metadata, re.MULTILINE)
    return [f"{name}=={version}" for name, version in found]


def requirements(cell: Cell, metadata: str, *, tools: Sequence[str] = TOOLS) -> list[str]:
    """What is installed beside the wheel, pinned."""
    pins = lower_bounds(metadata) if cell.oldest else []
    if not cell.oldest:
        pins.append(pinned("pytest", cell.pytest))
    return [*pins, *tools]


def pinned(name: str, version: str) -> str:
    """'torch', 'newest' -> 'torch'; '2.6.0' -> 'torch==2.6.0'; '<9' -> 'torch<9'."""
    if version == "newest":
        return name
    return f"{name}{version}" if version[0] in "<>=" else f"{name}=={version}"


def said(command: Sequence[object], limit_s: float = 60, **options: Any) -> tuple[int, str]:
    """Exit status and both streams; a command that cannot be started, or does not end, is status 127 or 124.

    Text goes through a file and a late command is ended with its whole group: a grandchild that keeps a pipe open
    would keep the cell, and all behind it.
    """
    with tempfile.TemporaryFile() as text:
        try:
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=text,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **options,
            )
        except OSError as error:
            return 127, str(error)
        late = ""
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            late = f"\nnot done after {limit_s:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        text.seek(0)
        printed = text.read().decode(errors="replace")
        return (124, printed + late) if late else (process.returncode, printed)


def interpreter(version: str) -> str:
    """A Python of this minor version: uv's, one on PATH, or pyenv's; '' where there is none."""
    status, found = said(["uv", "python", "find", "--system", "--no-python-downloads", version])
    candidates = [found.strip()] if status == 0 else []
    candidates += [shutil.which(f"python{version}") or ""]
    status, root = said(["pyenv", "root"])
    if status == 0:
        candidates += sorted(map(str, Path(root.strip()).glob(f"versions/{version}.*/bin/python")), reverse=True)
    test = "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"
    return next((one for one in candidates if one and said([one, "-c", test]) == (0, f"{version}\n")), "")


def built_wheel(folder: Path) -> Path:
    """This checkout as a wheel; no index is asked."""
    status, text = said([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], 120, cwd=ROOT)
    if status:
        raise SystemExit(f"the wheel cannot be built with {sys.executable} (make setup installs hatchling):\n{text}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def metadata_of(wheel: Path) -> str:
    """The text of METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


def install(python: Path, *what: str | Path) -> str:
    """Put it there, by uv where there is one; '' or what the installer said last."""
    uv = shutil.which("uv")
    command = [uv, "pip", "install", "--quiet", "--python", python] if uv else [python, "-m", "pip", "install", "-q"]
    status, text = said([*command, *what], INSTALL_LIMIT_S)
    return " / ".join(text.strip().splitlines()[-2:])[:200] if status else ""


def make(cell: Cell, wheel: Path, home: Path, *, tools: Sequence[str]) -> str:
    """The environment of a cell; '' or why this machine cannot have it."""
    base = interpreter(cell.python)
    if not base:
        return f"no Python {cell.python} here"
    uv = shutil.which("uv")
    made = said([uv, "venv", "-q", "--python", base, home] if uv else [base, "-m", "venv", home], 120)
    if made[0]:
        return f"no virtual environment: {made[1].strip()[:150]}"
    python = home / "bin" / "python"
    wrong = install(python, wheel, *requirements(cell, metadata_of(wheel), tools=tools))
    for name, version in (("torch", cell.torch), ("triton", cell.triton)):
        if version and not wrong:
            wrong = install(python, *(["--no-deps"] if cell.alone else []), "numpy", pinned(name, version))
    return f"cannot be installed: {wrong}" if wrong else ""


def versions(python: Path) -> dict[str, str]:
    """Python's, and those of SHOWN that are installed."""
    program = (
        "import platform\nfrom importlib import metadata\nprint('python', platform.python_version())\n"
        f"for name in {SHOWN!r}:\n    try:\n        print(name, metadata.version(name))\n"
        "    except metadata.PackageNotFoundError:\n        pass"
    )
    return dict(line.split(" ", 1) for line in said([python, "-c", program])[1].splitlines() if " " in line)


def environment() -> dict[str, str]:
    """Of a shell in which nothing of ours is set."""
    ours = ("ATTNPERF_", "PYTEST_", "PYTHON")
    kept = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith(ours)}
    return {**kept, "OMP_NUM_THREADS": "1"}


def last_line(text: str) -> str:
    """pytest's count: '= 12 passed, 1 skipped in 3.00s =' -> '12 passed, 1 skipped'."""
    found = re.findall(r"(?m)^=*\s?((?:\d+ [a-z]+,? ?)+) in [\d.]+ ?s", text)
    return found[-1].strip() if found else f"no result: {' / '.join(text.strip().splitlines()[-2:])[:150]}"


def run(cell: Cell, wheel: Path, tree: Path | None, work: Path) -> Outcome:
    """Everything of one cell, without own tests if there is no tree; what was printed stays in WORK/NAME.log."""
    started, outcome, home = time.monotonic(), Outcome(cell), work / cell.name
    outcome.absent = make(cell, wheel, home, tools=TOOLS if tree else ())
    if not outcome.absent:
        python = home / "bin" / "python"
        outcome.versions = versions(python)
        project = work / f"{cell.name}-project"
        shutil.rmtree(project, ignore_errors=True)
        status, smoke = said([python, ROOT / ".ci" / "smoke.py", project], SMOKE_LIMIT_S)
        outcome.smoke = (
            "passed"
            if status == 0
            else next((line for line in smoke.splitlines() if line.startswith("FAILED")), smoke[-150:])
        )
        text = own_tests(cell, home, tree) if tree else ""
        outcome.tests = last_line(text) if tree else NO_TESTS
        (work / f"{cell.name}.log").write_text(f"{smoke}\n{text}")
    outcome.seconds = time.monotonic() - started
    shutil.rmtree(home, ignore_errors=True)
    return outcome


def own_tests(cell: Cell, home: Path, tree: Path) -> str:
    """What pytest prints of the cell's tests in a copy of this repository."""
    paths = [f"tests/{name}" for name in cell.tests if (tree / "tests" / name).exists()]
    paths += [f"--ignore=tests/{name}" for name in LEFT_OUT]
    typed = [home / "bin" / "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-m", "not soak", *paths]
    return said(typed, TESTS_LIMIT_S, cwd=tree, env=environment())[1]


def table(outcomes: Sequence[Outcome], today: str) -> str:
    """Markdown: a row per cell that ran, and a line for each that could not."""
    tested = any(not one.absent and one.tests != NO_TESTS for one in outcomes)
    lines = [
        f"Run on {today} by `python .ci/matrix.py{'' if tested else ' --smoke'} --write`:",
        "",
        f"| cell | Python | {' | '.join(SHOWN)} | smoke project | own tests | s |",
        f"|---|---|{'---|' * len(SHOWN)}---|---|---|",
    ]
    for one in (one for one in outcomes if not one.absent):
        cells = [one.versions.get(name, "-") for name in ("python", *SHOWN)]
        lines.append(f"| {one.cell.name} | {' | '.join(cells)} | {one.smoke} | {one.tests} | {one.seconds:.0f} |")
    absent = [f"- {one.cell.name}: {one.absent}" for one in outcomes if one.absent]
    ran_without = [one.cell.name for one in outcomes if not one.absent and "torch" not in one.versions]
    lines += ["", f"Without torch: {', '.join(ran_without) or 'none'}."]
    return "\n".join([*lines, "", "Not run:", "", *absent] if absent else lines)


def written(page: str, section: str) -> str:
    """The page with the section between its two marks. Raises ValueError where it lacks them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs a line {BEGIN} and, behind it, a line {END}")
    return f"{before}{begin}\n{section}\n{end}{after}"


def chosen(names: Sequence[str], *, smoke: bool = False) -> list[Cell]:
    """Cells by name; without one all, or for smoke those without a large download. Raises SystemExit for an unknown
    name."""
    unknown = sorted(set(names) - {cell.name for cell in CELLS})
    if unknown:
        raise SystemExit(f"no cell {', '.join(unknown)}; there are {', '.join(cell.name for cell in CELLS)}")
    if not names:
        return [cell for cell in CELLS if not (smoke and (cell.torch or cell.triton))]
    return [cell for cell in CELLS if cell.name in names]


def main(arguments: Sequence[str]) -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="CELL")
    parser.add_argument("--list", action="store_true", help="name the cells and run none")
    parser.add_argument("--smoke", action="store_true", help="no own tests, nothing but the wheel, no torch")
    parser.add_argument("--write", action="store_true", help="write the table into docs/doctor.md")
    parser.add_argument("--work", type=Path, help="a folder for environments and logs, kept (default: a temporary one)")
    typed = parser.parse_args(arguments)
    cells = chosen(typed.cells, smoke=typed.smoke)
    if typed.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    with tempfile.TemporaryDirectory(prefix="attnperf-matrix-") as temporary:
        work = (typed.work or Path(temporary)).resolve()
        wheel, tree = built_wheel(Path(temporary) / "wheel"), None if typed.smoke else Path(temporary) / "tree"
        work.mkdir(parents=True, exist_ok=True)
        if tree:
            shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*SKIPPED_IN_COPY), symlinks=True)
        outcomes = []
        for cell in cells:
            try:
                one = run(cell, wheel, tree, work)
            except OSError as error:
                one = Outcome(cell, smoke=f"the cell broke: {error}"[:150])
            outcomes.append(one)
            print(
                f"{cell.name}: {one.absent or f'smoke {one.smoke}; tests {one.tests}'} ({one.seconds:.0f} s)",
                flush=True,
            )
    shown = table(outcomes, datetime.date.today().isoformat())
    print(shown)
    if typed.write:
        PAGE.write_text(written(PAGE.read_text(), shown))
    return int(any(one.failed for one in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
