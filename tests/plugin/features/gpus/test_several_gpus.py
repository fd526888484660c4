"""Runs over several cards, typed as a user types them, on the fake device's cards."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pytest_attnperf.environment.cards import Card, cards_of, lease_gpu
from pytest_attnperf.plugin.config import RUN_CONFIG, RunConfig
from pytest_attnperf.plugin.features.gpus import gpu_choice, several_gpus
from pytest_attnperf.plugin.features.gpus.gpu_choice import merge_device_states
from pytest_attnperf.plugin.features.gpus.several_gpus import heap_of, next_test, refuse_workers
from pytest_attnperf.plugin.features.gpus.xdist_gpus import Handed, busy_text, find_worker_gpus, lease_in_worker
from pytest_attnperf.plugin.options import XDIST_GPUS
from pytest_attnperf.records.gpus import DeviceState
from pytest_attnperf.session.settings import RunMode
from pytest_attnperf.testing.project import FakeProject
from pytest_attnperf.workers.launch import VISIBLE_DEVICES

LENGTHS = (16, 32, 48)
WRONG = "prefill-b1-s16-h1-d16-f16"

ASKS_FOR_CARD_1 = """
import os
from pytest_attnperf.environment.cards import GpuBusyError, lease_gpu
def pytest_unconfigure():
    if "PYTEST_XDIST_WORKER" in os.environ:
        try:
            lease_gpu(["1"])
        except GpuBusyError:
            open("asked.txt", "a").write(os.environ["PYTEST_XDIST_WORKER"] + " ")
pytest_unconfigure()
"""
"""In a conftest: which workers of xdist were loading it, or had finished, while the card was held."""


@pytest.fixture
def cards(attnperf_project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> FakeProject:
    """Two cards that no other test can lease, and three cases."""
    folder = attnperf_project.path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    attnperf_project.suite([f"prefill-b1-s{length}-h1-d16-f16" for length in LENGTHS])
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.device(gpus=2)
    return attnperf_project


@pytest.fixture
def beside_xdist(own_process: None, cards: FakeProject, forked_workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of other plugins only pytest-xdist is loaded: every process that is started takes as long as it imports."""
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    cards.conftest(forked_workers)


def processes_by_card(case: dict[str, Any]) -> list[int]:
    """How many processes of a case measured on each card, fewest first; places follow each other on other cards."""
    took = [process["device_id"] for process in case["first"]]
    assert all(one != other for one, other in itertools.pairwise(took))
    return sorted(Counter(took).values())


def verdicts(project: FakeProject) -> dict[str, str]:
    """Of the last run, by workload."""
    return {case["key"]["workload"]: case["verdict"] for case in project.results()["cases"]}


SAYS_ITS_CARD = """
import os
if "ATTNPERF_WORKER" in os.environ:
    def pytest_runtest_setup(item):
        print("forked by", os.getppid(), "on", os.environ["CUDA_VISIBLE_DEVICES"], os.environ["HIP_VISIBLE_DEVICES"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every worker is started afresh")
def test_workers_that_are_forked_have_their_own_card(cards: FakeProject, beside_xdist: None) -> None:
    """Both workers of xdist have a template of their own, from which processes on either card are forked."""
    cards.conftest(SAYS_ITS_CARD)
    cards.device(gpus=2, forks=True)
    result = cards.run("--update-baselines", "-n", "2", "--attnperf-device=gpu")
    assert result.ret == 0, result.stdout.str()
    logs = [log.read_text() for log in (cards.path / ".attnperf" / "logs").glob("*/worker*.log")]
    said = {tuple(line.split()) for log in logs for line in log.splitlines() if line.startswith("forked by")}
    templates, used = {words[2] for words in said}, {words[4:] for words in said}
    assert used == {("0", "0"), ("1", "1")}
    assert len(templates) == 2
    stored = [processes_by_card(case) for case in cards.results()["cases"]]
    assert stored == [[3, 4]] * len(LENGTHS)


def test_two_gpus_say_what_one_says(cards: FakeProject, beside_xdist: None) -> None:
    """With -n auto every baseline has processes on every card and is written once; a gate's verdicts are one card's."""
    result = cards.run("--update-baselines", "-n", "auto")
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["*2 workers*", "measured on 2 GPUs: fake-0 (3 cases), fake-1 (3 cases)"])
    assert [processes_by_card(case) for case in cards.results()["cases"]] == [[3, 4]] * len(LENGTHS)
    assert cards.results()["baseline_paths"] == ["baselines/fake/fake1/prefill.json"]
    cards.backend("fake.a", time_us=100.0, workloads={WRONG: {"fault": "wrong"}})
    cards.run("--attnperf", "-n", "auto").assert_outcomes(passed=2, failed=1)
    on_two = verdicts(cards)
    assert [gpu["device_id"] for gpu in cards.results()["gpus"]] == ["fake-0", "fake-1"]
    cards.run("--attnperf", "--attnperf-pin-gpu=1").assert_outcomes(passed=2, failed=1)
    assert on_two == verdicts(cards) == {**dict.fromkeys(on_two, "SAME"), WRONG: "INCORRECT"}
    assert [(gpu["device_id"], gpu["cases"]) for gpu in cards.results()["gpus"]] == [("fake-1", 2)]


def test_a_further_card_has_what_cards_do_in_its_noise(cards: FakeProject) -> None:
    """A card that recorded nothing and is 3 % slower than the only one that did is not SLOWER; a slowdown of 10 % on it
    is. On the card that recorded 3 % are SLOWER as ever."""
    cards.suite([WRONG])
    cards.run("--update-baselines", "--attnperf-pin-gpu=0")
    cards.device(gpus=2, card_bias={"1": 1.03})
    assert cards.run("--attnperf", "--attnperf-pin-gpu=1").ret == 0
    assert verdicts(cards) == {WRONG: "UNDECIDED"}
    (case,) = cards.results()["cases"]
    assert case["card_error"] > 0
    assert any("as between four H200s: no baseline here is stored from several" in why for why in case["reasons"])
    cards.backend("fake.a", time_us=107.0)
    assert cards.run("--attnperf", "--attnperf-pin-gpu=1").ret == 1
    assert verdicts(cards) == {WRONG: "SLOWER"}
    cards.backend("fake.a", time_us=103.5)
    assert cards.run("--attnperf", "--attnperf-pin-gpu=0").ret == 1
    assert verdicts(cards) == {WRONG: "SLOWER"}


def test_a_worker_that_dies_gives_its_gpu_to_the_next(
    cards: FakeProject, beside_xdist: None, forked_workers: str
) -> None:
    """xdist replaces gw0 by gw1, which leases the very card that died with it, before a conftest is loaded, and holds
    it until its process ends, because others may record there still; the case that died is missed.
    """
    cards.suite([WRONG, "prefill-b1-s32-h1-d16-f16"])
    cards.conftest(forked_workers + ASKS_FOR_CARD_1)
    (cards.path / "suites" / "conftest.py").write_text(
        "import os, signal\n"
        "def pytest_runtest_setup(item):\n"
        "    if 's16' in item.name:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    result = cards.run("--attnperf", "-n1", "--attnperf-pin-gpu=1")
    result.stdout.fnmatch_lines(["replacing crashed worker gw0"])
    result.stdout.fnmatch_lines(["incomplete: 1 of 2 selected cases have a result"])
    assert verdicts(cards) == {"prefill-b1-s32-h1-d16-f16": "NO_BASELINE"}
    assert [gpu["device_id"] for gpu in cards.results()["gpus"]] == ["fake-1"]
    assert (cards.path / "asked.txt").read_text() == "gw0 gw1 gw1 "


def test_leased_cards_are_left_alone(cards: FakeProject) -> None:
    """A gate takes the card that is free, a recording says which one it lacks, and a pin to one that is held ends."""
    cards.suite([WRONG])
    held = lease_gpu(["0"])
    cards.run("--attnperf")
    assert [gpu["device_id"] for gpu in cards.results()["gpus"]] == ["fake-1"]
    cards.run("--attnperf-calibrate=2").stdout.fnmatch_lines(
        ["recorded without 1 of 2 GPUs, which another run had leased: 0"]
    )
    result = cards.run("--attnperf", "--attnperf-pin-gpu=0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no free GPU: 1 visible GPU (0), every one leased by another run*"])
    result = cards.run("--attnperf-together")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--attnperf-together: 1 of 2 GPUs (0) leased by another run*"])
    held.release()
    cards.run("--attnperf-calibrate=2")
    assert [processes_by_card(case) for case in cards.results()["cases"]] == [[1, 1]]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--attnperf-together", "--attnperf"], "--attnperf with --attnperf-together: it only shows how cards disturb"),
        (["--attnperf-together", "--attnperf-warm"], "--attnperf-warm with --attnperf-together"),
        (["--attnperf-together", "--attnperf-budget=10m"], "--attnperf-budget with --attnperf-together: it judges"),
        (["--attnperf-together", "--attnperf-isolate=none"], "needs a process on each GPU; drop --attnperf-isolate"),
        (["--attnperf-together", "--attnperf-pin-gpu=1"], "needs at least 2 GPUs * this run sees 1; see CUDA_VISIBLE"),
        (["--attnperf", "--attnperf-pin-gpu=7"], "--attnperf-pin-gpu=7: '7' is no visible GPU; there are: 0; 1"),
        (["--attnperf", "--attnperf-pin-gpu=,"], "--attnperf-pin-gpu=,: '' is no visible GPU; there are: 0; 1"),
        (["--attnperf-pin-gpu=1", "--attnperf-isolate=none"], "-pin-gpu=1 says where workers run, *starts none; drop"),
    ],
)
def test_what_contradicts_itself_is_refused(cards: FakeProject, typed: list[str], said: str) -> None:
    """Each with the reason and the way out."""
    result = cards.run(*typed)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert any(line.startswith("ERROR: ") for line in result.errlines)
    result.stderr.fnmatch_lines([f"*{said.replace('[', '[[]')}*"])


def test_a_cpu_has_no_card_to_pin(attnperf_project: FakeProject) -> None:
    """The error says why there is no GPU."""
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run("--attnperf-pin-gpu=0", "--attnperf-device=cpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--attnperf-pin-gpu=0: no GPU is visible: --attnperf-device=cpu*"])


@pytest.mark.parametrize(
    ("gpus", "dist", "tx", "said"),
    [
        (2, "load", ["popen"] * 2, ""),
        (0, "load", ["popen"], ""),
        (2, "no", ["3*popen"], ""),
        (2, "load", ["popen"] * 3, "-n 3 with --attnperf, but 2 visible GPUs: timings of workers that share a device"),
        (2, "worksteal", ["2*popen", "popen//chdir=a*b"], "-n 3 with --attnperf, but 2 visible GPUs"),
        (0, "load", ["popen"] * 2, "-n 2 with --attnperf, but one CPU: .* use -n 1 or no -n"),
        (2, "each", ["popen"], "--dist each with --attnperf: every worker would measure every case"),
    ],
)
def test_two_workers_on_one_gpu(
    monkeypatch: pytest.MonkeyPatch, gpus: int, dist: str, tx: list[str], said: str
) -> None:
    """Workers of xdist are counted as it counts them, and more of them than devices are refused."""
    monkeypatch.setattr(several_gpus, "usable_cards", lambda config: [Card(str(i), str(i)) for i in range(gpus)])
    given = {"dist": dist, "tx": tx}
    config: Any = SimpleNamespace(getoption=lambda name, default=None: given.get(name, default), stash=pytest.Stash())
    config.stash[RUN_CONFIG] = RunConfig(gate=True)
    if not said:
        refuse_workers(config)
        return
    with pytest.raises(pytest.UsageError, match=said):
        refuse_workers(config)


@pytest.mark.parametrize("ours", [True, False])
def test_a_worker_is_shown_its_card_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: bool) -> None:
    """What a controller hands down is for its own workers: one leases a card, and sees no other from then on."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pid = os.getppid() if ours else os.getpid()
    handed = Handed(pid, (Card("GPU-a", "0", name="a"), Card("GPU-b", "1", name="b")), 2, own_device=False)
    monkeypatch.setenv(XDIST_GPUS, msgspec.json.encode(handed).decode())
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw3")
    for name in VISIBLE_DEVICES:
        monkeypatch.setenv(name, "0,1")
    config: Any = SimpleNamespace(stash=pytest.Stash())
    lease_in_worker(config)
    held = find_worker_gpus(config)
    assert {os.environ[name] for name in VISIBLE_DEVICES} == {"GPU-b" if ours else "0,1"}
    assert (held is not None) is ours
    if held is not None:
        assert held.cards == handed.cards
        held.lease.release()


def test_gpus_that_another_run_took_meanwhile() -> None:
    """Of a worker's traceback the run says what was missing, and of any other end nothing."""
    said = busy_text("Traceback:\n  raise\npytest.UsageError: no free GPU: 1 visible GPU (0), every one leased\n")
    assert said == "no free GPU: 1 visible GPU (0), every one leased"
    assert busy_text("Not properly terminated") == busy_text(None) == ""


def test_checks_are_spread_over_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of a run that times nothing lease no card, and take them in turn."""
    monkeypatch.setattr(gpu_choice, "own_gpus", lambda config: (Card("0", "0"),))
    monkeypatch.setattr(gpu_choice, "usable_gpus", lambda config: ("0", "1", "2"))
    for worker, token in (("gw0", "0"), ("gw4", "1"), ("named", "0")):
        config: Any = SimpleNamespace(stash=pytest.Stash(), workerinput={"workerid": worker})
        assert gpu_choice.choose_gpus(config, RunMode.CHECK) == gpu_choice.GpuChoice((token,))


def test_readings_of_several_cards_say_of_which() -> None:
    """What holds a card back is said with its name; a note on all of them is said once."""
    state = merge_device_states(
        {
            "GPU-a": DeviceState({"power_w": "1"}, {"power_w": "2"}, {"power cap": 1.5}, notes=("same", "mine")),
            "GPU-b": DeviceState({"power_w": "3"}, {}, {}, ("12 python",), ("same",)),
        }
    )
    assert state == DeviceState(
        {"power_w on GPU-a": "1", "power_w on GPU-b": "3"},
        {"power_w on GPU-a": "2"},
        {"power cap on GPU-a": 1.5},
        ("12 python on GPU-b",),
        ("same", "GPU-a: mine"),
    )
    assert cards_of([], {}) == ()


BACKENDS = ("native.eager", "triton.flash", "hip.best")
TESTS = [
    f"suites/test_prefill.py::test_prefill[{backend}-prefill-b1-s{number}-h1-d16-f16]"
    for number in range(8)
    for backend in BACKENDS
]
"""As pytest collects them: workload by workload, with all backends of each."""


def dealt_out(workers: int) -> list[list[str]]:
    """What each worker runs where all cases take the same time."""
    pending = list(range(len(TESTS)))
    ran: list[list[str]] = [[] for _ in range(workers)]
    at = [""] * workers
    while pending:
        for worker in range(workers):
            if pending:
                others = {at[other] for other in range(workers) if other != worker}
                test = next_test(pending, lambda index: heap_of(TESTS[index]), at[worker], others)
                pending.remove(test)
                at[worker] = heap_of(TESTS[test])
                ran[worker].append(TESTS[test])
    return ran


def test_a_worker_stays_with_its_backend_and_helps_at_the_end() -> None:
    """Two workers share three backends: each begins one, both end together, and the order of workloads stays."""
    ran = dealt_out(2)
    assert [len(tests) for tests in ran] == [12, 12]
    for tests in ran:
        backends = [heap_of(test).partition("[")[2] for test in tests]
        assert len(set(backends)) == 2
        assert backends == sorted(backends, key=backends.index)
        assert tests[:8] == [test for test in TESTS if heap_of(test) == heap_of(tests[0])]


def test_every_test_is_dealt_out_once() -> None:
    """More workers than backends share one, and nothing is lost or run twice."""
    for workers in (1, 4, 30):
        ran = [test for tests in dealt_out(workers) for test in tests]
        assert sorted(ran) == sorted(TESTS)


def test_a_test_without_parameters_is_a_heap_of_its_own() -> None:
    """Ordinary tests beside cases have no backend."""
    assert heap_of("test_other.py::test_plain") != heap_of("test_other.py::test_other")
