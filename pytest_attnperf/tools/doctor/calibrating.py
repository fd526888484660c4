"""`attnperf doctor --calibrate`: measures what this device reaches, in fresh processes one by one, and stores it."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError, WorkerError

if TYPE_CHECKING:
    from pytest_attnperf.baselines.ceilings_store import StoredCeilings
    from pytest_attnperf.environment.device_specs import DeviceSpec
    from pytest_attnperf.measure.ceilings import ProcessCeilings
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.records.gpus import DeviceState

PROCESS_LIMIT_S = 240.0
"""Seconds after which a process counts as stuck. It takes some 20 s on a GPU, without loading torch."""

TAIL_LINES = 25
WIDE_SPREAD = 0.05
F32_ON_MATRIX_UNITS = ("tf32", "xf32")

START = (
    "import sys; del sys.path[: sys.path[0] == '']; from pytest_attnperf.measure.ceilings import main; "
    "sys.exit(main(sys.argv[1:]))"
)
"""Python code of a process. It drops the current folder from its path, where another copy of this package may lie."""

Measure = Callable[[int], "ProcessCeilings"]
"""Runs the n-th process, counted from 1."""


def calibrate_device(options: argparse.Namespace) -> int:
    """Measures a device's ceilings (highest FLOP/s and B/s) in fresh processes, prints and stores them. Returns 1 if
    one exceeds the data sheet, else 0. Raises UsageError for invalid options and a busy GPU, WorkerError if a process
    fails, BaselineError if storing does."""
    from pytest_attnperf.environment import device_state
    from pytest_attnperf.environment.cards import lease_gpu
    from pytest_attnperf.environment.gpu_tokens import visible_gpus_here

    kind = choose_kind(options)
    lease = lease_gpu(visible_gpus_here()) if kind == "gpu" else None
    token = lease.token if lease is not None else ""
    try:
        watch = device_state.start_watch(token)
        with tempfile.TemporaryDirectory(prefix="attnperf-ceilings-") as scratch:
            processes = CeilingProcesses(kind, token or None, options.processes, Path(scratch))
            found = [processes.measure(number) for number in range(1, options.processes + 1)]
        state = watch.end(found[0].device.device_id)
    finally:
        if lease is not None:
            lease.release()
    return conclude(found, state, options)


def choose_kind(options: argparse.Namespace) -> str:
    """Returns 'gpu' or 'cpu'. Raises UsageError or BaselineError for options that cannot work, before measuring."""
    from pytest_attnperf.environment.gpu_tokens import has_gpu, torch_build

    if options.processes < 1:
        raise UsageError(f"--processes {options.processes} must be at least 1")
    if options.against is not None:
        _read_against(options.against)  # before minutes are spent on measuring
    if not options.dry_run:
        from pytest_attnperf.baselines.ceilings_store import refuse_root

        refuse_root(options.baselines)
    if torch_build() is None:
        raise UsageError("torch is not installed for this Python; install it: its products and copies are measured")
    found, why = has_gpu(os.environ)
    if options.device == "gpu" and not found:
        raise UsageError(f"--device gpu: {why}; use --device cpu to try the command, or another torch")
    return "gpu" if found and options.device != "cpu" else "cpu"


@dataclass
class CeilingProcesses:
    """Runs fresh processes of this harness on one device, and prints their progress."""

    kind: str
    gpu: str | None
    count: int
    scratch: Path
    limit_s: float = PROCESS_LIMIT_S
    began: float = field(default_factory=time.monotonic)

    def measure(self, number: int) -> ProcessCeilings:
        """Runs process `number` (from 1); returns the ceilings it measured. Raises WorkerError if it fails or hangs."""
        import msgspec

        from pytest_attnperf.measure.ceilings import ProcessCeilings

        path = self.scratch / f"process-{number}.json"
        code, tail = self._run_process(
            [sys.executable, "-c", START, "cpu" if self.kind == "cpu" else "cuda", str(path)], number
        )
        name = f"process {number} of {self.count}"
        if code is None:
            raise WorkerError(f"{name} hung for {self.limit_s:g} s; nothing was stored; run on an idle device", tail)
        if code != 0:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            raise WorkerError(f"{name} {how}; nothing was stored", tail)
        return msgspec.json.decode(path.read_bytes(), type=ProcessCeilings)

    def _run_process(self, command: Sequence[str], number: int) -> tuple[int | None, str]:
        """Runs a command, printing progress. Returns (status, None if killed at the time limit; last output lines)."""
        from pytest_attnperf.measure.ceilings import PROGRESS

        tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._print_line(number, "starts")
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=self._build_environment(number),
            text=True,
            errors="replace",
            start_new_session=True,
        )
        stuck = threading.Event()

        def give_up() -> None:
            stuck.set()
            _kill_group(process)

        limit = threading.Timer(self.limit_s, give_up)
        limit.daemon = True
        limit.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                tail.append(line.rstrip("\n"))
                if line.startswith(PROGRESS):
                    self._print_line(number, line.removeprefix(PROGRESS).rstrip("\n"))
            code = process.wait()
        finally:
            limit.cancel()
            if process.poll() is None:  # interrupted: Ctrl-C does not reach another session
                _kill_group(process)
                process.wait()
        return (None if stuck.is_set() else code), "\n".join(tail)

    def _build_environment(self, number: int) -> dict[str, str]:
        """Returns process `number`'s environment: one visible GPU (or one CPU thread), this package imported first."""
        from pytest_attnperf.records import Role
        from pytest_attnperf.workers.launch import LaunchPlan

        role = Role.DEVICE if self.kind == "gpu" else Role.INTERPRET
        plan = LaunchPlan(files=(), rootdir=Path.cwd(), scratch=self.scratch, role=role)
        plan.link_harness()
        return plan.make_environment(os.environ, f"ceilings-{number}", self.gpu)

    def _print_line(self, number: int, line: str) -> None:
        from pytest_attnperf.reports.text.figures import one_line

        seconds = time.monotonic() - self.began
        sys.stderr.write(f"{seconds:6.1f} s  process {number} of {self.count}: {one_line(line)}\n")
        sys.stderr.flush()


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Kills a process and all that it started (SIGKILL to its group); does nothing if they have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def conclude(found: Sequence[ProcessCeilings], state: DeviceState, options: argparse.Namespace) -> int:
    """Prints the medians over all processes, then stores them unless --dry-run; leaves out figures above the data
    sheet. Returns 1 if there was one, else 0. Raises BaselineError if storing fails."""
    from pytest_attnperf.baselines.ceilings_store import CeilingsStore, compute_median_ceilings, drop_figures
    from pytest_attnperf.environment.device_specs import spec_for

    device = found[0].device
    spec = spec_for(device)
    measured = compute_median_ceilings(found, datetime.datetime.now(datetime.timezone.utc).date().isoformat())
    refused = find_impossible(measured, spec)
    stored = drop_figures(measured, refused)
    against = _read_against(options.against) if options.against is not None else None
    told = sys.stderr if options.json == "-" else sys.stdout
    if options.json != "-":
        sys.stdout.write(f"{render_ceilings(stored, spec, device, state, refused, against)}\n")
    if options.json:
        _write_json(as_json(stored, spec, device, refused, against), options.json)
    if options.dry_run:
        said = "nothing was stored (--dry-run)"
    else:
        said = f"stored in {CeilingsStore(options.baselines).write(options.baselines, stored)}"
    told.write(f"\n{said}\n")
    return 1 if refused else 0


def _write_json(content: dict[str, Any], file: str) -> None:
    """Writes `content` as JSON into `file`, and says so on standard error; '-' prints it."""
    from pytest_attnperf.records.atomic_file import write_atomically

    text = json.dumps(content, indent=2) + "\n"
    if file == "-":
        sys.stdout.write(text)
    else:
        write_atomically(Path(file), text.encode())
        sys.stderr.write(f"written: {file}\n")


def _read_against(path: Path) -> StoredCeilings:
    """Reads the ceilings of --against, from any path. Raises BaselineError if the file is invalid."""
    from pytest_attnperf.baselines.ceilings_store import decode_ceilings
    from pytest_attnperf.baselines.store import read_content

    return decode_ceilings(read_content(path), str(path))


def find_peak(name: str, spec: DeviceSpec | None) -> float | None:
    """Returns the data sheet's peak (FLOP/s or B/s) of a figure; None if unreliable, unknown, or a cache or launch."""
    from pytest_attnperf.measure.ceilings import CACHE, COPY, EAGER, LAUNCH, READ
    from pytest_attnperf.roofline.floors import UNRELIABLE

    if spec is None or spec.confidence == UNRELIABLE or name in (CACHE, LAUNCH, EAGER):
        return None
    return spec.peak_bytes_per_s if name in (COPY, READ) else spec.peak_flops(name.partition(" ")[0])


def find_impossible(stored: StoredCeilings, spec: DeviceSpec | None) -> dict[str, str]:
    """Returns figure -> reason for each figure that a process measured above the data sheet's peak plus a margin."""
    from pytest_attnperf.roofline.floors import MARGIN

    refused = {}
    for name, values in stored.values.items():
        peak = find_peak(name, spec)
        if peak is None or spec is None or max(values) <= peak * (1 + MARGIN):
            continue
        refused[name] = (
            f"impossible: {_format_ceiling(name, max(values))} at {stored.ceilings.sizes[name]} is "
            f"{max(values) / peak:.2f} times the peak of {_format_ceiling(name, peak)} at the maximum clock "
            f"({spec.name}: {spec.source}); less work was done than counted, or the clock or the data sheet is wrong"
        )
    return refused


def render_ceilings(
    stored: StoredCeilings,
    spec: DeviceSpec | None,
    device: DeviceInfo,
    state: DeviceState,
    refused: Mapping[str, str],
    against: StoredCeilings | None = None,
) -> str:
    """Returns the printed report: a table with a row per figure, lines above, notes below; `against` adds changes."""
    from pytest_attnperf.baselines.ceilings_store import figures_of, shape_of
    from pytest_attnperf.reports.text.wide_tables import Column, Table, render_terminal_tables

    found = stored.ceilings
    columns = [Column("at", "left"), Column("spread"), Column("of peak"), Column("MHz")]
    columns += [Column("change")] if against is not None else []
    rows = []
    for name, value in figures_of(stored).items():
        share = _format_peak_share(name, value, spec)
        clock, spread = stored.clock_mhz.get(name), found.spread.get(name)
        row = [
            _format_ceiling(name, value),
            found.sizes.get(name, ""),
            "-" if spread is None else f"{spread * 100:.1f} %",
            share,
        ]
        row += ["-" if clock is None else f"{clock:.0f}"]
        row += [_format_ceiling_change(name, value, against)] if against is not None else []
        rows.append((name, *row))
    notes = _list_notes(stored, refused)
    if against is not None and shape_of(against.ceilings) != shape_of(found):
        notes = (*notes, f"change: from another device, {shape_of(against.ceilings)}")
    table = Table("", "figure", (Column("reached"), *columns), tuple(rows), notes)
    return render_terminal_tables(_list_head_lines(stored, spec, device, state), [table], 130)


def _list_head_lines(
    stored: StoredCeilings, spec: DeviceSpec | None, device: DeviceInfo, state: DeviceState
) -> list[str]:
    from pytest_attnperf.reports.text.figures import one_line

    found = stored.ceilings
    lines = [
        f"{one_line(device.name or device.product)} ({device.arch}, {device.compute_units} compute units): medians of "
        f"{found.processes} fresh processes; spread: slowest over fastest of them",
        "reached by torch's own work, each size proven right before it was timed: lower bounds of what it can do",
    ]
    if device.kind == "cpu":
        lines.append(f"a CPU, threads: {device.compute_units}, small sizes: to try the command; says nothing of a GPU")
    elif spec is None:
        lines.append("no data sheet is known for this product with these compute units: no peak to compare with")
    else:
        lines.append(f"peaks: {spec.name}, confidence {spec.confidence}, at the maximum clock: {spec.source}")
    power = stored.environment.get("power_cap_w")
    lines += [f"power cap: {one_line(power)} W"] if power and device.kind != "cpu" else []
    return lines + _state_lines(state)


def _state_lines(state: DeviceState) -> list[str]:
    from pytest_attnperf.reports.run.conditions import condition_lines
    from pytest_attnperf.results import RunResult

    return condition_lines(RunResult(0, "", "", "", "", "", None, None, (), device_state=state))


def _list_notes(stored: StoredCeilings, refused: Mapping[str, str]) -> tuple[str, ...]:
    found = stored.ceilings
    wide = [name for name, spread in found.spread.items() if spread > WIDE_SPREAD]
    lines = [f"refused: {name}: {reason}" for name, reason in refused.items()]
    lines += [f"left out: {name}: {reason}" for name, reason in stored.left_out.items() if name not in refused]
    lines += stored.notes
    lines += [f"the processes differ by more than {WIDE_SPREAD * 100:.0f} % in {', '.join(wide)}"] if wide else []
    return tuple(lines)


def _format_peak_share(name: str, value: float, spec: DeviceSpec | None) -> str:
    """Returns a figure as percent of the data sheet's peak; '-' if unknown, or if the f32 peak is of TF32 or XF32."""
    from pytest_attnperf.reports.text.figures import format_share

    peak = find_peak(name, spec)
    if peak is None or spec is None or (name == "f32" and spec.f32_path in F32_ON_MATRIX_UNITS):
        return "-"
    return format_share(value / peak)


def _format_ceiling_change(name: str, value: float, against: StoredCeilings) -> str:
    from pytest_attnperf.baselines.ceilings_store import figures_of
    from pytest_attnperf.reports.text.figures import format_change

    old = figures_of(against).get(name)
    return "-" if old is None else format_change(value / old)


def _format_ceiling(name: str, value: float) -> str:
    from pytest_attnperf.measure.ceilings import CACHE, COPY, EAGER, LAUNCH, READ
    from pytest_attnperf.records.time_units import format_time
    from pytest_attnperf.reports.text.figures import format_rate

    if name in (LAUNCH, EAGER):
        return format_time(value)
    if name in (COPY, READ, CACHE):
        return f"{format_rate(value / 1e9)} GB/s"
    return f"{format_rate(value / 1e12)} TFLOP/s"


def as_json(
    stored: StoredCeilings,
    spec: DeviceSpec | None,
    device: DeviceInfo,
    refused: Mapping[str, str],
    against: StoredCeilings | None = None,
) -> dict[str, Any]:
    """Returns the --json object: stored figures, device, known peaks, --against, and `refused` (figure -> why)."""
    from pytest_attnperf.baselines.ceilings_store import figures_of
    from pytest_attnperf.baselines.schema import to_plain

    peaks = {name: peak for name in [*figures_of(stored), *refused] if (peak := find_peak(name, spec)) is not None}
    return {
        **to_plain(stored),
        "device": to_plain(device),
        "peaks": peaks,
        "peak_source": spec.source if spec is not None and peaks else "",
        "refused": dict(refused),
        "against": None if against is None else to_plain(against),
    }
