import os
from pathlib import Path

from pytest_attnperf.plugin.launching import KEPT_RUNS, _remove_old_logs
from pytest_attnperf.testing.project import FakeProject

NO_PROCESS = 4_194_305
"""Above Linux's largest process id."""


def test_old_logs_go_and_those_of_running_sessions_stay(tmp_path: Path) -> None:
    """The last few ended runs are kept, and every run whose process lives, however old it is."""
    running = tmp_path / f"20000101-000000-{os.getpid()}"
    ended = [tmp_path / f"20200101-00000{index}-{NO_PROCESS}" for index in range(KEPT_RUNS + 2)]
    for folder in (running, *ended):
        folder.mkdir()
    _remove_old_logs(tmp_path)
    assert running.is_dir()
    assert sorted(path for path in tmp_path.iterdir() if path != running) == ended[2:]


def test_the_reproducing_command_repeats_what_was_typed(attnperf_project: FakeProject) -> None:
    """A workload of the command line exists only there: without it the printed command would collect nothing."""
    attnperf_project.backend("fake.a", fault="wrong")
    attnperf_project.run("--attnperf", "--attnperf-workload=s=32, h=1, d=16", "--attnperf-override=threshold=3")
    reproduce = attnperf_project.results()["cases"][0]["reproduce"]
    assert "--attnperf-workload='s=32, h=1, d=16'" in reproduce
    assert "--attnperf-override=threshold=3" in reproduce
    assert "--attnperf-seed=" in reproduce
