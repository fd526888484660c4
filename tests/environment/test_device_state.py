from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pytest_attnperf.environment import nvidia
from pytest_attnperf.environment.device_state import ThrottleWatch, Watch, open_throttle_counters, start_watch
from pytest_attnperf.environment.system import ProbeError, System, ThrottleReading

STATE = "GPU-cb3296dd, 1980, 3201, 41, 121.53, 700.00, {mode}, Enabled"
BEFORE = STATE.format(mode="Default") + ", 0x0000000000000001, 1000000, 0, 50 us, 0"
AFTER = "GPU-cb3296dd, 1755, 3201, 63, 690.10, 700.00, Default, Enabled, 0x0000000000000004, 3500000, 0, 50 us, 0"
OLD = STATE.format(mode="Default") + ", 0x0000000000000020"


class Smi:
    """nvidia-smi with scripted answers to the state and one to compute processes; an error is raised."""

    def __init__(self, *states: str | ProbeError, processes: str | ProbeError = "") -> None:
        self._states = iter(states)
        self._processes = processes
        self.asked: list[str] = []

    def __call__(self, command: Sequence[str]) -> str:
        """The next answer."""
        line = " ".join(command)
        self.asked.append(line)
        answer = self._processes if "--query-compute-apps" in line else next(self._states)
        if isinstance(answer, ProbeError):
            raise answer
        return answer


def watch(smi: Smi, tmp_path: Path, token: str = "0") -> Watch:
    """A watch on an NVIDIA card."""
    return start_watch(token, "cuda", System(tmp_path, smi))


def test_nvidia_before_and_after(tmp_path: Path) -> None:
    """Clocks, temperature, power and reasons are read twice, and what the counters grew by becomes seconds."""
    smi = Smi(BEFORE, AFTER)
    state = watch(smi, tmp_path, "GPU-cb3296dd").end("GPU-cb3296dd")
    assert state.before == {
        "device_id": "GPU-cb3296dd",
        "sm_clock_mhz": "1980",
        "memory_clock_mhz": "3201",
        "temperature_c": "41",
        "power_w": "121.53",
        "power_limit_w": "700",
        "compute_mode": "Default",
        "persistence_mode": "Enabled",
        "throttle_reasons": "idle",
    }
    assert state.after["sm_clock_mhz"] == "1755"
    assert state.after["throttle_reasons"] == "software power cap"
    assert state.throttled_s == {"software power cap": 2.5}
    assert (state.other_processes, state.notes) == ((), ())
    assert len(smi.asked) == 3
    assert all(line.endswith("--id=GPU-cb3296dd") for line in smi.asked)


def test_a_counter_that_went_back_is_no_throttling(tmp_path: Path) -> None:
    """A driver that was loaded anew counts from 0: a smaller counter says nothing."""
    assert watch(Smi(AFTER, BEFORE), tmp_path).end().throttled_s == {}


def test_an_older_driver_is_asked_for_less(tmp_path: Path) -> None:
    """A refused list of fields is followed by smaller ones, the end asks what was taken, and a gap is said."""
    refused = ProbeError("nvidia-smi exited with 2")
    smi = Smi(refused, refused, OLD, OLD)
    state = watch(smi, tmp_path).end()
    assert state.before["throttle_reasons"] == "software thermal slowdown"
    assert state.notes == ("this driver does not count for how long the clock was throttled",)
    assert state.throttled_s == {}
    asked = [line for line in smi.asked if "--query-gpu" in line]
    assert len(asked) == 4
    assert asked[2] == asked[3]
    assert "clocks_throttle_reasons.active" in asked[3]


def test_the_oldest_driver(tmp_path: Path) -> None:
    """A driver that knows no reasons at all still gives the rest."""
    refused = ProbeError("nvidia-smi exited with 2")
    oldest = STATE.format(mode="Default")
    state = watch(Smi(refused, refused, refused, oldest, oldest), tmp_path).end()
    assert state.before["power_w"] == "121.53"
    assert "throttle_reasons" not in state.before
    assert state.notes[0] == "this driver does not say why the clock is low"


def test_without_nvidia_smi_there_is_one_note(tmp_path: Path) -> None:
    """A missing nvidia-smi is asked once, and is one note instead of an error."""
    smi = Smi(ProbeError("nvidia-smi not found"))
    state = watch(smi, tmp_path).end("GPU-cb3296dd")
    assert state.notes == ("the state of the device and other processes on it are not known: nvidia-smi not found",)
    assert (state.before, state.after, len(smi.asked)) == ({}, {}, 1)


def test_nvidia_smi_refusing_everything_is_a_note(tmp_path: Path) -> None:
    """A card that nvidia-smi does not know refuses every query, and the last refusal is the note."""
    refused = ProbeError("nvidia-smi exited with 6")
    state = watch(Smi(refused, refused, refused, refused), tmp_path).end()
    assert state.notes == ("the state of the device and other processes on it are not known: nvidia-smi exited with 6",)


def test_nvidia_smi_failing_at_the_end_is_a_note(tmp_path: Path) -> None:
    """A card that fell off the bus during the run leaves what was read before."""
    state = watch(Smi(BEFORE, ProbeError("nvidia-smi did not answer in 5 s")), tmp_path).end()
    assert state.before["temperature_c"] == "41"
    assert state.after == {}
    assert state.notes == ("the state of the device after the run is not known: nvidia-smi did not answer in 5 s",)


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (BEFORE.rsplit(",", 2)[0], "nvidia-smi answered 'GPU-cb3296dd, 1980"),
        ("No devices were found", "nvidia-smi answered 'No devices were found' to a question for 13 fields"),
        ("", "nvidia-smi answered '' to a question for 13 fields"),
    ],
    ids=["fewer columns", "a sentence", "nothing"],
)
def test_a_strange_answer_is_a_note(tmp_path: Path, answer: str, note: str) -> None:
    """An answer with another number of columns is not guessed at."""
    state = watch(Smi(answer), tmp_path).end()
    assert state.before == {}
    assert note in state.notes[0]


def test_values_that_are_not_there_are_named(tmp_path: Path) -> None:
    """'[N/A]' and garbage leave no reading, are named in one note, and do not lose the rest."""
    answer = "GPU-1, 1980, [N/A], warm, [N/A], 700.00, Default, Enabled, active, [N/A], [N/A], [N/A], [N/A]"
    state = watch(Smi(answer, answer), tmp_path).end()
    assert state.before.keys() == {"device_id", "sm_clock_mhz", "power_limit_w", "compute_mode", "persistence_mode"}
    assert state.notes == (
        "nvidia-smi gives no memory_clock_mhz, temperature_c, power_w, throttle_reasons",
        "this driver does not count for how long the clock was throttled",
    )


def test_other_processes_are_named(tmp_path: Path) -> None:
    """Every compute process that is there before ours is named, with a comma in its name or without."""
    listed = "4711, /usr/bin/python3, 512 MiB\n4712, train, big.py, 1024 MiB\n4713, [Not Found], [N/A]\n"
    state = watch(Smi(BEFORE, AFTER, processes=listed), tmp_path).end()
    assert state.other_processes == ("4711 python3 (512 MiB)", "4712 train, big.py (1024 MiB)", "4713 [Not Found]")
    assert state.notes == ()


def test_processes_that_cannot_be_listed_are_a_note(tmp_path: Path) -> None:
    """Garbage or a refusal instead of processes is said, and the state stays."""
    state = watch(Smi(BEFORE, AFTER, processes="[Insufficient Permissions]\nmore"), tmp_path).end()
    assert state.other_processes == ()
    assert state.notes == ("nvidia-smi answered '[Insufficient Permissions]' to a question for compute processes",)
    refused = watch(Smi(BEFORE, AFTER, processes=ProbeError("nvidia-smi exited with 3")), tmp_path).end()
    assert refused.notes == ("other processes on the device are not known: nvidia-smi exited with 3",)
    assert refused.after["temperature_c"] == "63"


def test_exclusive_mode_forbids_interleaving(tmp_path: Path) -> None:
    """Exclusive_Process is said with what it forbids and the command that changes it."""
    answer = STATE.format(mode="Exclusive_Process") + ", 0x0, 0, 0, 0, 0"
    [note] = watch(Smi(answer, answer), tmp_path, "3").end().notes
    assert note.startswith("compute mode is Exclusive_Process: an interleaved second look needs two processes on one")
    assert note.endswith("nvidia-smi -i 3 -c DEFAULT")


def test_readings_of_another_card_are_said(tmp_path: Path) -> None:
    """Where CUDA's index is not nvidia-smi's, the note names both cards and the variable that makes them agree."""
    [note] = watch(Smi(BEFORE, AFTER), tmp_path).end("GPU-77777777").notes
    assert note.startswith("these readings are of GPU-cb3296dd, but the run measured on GPU-77777777: CUDA counts")
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in note


def cpu_system(root: Path, load: str, cores: int = 4) -> System:
    """A /proc of a machine with this load."""
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/loadavg").write_text(load)
    lines = ["cpu  1 2 3", *(f"cpu{core} 1 2 3" for core in range(cores)), "ctxt 5"]
    (root / "proc/stat").write_text("\n".join(lines))
    return System(root)


def test_a_quiet_cpu(tmp_path: Path) -> None:
    """The 1-minute load per core is read before and after; our own load at the end is no reason for a note."""
    started = start_watch("", "cpu", cpu_system(tmp_path, "2.00 1.50 1.00 2/300 4711\n"))
    cpu_system(tmp_path, "4.00 1.50 1.00 2/300 4711\n")
    state = started.end()
    assert (state.before, state.after) == ({"load_per_core": "0.50"}, {"load_per_core": "1.00"})
    assert (state.notes, state.throttled_s, state.other_processes) == ((), {}, ())


def test_a_busy_cpu_is_said(tmp_path: Path) -> None:
    """A load above half the cores before the run is a note."""
    state = start_watch("", "cpu", cpu_system(tmp_path, "2.40 1.50 1.00 2/300 4711\n")).end()
    assert state.notes == (
        "the 1-minute load before the run was 0.60 per core, above 0.5: another job may disturb timings",
    )


@pytest.mark.parametrize("load", [None, "", "busy"])
def test_a_load_that_cannot_be_read_is_a_note(tmp_path: Path, load: str | None) -> None:
    """No /proc/loadavg, or one that holds something else, is a note."""
    system = System(tmp_path) if load is None else cpu_system(tmp_path, load)
    [note] = start_watch("", "cpu", system).end().notes
    assert note.startswith("the state of the device and other processes on it are not known: /proc/loadavg")


def test_the_load_of_this_machine() -> None:
    """On the machine that runs this test the load is a number."""
    state = start_watch("", "cpu").end()
    assert float(state.before["load_per_core"]) >= 0


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [(["nvidia0", "nvidiactl"], "cuda"), (["nvidia3", "kfd"], "cuda"), (["kfd"], "rocm"), (["nvidiactl"], "cuda")],
)
def test_the_vendor_of_a_gpu_is_found(tmp_path: Path, nodes: list[str], kind: str) -> None:
    """Where the kind is only 'gpu', the device nodes say whose it is."""
    (tmp_path / "dev").mkdir()
    for node in nodes:
        (tmp_path / "dev" / node).touch()
    assert start_watch("0", "gpu", System(tmp_path, Smi(BEFORE))).kind == kind


def test_without_a_kind_the_token_says_it(tmp_path: Path) -> None:
    """A token is a GPU's, and none is the CPU."""
    assert start_watch("0", system=System(tmp_path, Smi(BEFORE))).kind == "cuda"
    assert start_watch("", system=cpu_system(tmp_path, "0.1 0.1 0.1 1/2 3")).end().before == {"load_per_core": "0.03"}


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    """A kind that is none is an error that lists those that are."""
    with pytest.raises(ValueError, match="unknown kind 'tpu'; known: cpu, cuda, rocm, gpu"):
        start_watch("0", "tpu", System(tmp_path))


@pytest.mark.gpu
def test_this_gpu_is_read() -> None:
    """On a real GPU clock, temperature and power are known before and after."""
    from pytest_attnperf.environment.gpu_tokens import visible_gpus_here

    state = start_watch(visible_gpus_here()[0], "gpu").end()
    for reading in (state.before, state.after):
        assert reading.keys() >= {"temperature_c", "power_w", "memory_clock_mhz"}
        assert reading.keys() & {"sm_clock_mhz", "shader_clock_mhz"}


def readings(*taken: ThrottleReading | ProbeError) -> Iterator[ThrottleReading | ProbeError]:
    """Readings in order."""
    return iter(taken)


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        (
            ThrottleReading({"cap": 10.0, "heat": 5.0}, 0.0),
            ThrottleReading({"cap": 60.0, "heat": 5.0}, 200.0),
            {"cap": 0.5},
        ),
        (ThrottleReading({"cap": 10.0}, 0.0), ThrottleReading({"cap": 10.0}, 200.0), {}),
        (ThrottleReading({}, 0.0), ThrottleReading({}, 200.0), {}),
        (ThrottleReading({"cap": 0.0}, 0.0), ThrottleReading({"cap": 900.0}, 200.0), {"cap": 2.0}),
        (ThrottleReading({}, 0.0), ThrottleReading({"cap": 900.0}, 200.0), {}),
        (ThrottleReading({"cap": 10.0}, 0.0), ThrottleReading({"cap": 5.0}, 200.0), None),
        (ThrottleReading({"cap": 10.0}, 200.0), ThrottleReading({"cap": 20.0}, 200.0), None),
        (ProbeError("gone"), ThrottleReading({"cap": 20.0}, 200.0), None),
        (ThrottleReading({"cap": 10.0}, 0.0), ProbeError("gone"), None),
    ],
)
def test_throttled_seconds_are_the_share_of_the_span(
    before: ThrottleReading | ProbeError, after: ThrottleReading | ProbeError, seconds: dict[str, float] | None
) -> None:
    """A quarter of the counts is a quarter of the two seconds, and never more than all; what did not grow is left out.
    Counters that went back, stood still or vanished say nothing, which is not the same as no throttling."""
    taken = readings(before, after)

    def read() -> ThrottleReading:
        found = next(taken)
        if isinstance(found, ProbeError):
            raise found
        return found

    times = iter([100.0, 102.0])
    assert ThrottleWatch(read, lambda: next(times)).end() == seconds


def test_without_counters_nothing_is_known() -> None:
    """A device that counts nothing gives None."""
    assert ThrottleWatch(None).end() is None


def test_counters_are_those_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's come from NVML by UUID, AMD's from the table of metrics; a CPU, a GPU without a UUID, and what cannot
    be read have none."""
    asked: list[str] = []

    class Counters:
        def __init__(self, device_id: str) -> None:
            asked.append(device_id)
            if device_id == "GPU-lost":
                raise ProbeError("NVML: device by UUID returned 6")

        def read(self) -> ThrottleReading:
            return ThrottleReading({}, 1.0)

    monkeypatch.setattr(nvidia, "NvmlCounters", Counters)
    system = System(tmp_path)
    assert open_throttle_counters("cuda", "GPU-1", system) is not None
    found = [open_throttle_counters(*each, system) for each in (("cuda", "GPU-lost"), ("cuda", ""), ("cpu", ""))]
    assert found == [None, None, None]
    assert asked == ["GPU-1", "GPU-lost"]
    assert open_throttle_counters("rocm", "0000:c1:00.0", system) is None
    card = tmp_path / "sys/bus/pci/devices/0000:c1:00.0"
    card.mkdir(parents=True)
    numbers = struct.pack("<HBB", 200, 1, 6).ljust(104, b"\0") + struct.pack("<6I", 9, 1, 2, 3, 4, 5)
    (card / "gpu_metrics").write_bytes(numbers.ljust(200, b"\0"))
    read = open_throttle_counters("rocm", "0000:c1:00.0", system)
    assert read is not None
    assert read().counts["power cap"] == 2.0
