"""What `fake_device.json` can say, and what comes of it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.backends import Backend, Pinnable
from pytest_attnperf.errors import CaseFailedError, UsageError
from pytest_attnperf.measure.pinned_backend import pin_backend
from pytest_attnperf.measure.subject_protocol import Subject
from pytest_attnperf.records import NotProvenRightError, Samples
from pytest_attnperf.testing.fake.backends import FakeBackend
from pytest_attnperf.testing.fake.device import FakeDevice, FakeSubject, FakeTimedWrongError
from pytest_attnperf.workloads.prefill import Prefill

WORKLOAD = Prefill(batch=1, seq_q=64, heads=1, head_dim=16)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Where the script lies."""
    return tmp_path / "fake_device.json"


def subject(script: Path, worker: str = "worker0", top: dict[str, Any] | None = None, **backend: Any) -> FakeSubject:
    """The scripted backend in the process of that name."""
    script.write_text(json.dumps({"backends": {"fake.a": backend}, **(top or {})}))
    return FakeDevice(script, "cpu", worker).subject(FakeBackend("fake.a"), WORKLOAD, (1, 2))


def blocks(case: FakeSubject) -> Samples:
    """Checked and measured."""
    assert case.check().right
    return case.measure_blocks(30, 1000.0, 1e5)


def test_the_fakes_satisfy_the_protocols(script: Path) -> None:
    """What a worker asks of a subject and of a backend, the fakes answer."""
    assert isinstance(subject(script), Subject)
    assert isinstance(FakeBackend("fake.a"), Backend)
    assert isinstance(FakeBackend("fake.a"), Pinnable)


def test_blocks_of_one_process_agree_and_processes_differ(script: Path) -> None:
    """`block_sd` spreads the blocks of a process, `process_sd` the processes; the same process repeats itself."""
    top = {"process_sd": 0.01}
    medians = [
        statistics.median(blocks(subject(script, f"worker{n}", top, time_us=200.0, block_sd=1e-4)).block_us)
        for n in range(40)
    ]
    assert statistics.stdev(medians) / 200 == pytest.approx(0.01, rel=0.3)
    samples = blocks(subject(script, "worker7", top, time_us=200.0, block_sd=1e-4))
    assert statistics.stdev(samples.block_us) < 0.1
    assert statistics.median(samples.block_us) == medians[7]


def test_another_seed_is_another_draw(script: Path) -> None:
    """`seed` changes every process's bias."""
    first, second = (subject(script, top={"process_sd": 0.01, "seed": seed}).bias for seed in (1, 2))
    assert first != second


def test_scripted_identity_and_fingerprint(script: Path) -> None:
    """`device` sets arch and product, and adds to both parts of the fingerprint."""
    device = {"arch": "sm_90", "product": "h200", "must_match": {"power_cap_w": "700"}, "named": {"driver": "570"}}
    script.write_text(json.dumps({"device": device, "backends": {}}))
    fake = FakeDevice(script, "cpu", "w")
    assert (fake.info().arch, fake.info().product) == ("sm_90", "h200")
    assert fake.fingerprint().must_match == {"arch": "sm_90", "product": "h200", "power_cap_w": "700"}
    assert fake.fingerprint().named == {"torch": "none", "driver": "570"}


def test_one_workload_may_differ(script: Path) -> None:
    """`workloads` overrides a backend's script for single workload ids."""
    case = subject(script, time_us=100.0, workloads={WORKLOAD.id: {"time_us": 300.0}, "prefill-other": {}})
    assert statistics.median(blocks(case).block_us) == pytest.approx(300, rel=0.01)


def test_reasons_timer_and_memory_are_scripted(script: Path) -> None:
    """`supported`, `not_timed`, `timer` and `peak_memory_bytes` come back as written."""
    case = subject(script, supported=["too hard"], not_timed="interpreted", timer="graph", peak_memory_bytes=5)
    assert (case.unsupported_reasons(), case.not_timed_reason()) == (["too hard"], "interpreted")
    assert (blocks(case).timer, case.finish().peak_memory_bytes) == ("graph", 5)


@pytest.mark.parametrize(
    ("fault", "text"),
    [("wrong", "7.0x the budget at"), ("nan", "64 of 64 elements are NaN"), ("nothing", "nothing was written")],
)
def test_wrong_results_are_reported_and_not_timed(script: Path, fault: str, text: str) -> None:
    """A scripted wrong result fails the check with its own words, and its time may not be asked."""
    case = subject(script, fault=fault, error_ratio=7.0)
    (problem,) = case.check().problems
    assert text in problem
    with pytest.raises(NotProvenRightError, match="no check has passed"):
        case.measure_blocks(3, 1000.0, 1e5)


def test_wrong_only_later(script: Path) -> None:
    """'late' is right until its last replay; 'replay' is right until it is timed."""
    late = subject(script, fault="late")
    assert blocks(late).block_us
    assert not late.finish().check.right
    with pytest.raises(FakeTimedWrongError) as raised:
        blocks(subject(script, fault="replay"))
    assert not raised.value.report.right


def test_faults_of_building(script: Path) -> None:
    """'prepare' fails as a compiler does, 'oom' as memory that ran out."""
    with pytest.raises(RuntimeError, match="compile error"):
        subject(script, fault="prepare").prepare()
    with pytest.raises(CaseFailedError, match="out of memory") as raised:
        subject(script, fault="oom").prepare()
    assert raised.value.out_of_memory


@pytest.mark.parametrize(("fault", "healthy"), [("raise", True), ("poison", False)])
def test_faults_of_running(script: Path, fault: str, healthy: bool) -> None:
    """Both raise; after 'poison' the process is of no more use."""
    script.write_text(json.dumps({"backends": {"fake.a": {"fault": fault}}}))
    device = FakeDevice(script, "cpu", "w")
    with pytest.raises(RuntimeError, match="illegal memory access"):
        device.subject(FakeBackend("fake.a"), WORKLOAD, (1, 2)).check()
    assert device.healthy() is healthy


def test_a_chatty_case_fills_the_log(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """'chatter' prints more than a pipe holds, and is right."""
    assert subject(script, fault="chatter").check().right
    assert len(capsys.readouterr().out) > 1 << 16


def test_a_pinned_backend_reports_what_it_was_sent(script: Path) -> None:
    """`config` is what was chosen; a pin stands in its place and is named; what says 'refuse' cannot be replayed."""
    assert subject(script, config={"split": 8, "stages": 2}).finish().config == {"split": "8", "stages": "2"}
    pinned = FakeDevice(script, "cpu", "w").subject(
        pin_backend(FakeBackend("fake.a"), {"split": "4"}), WORKLOAD, (1, 2)
    )
    assert pinned.finish().config == {"split": "4", "stages": "2", "pinned": "as stored"}
    with pytest.raises(UsageError, match=r"fake\.a cannot replay the stored configuration: gone"):
        pin_backend(FakeBackend("fake.a"), {"refuse": "gone"})


def test_turns_are_scripted(script: Path) -> None:
    """`places` says at how many places a turn can be taken; a turn lies near `time_us`, each a little elsewhere."""
    case = subject(script, time_us=100.0, places=3)
    with pytest.raises(NotProvenRightError, match="no check has passed"):
        case.prepare_turns(2000.0)
    assert case.check().right
    assert (case.prepare_turns(2000.0).places, case.prepare_turns(2000.0).calls_per_block) == (3, 20)
    taken = [case.measure_turn(place).us for place in (0, 1, 2, 0)]
    assert taken == pytest.approx([100.0] * 4, rel=0.01)
    assert len(set(taken)) == 4


def test_a_profile_is_scripted(script: Path) -> None:
    """Five calls of what `profile` says, or of one kernel that takes all the time; 'unprofiled' sees nothing."""
    case = subject(script, time_us=100.0)
    with pytest.raises(NotProvenRightError, match="no check has passed"):
        case.profile()
    assert case.check().right
    assert [(kernel.shape.name, kernel.durations_ns) for kernel in case.profile().kernels] == [
        ("fake_kernel", (100_000,) * 5)
    ]
    several = subject(script, profile={"flash": 60_000, "cast": 30_000})
    assert several.check().right
    assert (several.profile().total_ns, several.profile().profiler_ns) == (450_000, 450_000)
    unseen = subject(script, fault="unprofiled")
    assert unseen.check().right
    with pytest.raises(CaseFailedError, match="saw no kernel"):
        unseen.profile()


def test_the_canary_is_scripted(script: Path) -> None:
    """`device.canary` holds its times; without it both take 100 us. Processes differ by a quarter of `process_sd`."""
    script.write_text(json.dumps({"backends": {}}))
    plain = FakeDevice(script, "cpu", "w").canary()
    assert {name: samples.block_us[0] for name, samples in plain.items()} == {"gemm": 100.0, "copy": 100.0}
    script.write_text(json.dumps({"backends": {}, "process_sd": 0.01, "device": {"canary": {"gemm": 50.0}}}))
    medians = [FakeDevice(script, "cpu", f"w{n}").canary()["gemm"].block_us[0] for n in range(40)]
    assert statistics.stdev(medians) / 50 == pytest.approx(0.0025, rel=0.3)


def test_the_plugin_has_its_name_of_before() -> None:
    """A conftest that names `pytest_attnperf.testing.fake_device` gets the same hooks."""
    from pytest_attnperf.testing import fake_device
    from pytest_attnperf.testing.fake import device

    hooks = [name for name in vars(device) if name.startswith("pytest_")]
    assert hooks
    assert all(getattr(fake_device, name) is getattr(device, name) for name in hooks)
