"""`attnperf baselines check`, as it is typed in a project that has recorded and then changed."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.testing.project import WORKLOAD, FakeProject

OTHER = "prefill-b1-s32-h1-d16-f16"


@pytest.fixture
def recorded(attnperf_project: FakeProject) -> FakeProject:
    """A project with one entry."""
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.store_baselines()
    return attnperf_project


def check(project: FakeProject, *words: str) -> tuple[int, str, str]:
    """(exit status, standard output, standard error)."""
    command = [sys.executable, "-m", "pytest_attnperf.cli", "baselines", "check", *words]
    wide = {**os.environ, "COLUMNS": "200"}
    ran = subprocess.run(command, cwd=project.path, env=wide, capture_output=True, text=True, check=False, timeout=120)
    return ran.returncode, ran.stdout, ran.stderr


def test_a_store_that_fits(recorded: FakeProject) -> None:
    """One line for each product, and status 0."""
    status, out, error = check(recorded)
    assert (status, error) == (0, "")
    assert out.splitlines() == [f"{product(recorded)}: 1 entries; nothing is due"]


def test_entries_that_no_commit_has_are_counted(recorded: FakeProject) -> None:
    """They are compared as any other; only that their code cannot be found is said."""
    text = recorded.baseline().read_text()
    (commit,) = re.findall(r'"commit": "(.*)"', text)
    recorded.baseline().write_text(
        text.replace(f"from {commit}", "from 4f2c+dirty").replace(f'"{commit}"', '"4f2c+dirty"')
    )
    status, out, error = check(recorded)
    assert (status, error) == (0, "")
    assert out == f"{product(recorded)}: 1 entries (1 of code that no commit has); nothing is due\n"


def test_a_renamed_case_is_orphaned_and_missing(recorded: FakeProject) -> None:
    """Both are listed, with what records the new one; taking the old one out leaves the other to do."""
    recorded.suite([OTHER])
    status, out, _ = check(recorded)
    assert status == 1
    pytest.LineMatcher(out.splitlines()).fnmatch_lines(
        [
            "*: 1 entries; 1 missing, 1 orphaned",
            f"missing   prefill/fake.a/{OTHER}: no time is stored",
            f'*pytest --update-baselines "suites/test_prefill.py::test_prefill[[]fake.a-{OTHER}]"',
            f"orphaned  prefill/fake.a/{WORKLOAD}: no case of this tree has this key*",
        ]
    )
    status, out, error = check(recorded, "--remove-orphaned")
    assert (status, "orphaned" in out) == (1, False)
    assert "1 entries removed from baselines" in error
    assert not list((recorded.path / "baselines").rglob("prefill.json"))


def test_another_policy_is_stale(recorded: FakeProject) -> None:
    """A threshold in the marker that the entry does not have."""
    recorded.suite([WORKLOAD], ", threshold=7")
    status, out, _ = check(recorded, "--on", product(recorded))
    assert status == 1
    assert "stale     prefill/fake.a/" in out
    assert "policy threshold_percent: 7.0 here, 2.0 stored" in out
    status, _, error = check(recorded, "--remove-stale")
    assert (status, "1 entries removed from baselines" in error) == (0, True)
    assert not recorded.baseline().exists()


def test_nightly_cases_are_missing_in_their_tier(recorded: FakeProject) -> None:
    """A case that a pull request's run leaves out needs no entry, unless the tier is nightly."""
    recorded.suite([WORKLOAD, OTHER], f", nightly=[{OTHER!r}]")
    status, out, _ = check(recorded)
    assert (status, out) == (0, f"{product(recorded)}: 1 entries; nothing is due\n")
    status, out, _ = check(recorded, "--tier=nightly")
    assert (status, f"missing   prefill/fake.a/{OTHER}" in out) == (1, True)


def test_what_is_not_there_is_named(
    recorded: FakeProject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown product names those that exist; a folder without any says how one comes to be."""
    monkeypatch.chdir(recorded.path)
    assert main(["baselines", "check", "--on", "sm_90/b300"]) == 2
    assert f"there are: {product(recorded)}" in capsys.readouterr().err
    assert main(["baselines", "check", "--baselines", "nowhere"]) == 2
    assert "record one with pytest --update-baselines" in capsys.readouterr().err


def test_nothing_is_removed_where_cases_are_not_known(recorded: FakeProject) -> None:
    """A file that is skipped here, and a part of the suites, say nothing of what has gone: the entry stays."""
    path = recorded.path / "suites/test_prefill.py"
    path.write_text(f"import pytest\npytest.importorskip('not_there')\n{path.read_text()}")
    status, _, error = check(recorded, "--remove-orphaned")
    assert status == 2
    assert "suites/test_prefill.py was skipped during collection" in error
    status, _, error = check(recorded, "--remove-orphaned", "--tests=suites")
    assert status == 2
    assert "other files may have cases of the same suite" in error
    assert recorded.baseline().exists()


def product(project: FakeProject) -> str:
    """The product that the project has recorded."""
    (path,) = (project.path / "baselines").glob("*/*")
    return f"{path.parent.name}/{path.name}"
