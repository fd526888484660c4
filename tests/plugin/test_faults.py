"""A case that breaks is an ERROR with its cause; the rest of the run has its verdicts."""

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

from pytest_attnperf.testing.project import FakeProject

BROKEN = {
    "fake.abort": ({"fault": "crash"}, "crash", "fake_kernel", "*killed by SIGABRT*"),
    "fake.assert": ({"fault": "assert"}, "device assert", "fake_kernel", "*device assert in kernel fake_kernel: *"),
    "fake.compile": ({"fault": "prepare"}, None, None, "*scripted compile error in kernel fake_kernel.cu:7*"),
    "fake.kill": (
        {"fault": "kill", "fault_at": "block"},
        "killed",
        "",
        "*no kernel named (a second run, which waited for every launch, had no fault*",
    ),
    "fake.memory": ({"fault": "oom"}, "out of memory", "", "*out of memory: tried to allocate 8.00 GiB*"),
    "fake.poison": ({"fault": "poison"}, "illegal address", "fake_kernel", "*illegal address in kernel fake_kernel: *"),
    "fake.raise": ({"fault": "raise"}, "illegal address", "", "*an illegal memory access was encountered*"),
}
"""Backends: their scripts, the kind and the kernel of the fault that is found, and what is printed."""


def test_a_broken_case_is_an_error_and_the_rest_runs(attnperf_project: FakeProject) -> None:
    """Each fault becomes ERROR with its cause and, where a second run or the error itself names it, its kernel; what
    the dying process printed is shown; the healthy case behind them is judged, and the run fails."""
    for name, (script, *_) in BROKEN.items():
        attnperf_project.backend(name, **script)
    attnperf_project.backend("fake.z", time_us=50.0)
    result = attnperf_project.run("--attnperf")
    assert result.ret == 1
    for *_, text in BROKEN.values():
        result.stdout.fnmatch_lines([text])
    result.stdout.fnmatch_lines(["*scripted abort in kernel fake_kernel*"])
    assert attnperf_project.verdicts() == {**dict.fromkeys(BROKEN, "ERROR"), "fake.z": "NO_BASELINE"}
    found = {case["key"]["backend"]: case["fault"] for case in attnperf_project.results()["cases"]}
    assert {name: fault and (fault["kind"], fault["kernel"]) for name, fault in found.items()} == {
        **{name: (kind, kernel) if kind else None for name, (_, kind, kernel, _) in BROKEN.items()},
        "fake.z": None,
    }


def test_a_hang_is_an_error_at_the_limit(attnperf_project: FakeProject) -> None:
    """A backend that never returns, in C with signals ignored, is given up at --attnperf-case-limit; the rest runs."""
    attnperf_project.backend("fake.a", fault="stuck")
    attnperf_project.backend("fake.b", time_us=50.0)
    result = attnperf_project.run("--attnperf", "--attnperf-case-limit=3")
    result.stdout.fnmatch_lines(["hang in kernel fake_kernel: *did not answer 'check' within 3 s*"])
    assert attnperf_project.verdicts() == {"fake.a": "ERROR", "fake.b": "NO_BASELINE"}


def test_a_body_that_fails_after_the_rendezvous_is_an_error(attnperf_project: FakeProject) -> None:
    """The rest of the test's body runs in the worker; its assert fails the user's test with its text."""
    attnperf_project.backend("fake.a", time_us=100.0)
    suite = attnperf_project.path / "suites" / "test_prefill.py"
    suite.write_text(suite.read_text() + "    assert workload.seq_q == 65, 'the body goes on'\n")
    result = attnperf_project.run("--attnperf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the body goes on*"])


def test_a_body_without_a_rendezvous_is_an_error(attnperf_project: FakeProject) -> None:
    """A case that never calls run() proves nothing and says so."""
    attnperf_project.backend("fake.a", time_us=100.0)
    suite = attnperf_project.path / "suites" / "test_prefill.py"
    suite.write_text(suite.read_text().replace("attnperf.run(backend, workload)", "pass"))
    result = attnperf_project.run("--attnperf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*without calling attnperf.run() or attnperf.gate()*"])


def test_a_skip_in_the_body_is_a_skip(attnperf_project: FakeProject) -> None:
    """pytest.skip() inside the body reaches the user's report with its reason."""
    attnperf_project.backend("fake.a", time_us=100.0)
    suite = attnperf_project.path / "suites" / "test_prefill.py"
    suite.write_text(suite.read_text().replace("attnperf.run(backend, workload)", "pytest.skip('not on Sundays')"))
    result = attnperf_project.run("--attnperf", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*not on Sundays*"])


def test_an_interrupt_keeps_results_and_leaves_baselines_alone(attnperf_project: FakeProject) -> None:
    """Ctrl-C in the second case: the first one's result is on disk, no baseline changes, no worker is left."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.backend("fake.b", fault="hang")
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "--update-baselines", "suites/"]
    process = subprocess.Popen(command, cwd=attnperf_project.path, stdout=subprocess.PIPE, text=True)
    journals = attnperf_project.path / ".attnperf" / "journal"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(
        path.read_text().count("\n") > 1 for path in journals.glob("*.jsonl")
    ):
        time.sleep(0.05)
    workers = _worker_pids(process.pid)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2, output
    run = attnperf_project.results()
    assert [case["verdict"] for case in run["cases"]] == ["RECORDED"]
    assert workers
    assert run["complete"] is False
    assert "interrupted: no baseline was written" in run["findings"]
    assert not attnperf_project.baseline().exists()
    assert not _worker_pids(process.pid)
    assert not [pid for pid in workers if _runs(pid)]


def test_killing_the_controller_kills_its_workers(attnperf_project: FakeProject) -> None:
    """kill -9 of the user's pytest leaves no worker holding the device."""
    attnperf_project.backend("fake.a", fault="hang")
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "--attnperf", "suites/"]
    process = subprocess.Popen(command, cwd=attnperf_project.path, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (workers := _worker_pids(process.pid)):
        time.sleep(0.1)
    time.sleep(1.0)
    process.kill()
    process.wait()
    assert workers
    deadline = time.monotonic() + 60  # one that has only just started ends when it finds nobody to talk to
    while time.monotonic() < deadline and any(map(_runs, workers)):
        time.sleep(0.1)
    assert not [pid for pid in workers if _runs(pid)]


def _worker_pids(parent: int) -> list[int]:
    """Children of that process that are workers, from /proc: a bare machine has no ps."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, ppid = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            if int(ppid) == parent and state != "Z" and b"worker_session" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def test_a_suite_that_only_workers_cannot_collect_is_tried_twice(attnperf_project: FakeProject) -> None:
    """Each case is an ERROR with the worker's log, and workers are not started again for every one of them."""
    for name in ("fake.a", "fake.b", "fake.c", "fake.d"):
        attnperf_project.backend(name, time_us=10.0)
    attnperf_project.conftest(
        "def pytest_collection_modifyitems(config):\n"
        "    if config.getoption('attnperf_worker_fd') is not None:\n"
        "        raise RuntimeError('only in a worker')\n"
    )
    result = attnperf_project.run("--attnperf")
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(["*only in a worker*"])
    assert len(list((attnperf_project.path / ".attnperf" / "logs").glob("*/worker*.log"))) == 2
