"""examples/own-kernel and docs/add-to-your-repo.md, as somebody else would use them: from the wheel, elsewhere."""

from __future__ import annotations

import email
import re
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.testing.project import full_results
from tests.elsewhere import ROOT, Elsewhere, built_wheel, environment_of

EXAMPLE = ROOT / "examples" / "own-kernel"
PAGE = (ROOT / "docs" / "add-to-your-repo.md").read_text()
TUTORIAL = PAGE.partition("\n## From pytest-benchmark\n")[0]
"""Another test types what is behind it."""
WORKFLOW = EXAMPLE / ".github" / "workflows" / "perf.yml"
LINES_MAX = 15
WHEEL_BYTES_MAX = 2_000_000
UNFINISHED = frozenset({"deselected", "skipped", "xfailed"})
CORE = ("pytest", "msgspec", "filelock")
TORCH = (*CORE, "torch", "triton", "numpy")
EVERYTHING = (
    *(*TORCH, "jinja2", "vl-convert-python", "sqlalchemy", "ruptures"),
    *("pytest-xdist", "pytest-randomly", "pytest-benchmark"),
)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This package, built once."""
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def with_nothing(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment after `pip install pytest-attnperf`: no torch, no extra, no other plugin."""
    return environment_of(tmp_path_factory.mktemp("alone") / "venv", wheel, CORE)


@pytest.fixture(scope="session")
def with_torch(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Torch, Triton and numpy, too; no extra and no other plugin."""
    return environment_of(tmp_path_factory.mktemp("torch") / "venv", wheel, TORCH)


@pytest.fixture(scope="session")
def with_everything(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The page's extras, and the plugins that many projects have."""
    return environment_of(tmp_path_factory.mktemp("everything") / "venv", wheel, EVERYTHING)


def copy_of_the_example(folder: Path) -> Path:
    """A fresh one."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", ".attnperf", ".*_cache"))
    return folder


def outcomes(text: str) -> dict[str, int]:
    """What the last line that pytest printed counts; a case that is undecided has passed as far as a CPU can tell."""
    (*_, last) = re.findall(r"^=* ?((?:\d+ [a-z ]+, )*\d+ [a-z ]+) in [\d.]+ ?s", text, re.MULTILINE) or [""]
    counted: dict[str, int] = {}
    for number, outcome in re.findall(r"(\d+) ([a-z ]+)", last):
        name = "passed" if outcome == "undecided" else outcome
        counted[name] = counted.get(name, 0) + int(number)
    return {name: number for name, number in counted.items() if name not in UNFINISHED}


def metadata(wheel: Path) -> Message:
    """The wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: Path) -> None:
    """Every file of the package, the page's parts and tables too, a licence and metadata; no kernels, suites, tests."""
    package = ROOT / "pytest_attnperf"
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.endswith((".lock", ".tmp"))
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    own = {name for name in names if ".dist-info/" not in name}
    assert own == wanted
    assert {".html", ".css", ".js", ".json"} <= {Path(name).suffix for name in own}
    assert "pytest_attnperf/py.typed" in own
    assert any(name.endswith("licenses/LICENSE") for name in names - own)
    assert wheel.stat().st_size < WHEEL_BYTES_MAX


def test_the_wheel_needs_three_packages_and_never_torch(wheel: Path) -> None:
    """Without extras: pytest, msgspec and filelock. No extra names torch, triton or aiter."""
    required = metadata(wheel).get_all("Requires-Dist", [])
    core = {re.split(r"[^A-Za-z0-9_.-]", one)[0] for one in required if "extra ==" not in one}
    assert core == {"pytest", "msgspec", "filelock"}
    assert not [one for one in required if re.match(r"(torch|triton|pytorch|aiter|amd-aiter)\b", one, re.IGNORECASE)]


def test_extras_that_the_example_and_its_page_name_exist(wheel: Path) -> None:
    """`pytest-attnperf[html,history]` is what can be installed."""
    offered = set(metadata(wheel).get_all("Provides-Extra", []))
    texts = ((EXAMPLE / "pyproject.toml").read_text(), PAGE)
    named = [set(found.split(",")) for text in texts for found in re.findall(r"pytest-attnperf\[([a-z,]+)\]", text)]
    assert {"html", "history"} in named
    assert set().union(*named) <= offered


def test_the_gate_takes_fifteen_lines() -> None:
    """perf/test_perf.py, whole, without the empty lines; it needs nothing of conftest.py."""
    lines = [line for line in (EXAMPLE / "perf" / "test_perf.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= LINES_MAX
    assert f"**the gate**: {len(lines)} lines" in (EXAMPLE / "README.md").read_text()


def test_the_page_shows_the_files_of_the_example() -> None:
    """Every Python block of the page is a file of examples/own-kernel/perf, to the letter."""
    shown = re.findall(r"^```python\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)
    files = {path.read_text() for path in (EXAMPLE / "perf").glob("test_*.py")}
    assert len(shown) == 3
    assert set(shown) == files


def test_what_the_page_does_not_run_says_why() -> None:
    """Blocks of commands are sessions, which are run below, or begin with what they need."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)
    assert {kind for kind, _ in blocks} == {"console", "python", "sh"}
    for kind, text in blocks:
        assert kind != "sh" or text.startswith(("# needs a remote\n", "# needs the network\n"))


def test_options_that_are_named_exist(with_nothing: dict[str, str], tmp_path: Path) -> None:
    """Every --attnperf-... of the page, the README and the workflow is one of `pytest --attnperf-help`."""
    listed = Elsewhere(tmp_path, with_nothing).shell("pytest --attnperf-help")
    assert listed.returncode == 0, listed.stdout
    named = {
        option
        for text in (PAGE, (EXAMPLE / "README.md").read_text(), WORKFLOW.read_text())
        for option in re.findall(r"--(?:no-)?attnperf(?:-[a-z]+)*|--update-baselines", text)
    }
    assert "--attnperf-report" in named
    assert named <= set(re.findall(r"--[a-z-]+", listed.stdout))


def workflow() -> dict[str, Any]:
    """The example's, parsed."""
    yaml = pytest.importorskip("yaml")
    loaded: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())
    return loaded


def actions(text: str) -> dict[str, str]:
    """The revision of each action that a workflow uses."""
    return dict(re.findall(r"^ +- uses: ([\w/-]+)@(.*)$", text, re.MULTILINE))


def test_the_workflow_may_write_nothing_and_keeps_forks_off_the_gpu() -> None:
    """Read permission only, no secrets, no token left behind, and a job on one's own runner asks whose branch it is."""
    loaded, text = workflow(), WORKFLOW.read_text()
    assert loaded["permissions"] == {"contents": "read"}
    assert not [job for job in loaded["jobs"].values() if "permissions" in job]
    assert not re.search(r"secrets\.|github\.token|GITHUB_TOKEN|pull_request_target", text)
    own = [job for job in loaded["jobs"].values() if "self-hosted" in job["runs-on"]]
    assert len(own) == 1
    assert "head.repo.full_name == github.repository" in own[0]["if"]
    for step in (step for job in loaded["jobs"].values() for step in job["steps"]):
        assert "${{" not in step.get("run", "")
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_actions_of_the_workflow_are_pinned_as_ours_are() -> None:
    """Each is a commit with its version beside it; those that this repository uses are the same."""
    used = actions(WORKFLOW.read_text())
    ours = actions((ROOT / ".github" / "workflows" / "attnperf.yml").read_text())
    assert all(re.fullmatch(r"[0-9a-f]{40} # v\d+\.\d+\.\d+", revision) for revision in used.values())
    assert {name: used[name] for name in used.keys() & ours.keys()} == ours


def test_the_judge_runs_nothing_of_a_pull_request() -> None:
    """It has the base branch and data; what it installs is no name on an index that somebody else could register."""
    judge = workflow()["jobs"]["judge"]
    (checkout,) = (step for step in judge["steps"] if "checkout" in step.get("uses", ""))
    assert checkout["with"]["ref"] == "${{ github.base_ref || github.sha }}"
    commands = "\n".join(step.get("run", "") for step in judge["steps"])
    assert re.findall(r"pip install (.*)", commands) == ['"$ATTNPERF_FROM"']
    assert not re.search(r"\bpytest\b|python", commands)
    assert " @ git+https://" in workflow()["env"]["ATTNPERF_FROM"]


def test_alone_it_works_and_says_what_is_missing(with_nothing: dict[str, str], tmp_path: Path) -> None:
    """From the wheel, without torch or an extra: other tests pass, a case names torch, a command names its extra."""
    kernel = 'def test_k(attnperf):\n    attnperf.gate("k", abs, reference=abs, inputs=int)\n'
    (tmp_path / "test_any.py").write_text(f"def test_other():\n    pass\n\n\n{kernel}")
    alone = Elsewhere(tmp_path, with_nothing)
    found = alone.shell("python -c 'import pytest_attnperf; print(pytest_attnperf.__file__); import kernels'")
    assert "site-packages/pytest_attnperf/__init__.py" in found.stdout
    assert str(ROOT) not in found.stdout
    assert "ModuleNotFoundError: No module named 'kernels'" in found.stdout
    ran = alone.shell("pytest -q")
    assert (ran.returncode, outcomes(ran.stdout)) == (1, {"passed": 1, "failed": 1})
    assert "torch is not installed for " in ran.stdout
    assert "INTERNALERROR" not in ran.stdout
    past = alone.shell("attnperf history")
    assert past.returncode == 2
    assert "pip install 'pytest-attnperf[history]'" in past.stdout


@pytest.fixture(scope="session")
def measured(with_torch: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Elsewhere, str]:
    """The 15 lines without conftest.py, and beside them their like with a kernel that forgets its weight: one run."""
    here = Elsewhere(copy_of_the_example(tmp_path_factory.mktemp("project") / "own-kernel"), with_torch)
    perf = here.project / "perf"
    (perf / "conftest.py").unlink()
    right, called = (perf / "test_perf.py").read_text(), "rms_norm, reference=plain_rms_norm"
    assert right.count(called) == 1
    forgets = "lambda x, weight: plain_rms_norm(x, 0 * weight + 1), reference=plain_rms_norm"
    (perf / "test_wrong.py").write_text(right.replace(called, forgets))
    here.commit()
    ran = here.shell("pytest -q --attnperf perf/test_perf.py perf/test_wrong.py -k 1024")
    assert ran.returncode == 1, ran.stdout
    return here, ran.stdout


def test_fifteen_lines_prove_and_time_what_is_right(measured: tuple[Elsewhere, str]) -> None:
    """Nothing else of the repository is needed; without a baseline the command that stores one is printed."""
    here, text = measured
    cases = full_results(here.project / ".attnperf" / "results.json")["cases"]
    (right,) = (case for case in cases if case["key"]["suite"] == "perf")
    assert right["key"] == {"suite": "perf", "backend": "gate", "workload": "test_rms_norm[1024]", "label": ""}
    assert (right["verdict"], right["median_us"] > 0) == ("NO_BASELINE", True)
    assert "NO_BASELINE  perf/gate test_rms_norm[1024]" in text


def test_a_wrong_kernel_is_incorrect_without_a_gpu(measured: tuple[Elsewhere, str]) -> None:
    """A weight that is forgotten fails the same lines; whoever runs them sees where, and how to see it again."""
    _, text = measured
    assert "INCORRECT: wrong/gate/test_rms_norm[1024]" in text
    assert "'out' is off by" in text
    assert re.search(r'^pytest --attnperf .*"perf/test_wrong.py::test_rms_norm\[1024\]"$', text, re.MULTILINE)
    assert outcomes(text) == {"failed": 1, "no baseline": 1}, text


@pytest.mark.parametrize(("times", "status"), [("skipped", 1), ("success", 2)])
def test_the_judge_judges(
    measured: tuple[Elsewhere, str], with_nothing: dict[str, str], tmp_path: Path, times: str, status: int
) -> None:
    """Its script, where torch is not installed: what failed blocks, and times that should be there and are not, too."""
    here, _ = measured
    (tmp_path / "code-objects").mkdir()
    shutil.copy(here.project / ".attnperf" / "results.json", tmp_path / "code-objects")
    (script,) = (step["run"] for step in workflow()["jobs"]["judge"]["steps"] if step.get("name") == "Judge")
    folders = dict.fromkeys(("MEASURED", "RUNNER_TEMP"), str(tmp_path))
    summary = tmp_path / "summary"
    variables = {**folders, "TIMES": times, "ATTNPERF_GATE": "block", "GITHUB_STEP_SUMMARY": str(summary)}
    judged = Elsewhere(here.project, with_nothing).shell(f"set -e\n{script}", **variables)
    assert judged.returncode == status, judged.stdout
    assert "INCORRECT: wrong/gate/test_rms_norm[1024]" in judged.stdout
    assert "INCORRECT" in summary.read_text()


@pytest.mark.soak
@pytest.mark.parametrize("workers", ["", " -n 2"])
def test_the_readmes_commands_in_one(with_everything: dict[str, str], tmp_path: Path, workers: str) -> None:
    """Without a GPU: all is right, the kernel interpreted and not timed, what users call timed, code objects held.

    Also where pytest-randomly and pytest-benchmark are installed, and, as far as nothing is timed, under pytest-xdist.
    """
    here = Elsewhere(copy_of_the_example(tmp_path / "own-kernel"), with_everything)
    commands = re.findall(r"^\$ (.*)", (here.project / "README.md").read_text(), re.MULTILINE)
    assert commands == ["TRITON_INTERPRET=1 pytest", "pytest --attnperf perf/test_perf.py"]
    result = here.shell(f"TRITON_INTERPRET=1 pytest -q {workers or '--attnperf'}")
    assert result.returncode == 0, result.stdout
    if workers:
        assert outcomes(result.stdout)["passed"] >= 7, result.stdout
        return
    run = full_results(here.project / ".attnperf" / "results.json")
    assert sorted((case["key"]["backend"], case["verdict"], case["median_us"] is None) for case in run["cases"]) == [
        ("gate", "NO_BASELINE", False),
        ("gate", "NO_BASELINE", False),
        ("own.plain", "NO_BASELINE", False),
        ("own.triton", "RIGHT", True),
    ]
    # What is stored was made by one version of Triton; another's code objects are INCOMPARABLE with it.
    held = {code["verdict"] for code in run["code"]}
    assert len(run["code"]) == 1  # the larger build is left to nightly runs
    assert held in ({"SAME"}, {"INCOMPARABLE"})
    assert outcomes(result.stdout)["passed"] == (5 if held == {"SAME"} else 4)
    assert "benchmark 'perf/test_rms_norm[1024]'" in result.stdout


@dataclass(frozen=True)
class Step:
    """A command of the page and the output under it."""

    command: str
    shown: str


def session(page: str) -> list[Step]:
    """The commands of a page's console blocks, in order."""
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    return [Step(command.strip(), shown) for command, _, shown in (part.partition("\n") for part in parts)]


def typed(here: Elsewhere, steps: Sequence[Step]) -> list[tuple[int, str]]:
    """Status and output of each command, all typed into one shell."""
    after = '__status=$?; printf "\\n@@ %s\\n" "$__status"; (exit "$__status")'
    result = here.shell("\n".join(f"{step.command}\n{after}" for step in steps))
    parts = re.split(r"\n@@ (\d+)\n", result.stdout)
    return [(int(status), output) for output, status in zip(parts[:-1:2], parts[1::2], strict=True)]


def layout(line: str) -> str:
    """A line without its figures, commits, widths, and what a noisy machine may make otherwise."""
    line = re.sub(r"UNDECIDED|FASTER", "SAME", line)
    line = re.sub(r"\b[0-9a-f]{12}\b|[-+]?\b\d[\d.,]*\b", "#", line)
    line = re.sub(r" - (?= )", " # % ", line)  # too noisy to say what would be found
    return re.sub(r"([-=])\1+", r"\1", " ".join(line.split()))


def missing_lines(shown: str, output: str) -> list[str]:
    """Lines of a sample that a real output does not have; but those that are shortened, and the count of outcomes."""
    real = {layout(line) for line in output.splitlines()}
    lines = (line for line in shown.splitlines() if "..." not in line and not re.search(r" in [\d.]+s\b", line))
    return [line for line in lines if layout(line) not in real]


def test_a_sample_of_another_layout_is_noticed() -> None:
    """Figures may differ; columns, their order and words may not."""
    shown = "verdict  config     ms    95 %\n-------  ------  -----  ------\nSAME     gate    1.276  40.6 %\n"
    real = "verdict    config     ms  95 %\n---------  ------  -----  ----\nUNDECIDED  gate    11.27     -  \n"
    assert missing_lines(shown, real) == []
    older = "config     ms    95 %  verdict\n"
    assert missing_lines(older, real) == [older.strip()]


@pytest.mark.soak
def test_the_page_is_a_session_that_ends_as_it_says(with_everything: dict[str, str], tmp_path: Path) -> None:
    """Every command of the page, in order: right, timed, recorded, held, slower, wrong and worse, judged, reported."""
    here = Elsewhere(copy_of_the_example(tmp_path / "own-kernel"), with_everything)
    here.commit()
    steps = session(TUTORIAL)
    seen = typed(here, steps)
    assert len(seen) == len(steps)
    for (step, (status, output)), (following, _) in pairwise([*zip(steps, seen, strict=True), (Step("", ""), (0, ""))]):
        if step.command == "echo $?":
            assert output == step.shown, step
        elif following.command != "echo $?":
            assert status == 0, (step, output)
        if step.command.startswith("ls "):
            assert output == step.shown
        assert outcomes(output) == outcomes(step.shown) or not outcomes(step.shown), (step, output)
        assert missing_lines(step.shown, output) == [], (step, output)
