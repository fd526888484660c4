from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.baselines.ceilings_store import CeilingsStore, ceilings_for, compute_median_ceilings
from pytest_attnperf.cli.option_groups import settle_all
from pytest_attnperf.cli.program import build_parser
from pytest_attnperf.environment import gpu_tokens
from pytest_attnperf.environment.cards import GpuBusyError, lease_gpu
from pytest_attnperf.environment.device_specs import all_specs, spec_for
from pytest_attnperf.errors import BaselineError, UsageError, WorkerError
from pytest_attnperf.measure.ceiling_walk import BYTES, FLOPS, US, CeilingFigure
from pytest_attnperf.measure.ceilings import ProcessCeilings
from pytest_attnperf.records import DeviceInfo, Fingerprint
from pytest_attnperf.records.gpus import DeviceState
from pytest_attnperf.tools.doctor import calibrating as module
from pytest_attnperf.tools.doctor.calibrating import (
    CeilingProcesses,
    calibrate_device,
    conclude,
    find_impossible,
    find_peak,
)

H200 = DeviceInfo("cuda", "sm_90", "h200", "NVIDIA H200", compute_units=132)
FIGURES = {
    "f16": CeilingFigure(7e14, FLOPS, "8192 x 8192 x 8192", 1500.0),
    "f32": CeilingFigure(5e13, FLOPS, "4096 x 4096 x 4096"),
    "tf32": CeilingFigure(4e14, FLOPS, "8192 x 8192 x 8192"),
    "f16 oblong": CeilingFigure(6e14, FLOPS, "8192 x 2048 x 8192"),
    "copy": CeilingFigure(4.2e12, BYTES, "2048 MiB, Tensor.copy_"),
    "read": CeilingFigure(4.4e12, BYTES, "2048 MiB, torch.sum", note="a lower bound of what can be read"),
    "cache": CeilingFigure(6e12, BYTES, "8 MiB, Tensor.copy_"),
    "launch": CeilingFigure(1.5, US, "torch.add of 1 element, graph of 400"),
    "eager launch": CeilingFigure(3.2, US, "torch.add of 1 element, 1000 calls from Python"),
}
STATE = DeviceState(before={"sm_clock_mhz": "1980", "power_w": "75"}, after={"sm_clock_mhz": "1755", "power_w": "600"})


def process(device: DeviceInfo = H200, **figures: float) -> ProcessCeilings:
    """What a process of an H200 might find, some figures changed."""
    changed = {name: replace(FIGURES[name], value=value) for name, value in figures.items()}
    fingerprint = Fingerprint({"power_cap_w": "700"}, {"torch": "2.11"})
    return ProcessCeilings(device, fingerprint, {**FIGURES, **changed}, {"f8e4m3": "torch refuses it here"})


def parsed(*arguments: str) -> argparse.Namespace:
    """Options as the command line gives them."""
    options = build_parser(["doctor"]).parse_args(["doctor", "--calibrate", *arguments])
    settle_all(options, options.dependent)
    return options


def concluded(found: Sequence[ProcessCeilings], capsys: Any, *arguments: str) -> tuple[int, str]:
    """Exit status and what is printed of what these processes found."""
    return conclude(found, STATE, parsed(*arguments)), capsys.readouterr().out


def test_the_table(tmp_path: Path, capsys: Any) -> None:
    """A line for each figure: median, size, spread, share of the peak, clock; the source and the state stand above."""
    found = [process(), process(f16=7.07e14), process(f16=6.93e14)]
    status, said = concluded(found, capsys, "--baselines", str(tmp_path))
    lines = said.splitlines()
    assert status == 0
    assert lines[0].startswith("NVIDIA H200 (sm_90, 132 compute units): medians of 3 fresh processes; spread:")
    [f16] = [line.split() for line in lines if line.startswith("f16 ") and "oblong" not in line]
    assert f16 == ["f16", "700", "TFLOP/s", "8192", "x", "8192", "x", "8192", "2.0", "%", "65", "%", "1500"]
    [copy] = [line.split() for line in lines if line.startswith("copy")]
    assert copy[-5:] == ["0.0", "%", "87", "%", "-"]
    assert "power cap: 700 W" in lines
    assert "device before -> after: sm_clock_mhz 1980 -> 1755, power_w 75 -> 600" in lines
    assert "left out: f8e4m3: torch refuses it here" in lines
    assert "peaks: H200" in said
    assert f"stored in {tmp_path / 'sm_90' / 'h200' / 'ceilings' / '132.json'}" in lines
    assert "good" not in said.lower()
    stored = ceilings_for(tmp_path, H200)
    assert stored is not None
    assert stored.flops_per_s == {"f16": 7e14, "f32": 5e13, "tf32": 4e14}


def test_json_in_a_file(tmp_path: Path, capsys: Any) -> None:
    """`--json FILE` writes the object beside the table, and says so on standard error."""
    file = tmp_path / "found.json"
    assert conclude([process()], STATE, parsed("--dry-run", "--json", str(file))) == 0
    said = capsys.readouterr()
    assert said.out.startswith("NVIDIA H200")
    assert said.err == f"written: {file}\n"
    assert json.loads(file.read_text())["device"]["product"] == "h200"


def test_fp32_is_not_held_to_the_rate_of_tf32(tmp_path: Path, capsys: Any) -> None:
    """Products in fp32 get no share of a peak that is TF32's; those in TF32 do, and cache and launches have none."""
    _, said = concluded([process(), process()], capsys, "--baselines", str(tmp_path))
    shares = {
        line.split()[0]: line.split()[-3:-1] for line in said.splitlines() if line[:4] in ("f32 ", "tf32", "cach")
    }
    assert shares == {"f32": ["%", "-"], "tf32": ["75", "%"], "cache": ["%", "-"]}


def test_an_impossible_figure_is_refused(tmp_path: Path, capsys: Any) -> None:
    """A figure more than 3 % above the data sheet's peak is neither printed as reached nor stored, and fails."""
    found = [process(), process(), process(copy=5.2e12, read=4.9e12)]
    status, said = concluded(found, capsys, "--baselines", str(tmp_path))
    assert status == 1
    flat = " ".join(said.split())
    assert "refused: copy: impossible: 5200 GB/s at 2048 MiB, Tensor.copy_ is 1.08 times the peak" in flat
    assert "less work was done than counted" in flat
    assert not any(line.startswith("copy") for line in said.splitlines())
    stored = ceilings_for(tmp_path, H200)
    assert stored is not None
    assert stored.copy_bytes_per_s is None
    assert stored.read_bytes_per_s == 4.4e12, "1.8 % above is within the margin"


def test_nothing_is_refused_without_a_peak_to_rely_on() -> None:
    """An unknown product, and a row of confidence C, refuse nothing and give no share."""
    found = compute_median_ceilings([process(f16=9e18)], "2026-01-02")
    doubtful = next(spec for spec in all_specs() if spec.confidence == "C")
    assert find_impossible(found, spec_for(H200)).keys() == {"f16"}
    assert find_impossible(found, None) == find_impossible(found, doubtful) == {}
    assert find_peak("copy", doubtful) is None


def test_a_dry_run_stores_nothing(tmp_path: Path, capsys: Any) -> None:
    """`--dry-run` prints the table and leaves no file."""
    status, said = concluded([process()], capsys, "--baselines", str(tmp_path), "--dry-run")
    assert status == 0
    assert said.splitlines()[-1] == "nothing was stored (--dry-run)"
    assert list(tmp_path.iterdir()) == []


def test_json_is_one_object(tmp_path: Path, capsys: Any) -> None:
    """`--json -` prints nothing but an object with the ceilings as stored, the peaks, and what was refused."""
    status, said = concluded([process(copy=9e12)], capsys, "--baselines", str(tmp_path), "--json", "-")
    found = json.loads(said)
    assert status == 1
    assert found["ceilings"]["flops_per_s"]["f16"] == 7e14
    assert found["device"]["name"] == "NVIDIA H200"
    assert found["peaks"]["copy"] == spec_of_h200().peak_bytes_per_s
    assert found["refused"].keys() == {"copy"}
    assert found["peak_source"] == spec_of_h200().source


def test_what_cannot_be_stored_is_printed_first(tmp_path: Path, capsys: Any) -> None:
    """A file in the way that is not understood stays, and what took minutes to measure is shown nevertheless."""
    path = CeilingsStore(tmp_path).write(tmp_path, compute_median_ceilings([process()], "2026-01-02"))
    path.write_text("{}")
    with pytest.raises(BaselineError, match="field `schema` is None"):
        conclude([process()], STATE, parsed("--baselines", str(tmp_path)))
    assert "700 TFLOP/s" in capsys.readouterr().out
    assert path.read_text() == "{}"


def spec_of_h200() -> Any:
    """The row of the table."""
    return spec_for(H200)


def test_a_change_from_stored_ceilings(tmp_path: Path, capsys: Any) -> None:
    """`--against FILE` adds how far each figure moved; '-' where the file lacks it."""
    before = compute_median_ceilings([process(f16=6.3e14)], "2026-01-02")
    before = replace(before, ceilings=replace(before.ceilings, launch_us=None))
    path = CeilingsStore(tmp_path).write(tmp_path, before)
    _, said = concluded([process()], capsys, "--dry-run", "--against", str(path))
    last = {
        line.split("  ")[0]: line.split()[-2:] for line in said.splitlines() if line.startswith(("f16  ", "launch"))
    }
    assert last["f16"] == ["+11.1", "%"]
    assert last["launch"][-1] == "-"


def test_a_change_from_another_device_is_said(tmp_path: Path, capsys: Any) -> None:
    """A file of another device is compared with, too, and named; --json holds it beside what was found."""
    path = CeilingsStore(tmp_path).write(tmp_path, compute_median_ceilings([process()], "2026-01-02"))
    cut = replace(H200, compute_units=66)
    _, said = concluded([process(cut)], capsys, "--dry-run", "--against", str(path))
    assert "change: from another device, sm_90 h200 with 132 compute units" in said
    _, said = concluded([process()], capsys, "--dry-run", "--against", str(path))
    assert "another device" not in said
    _, said = concluded([process()], capsys, "--dry-run", "--json", "-", "--against", str(path))
    assert json.loads(said)["against"]["ceilings"]["flops_per_s"]["f16"] == 7e14
    _, said = concluded([process()], capsys, "--dry-run", "--json", "-")
    assert json.loads(said)["against"] is None


def test_a_root_that_holds_nothing_costs_no_measurement(tmp_path: Path) -> None:
    """A file in the place of a folder is refused before a process starts; with --dry-run nothing is stored."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BaselineError, match=r"/file/deep: .*/file is not a folder; name another folder"):
        module.choose_kind(parsed("--device", "cpu", "--baselines", str(tmp_path / "file" / "deep")))
    assert module.choose_kind(parsed("--device", "cpu", "--dry-run", "--baselines", str(tmp_path / "file"))) == "cpu"
    assert module.choose_kind(parsed("--device", "cpu", "--baselines", str(tmp_path / "new" / "deep"))) == "cpu"


def test_a_cpu_says_what_it_is(tmp_path: Path, capsys: Any) -> None:
    """Figures of a CPU are stored under its own architecture, and are said to tell nothing of a GPU."""
    cpu = DeviceInfo("cpu", "cpu-x86_64", "amd-epyc", "AMD EPYC", compute_units=1)
    _, said = concluded([process(cpu)], capsys, "--baselines", str(tmp_path))
    assert "a CPU, threads: 1, small sizes: to try the command; says nothing of a GPU" in said
    assert (tmp_path / "cpu-x86_64" / "amd-epyc" / "ceilings" / "1.json").exists()


def test_a_wide_spread_is_said(tmp_path: Path, capsys: Any) -> None:
    """Figures whose processes differ by more than 5 % are named."""
    _, said = concluded([process(), process(f16=6e14)], capsys, "--dry-run")
    assert "the processes differ by more than 5 % in f16" in said.splitlines()


def gpu_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, gpu: bool = True) -> list[Any]:
    """A machine with one GPU, or none, whose processes are recorded instead of run."""
    ran: list[Any] = []

    def measure(self: CeilingProcesses, number: int) -> ProcessCeilings:
        ran.append((self.kind, self.gpu, number, self.count))
        return process()

    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)
    monkeypatch.setattr(gpu_tokens, "has_gpu", lambda environ: (gpu, "found" if gpu else "no GPU: no /dev/nvidia0"))
    monkeypatch.setattr(gpu_tokens, "visible_gpus_here", lambda: ("3",))
    monkeypatch.setattr(gpu_tokens, "torch_build", lambda: "2.11.0")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("pytest_attnperf.environment.device_state.start_watch", lambda token: FakeWatch())
    monkeypatch.setattr(CeilingProcesses, "measure", measure)
    return ran


class FakeWatch:
    """Reads no device."""

    def end(self, device_id: str) -> DeviceState:
        """The same always."""
        return STATE


def test_processes_run_one_after_the_other_on_a_leased_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """As many processes as asked for, on the one GPU that is leased meanwhile and free afterwards."""
    ran = gpu_machine(monkeypatch, tmp_path)
    assert calibrate_device(parsed("--processes", "2", "--dry-run")) == 0
    assert ran == [("gpu", "3", 1, 2), ("gpu", "3", 2, 2)]
    assert "medians of 2 fresh processes" in capsys.readouterr().out
    lease_gpu(("3",)).release()


def test_a_gpu_that_another_run_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """While another run has leased the GPU nothing is started."""
    ran = gpu_machine(monkeypatch, tmp_path)
    held = lease_gpu(("3",))
    try:
        with pytest.raises(GpuBusyError, match=r"no free GPU: 1 visible GPU \(3\), every one leased by another run"):
            calibrate_device(parsed())
    finally:
        held.release()
    assert ran == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--processes", "0"), "--processes 0 must be at least 1"),
        (("--device", "gpu"), "--device gpu: no GPU: no /dev/nvidia0; use --device cpu to try the command"),
    ],
)
def test_what_cannot_be_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    """Nothing is started without a process to run, or without the GPU that was asked for."""
    ran = gpu_machine(monkeypatch, tmp_path, gpu=False)
    with pytest.raises(UsageError) as caught:
        calibrate_device(parsed(*arguments))
    assert message in str(caught.value)
    assert ran == []


def test_without_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without torch there is nothing to time, on any device."""
    gpu_machine(monkeypatch, tmp_path, gpu=False)
    monkeypatch.setattr(gpu_tokens, "torch_build", lambda: None)
    with pytest.raises(UsageError, match="torch is not installed for this Python"):
        calibrate_device(parsed("--device", "cpu"))


def test_a_bad_file_to_compare_with_is_said_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file of --against that cannot be read costs no measurement."""
    ran = gpu_machine(monkeypatch, tmp_path)
    with pytest.raises(BaselineError, match="cannot be read"):
        calibrate_device(parsed("--against", str(tmp_path / "none.json")))
    assert ran == []


def started(tmp_path: Path, program: str, limit_s: float = 20.0) -> ProcessCeilings:
    """What the first of two processes gives that runs this program."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "START", program)
        return CeilingProcesses("cpu", None, 2, tmp_path, limit_s).measure(1)


def test_a_process_that_dies_shows_its_end(tmp_path: Path, capsys: Any) -> None:
    """The status or signal is named, with the last lines that were printed; lines of progress are shown meanwhile."""
    program = "import sys; print('ceilings: copy: 1 GB/s', file=sys.stderr); print('no memory'); sys.exit(3)"
    with pytest.raises(WorkerError, match="process 1 of 2 ended with status 3; nothing was stored") as caught:
        started(tmp_path, program)
    assert "no memory" in caught.value.log_tail
    shown = capsys.readouterr().err
    assert "s  process 1 of 2: copy: 1 GB/s\n" in shown
    assert "no memory" not in shown
    with pytest.raises(WorkerError, match="was killed by SIGKILL"):
        started(tmp_path, "import os; os.kill(os.getpid(), 9)")


def test_a_process_that_is_stuck_is_killed(tmp_path: Path) -> None:
    """A process that does not end is killed with all it started, and its last lines are shown."""
    program = "import os, time; print('in a kernel', flush=True); os.fork(); time.sleep(60)"
    began = time.monotonic()
    with pytest.raises(WorkerError, match=r"hung for 0\.5 s; nothing was stored; run on") as caught:
        started(tmp_path, program, 0.5)
    assert time.monotonic() - began < 10
    assert caught.value.log_tail == "in a kernel"


def test_a_process_is_started_as_a_worker_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees one GPU, and this harness first; on a CPU it has one thread, as every run on a CPU."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    on_gpu = CeilingProcesses("gpu", "3", 1, tmp_path)._build_environment(1)
    on_cpu = CeilingProcesses("cpu", None, 1, tmp_path)._build_environment(1)
    assert (on_gpu["CUDA_VISIBLE_DEVICES"], on_gpu["HIP_VISIBLE_DEVICES"]) == ("3", "3")
    assert on_gpu["PYTHONPATH"].startswith(str(tmp_path / "harness"))
    assert "OMP_NUM_THREADS" not in on_gpu
    assert on_cpu["OMP_NUM_THREADS"] == "1"


def test_the_whole_command_on_a_cpu(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real process that finds what it is told to, without torch: progress is shown, and it is stored as it was."""
    program = (
        "import sys; from pytest_attnperf.measure import ceilings as c; from pytest_attnperf.records import *; "
        "found = c.ProcessCeilings(DeviceInfo('cpu', 'cpu-x86_64', 'mine', compute_units=1), Fingerprint({}, {}), "
        "{'f32': c.CeilingFigure(1e11, 'FLOP/s', '512 x 512 x 512')}, {'copy': 'too large'}); "
        "c.measure_ceilings = lambda torch_device, say: (say(f'f32 on {torch_device}'), found)[1]; "
        "sys.exit(c.main(sys.argv[1:]))"
    )
    monkeypatch.setattr(module, "START", program)
    assert calibrate_device(parsed("--device", "cpu", "--processes", "1", "--baselines", str(tmp_path))) == 0
    said = capsys.readouterr()
    assert "process 1 of 1: f32 on cpu\n" in said.err
    assert "left out: copy: too large" in said.out
    stored = ceilings_for(tmp_path, DeviceInfo("cpu", "cpu-x86_64", "mine", compute_units=1))
    assert stored is not None
    assert (stored.flops_per_s, stored.processes) == ({"f32": 1e11}, 1)
